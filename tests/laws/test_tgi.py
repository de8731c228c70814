from tonnage.laws import tgi


def test_a_tenth_of_the_card_stays_free():
    assert 90 - 60 == tgi.pool(free=30 + 10, total=100, kept=0.1, warm_up_cache=0)


def test_the_warm_up_cache_is_kept_whatever_is_free():
    assert 7 == tgi.pool(free=5, total=100, kept=0.1, warm_up_cache=7)


def test_prefill_tokens_divide_the_free_memory():
    assert 10 == tgi.prefill_tokens(
        free=10 * (100 + 9 * 8 * 2), token_bytes=100, intermediate_size=8, experts=1, element_bytes=2
    )
    assert 1 == tgi.prefill_tokens(free=0, token_bytes=100, intermediate_size=8, experts=2, element_bytes=2)


def test_prefill_activations_are_linear_in_tokens():
    assert 10 * 2 * (3 * 8 + 4 * 4) == tgi.prefill_activations(
        tokens=10, hidden_size=4, intermediate_size=8, element_bytes=2
    )


def test_warm_up_logits_stop_at_the_rows_a_batch_may_hold():
    assert 2 * 32_000 * 100 == tgi.warm_up_logits(tokens=100, vocab_size=32_000, element_bytes=2)
    assert 2 * 32_000 * 4096 == tgi.warm_up_logits(tokens=10_000, vocab_size=32_000, element_bytes=2)


def test_captured_graphs_lie_in_the_tenth_that_a_card_of_24_gb_leaves_free():
    assert 0 < tgi.captured() < 24 * 10**9 // 10


def test_scored_prompts_are_four_rows_of_logits():
    assert 4 * 10 * 7 * 2 == tgi.scored_prompts(tokens=10, vocab_size=7, element_bytes=2)
