import pytest

from tonnage.laws import generate
from tonnage.units import MiB

BF16 = 2


def test_llama_prefill_is_8840_bytes_per_token_as_traced():
    # transformers 5.24, hidden 256, intermediate 1024, 2 layers, 2 KV heads of 32: traced 8840 B/token with 8 B of ids
    width = generate.feed_forward(hidden_size=256, intermediate_size=1_024, products=3, element_bytes=BF16)
    tables = generate.rotary_tables(rotary_dim=32, element_bytes=BF16) - generate.INDEX_BYTES + 8
    cache = 2 * 2 * 2 * 32 * BF16

    assert 8_840 == width + tables + cache


@pytest.mark.parametrize(
    ("products", "traced"), [(4, 10_888), (2, 6_792)], ids=["phi3: one gate and up matrix", "starcoder2: no gate"]
)
def test_products_of_other_feed_forwards_match_their_traces(products, traced):
    width = generate.feed_forward(hidden_size=256, intermediate_size=1_024, products=products, element_bytes=BF16)

    assert traced == width + 4 * 32 + 8 + 512


def test_norm_leads_where_the_feed_forward_is_narrow():
    # the same trace with intermediate 64: 4240 B/token
    assert 4_240 - 512 - 4 * 32 - 16 == generate.norm(hidden_size=256, element_bytes=BF16)
    assert 14 * 256 == generate.norm(hidden_size=256, element_bytes=BF16)
    assert generate.norm(hidden_size=256, element_bytes=BF16) > generate.feed_forward(
        hidden_size=256, intermediate_size=64, products=3, element_bytes=BF16
    )


def test_query_norm_counts_two_fp32_copies_of_the_queries():
    assert 6 * 256 + 10 * 512 == generate.query_norm(hidden_size=256, query_width=512, element_bytes=BF16)


def test_attention_repeats_keys_and_values_only_where_asked():
    plain = generate.attention(
        hidden_size=10, query_width=20, key_width=20, value_width=20, repeated=False, element_bytes=BF16
    )
    repeated = generate.attention(
        hidden_size=10, query_width=20, key_width=20, value_width=20, repeated=True, element_bytes=BF16
    )

    assert 2 * (30 + 40) == plain
    assert 2 * 40 == repeated - plain


def test_rotary_holds_four_query_rows():
    # the same trace with 32 heads of 32: 11912 B/token, 2048 of them cache
    assert 11_912 - 2_048 - 4 * 32 - 8 == generate.rotary(hidden_size=256, query_width=1_024, element_bytes=BF16)


def test_a_layer_normed_afterwards_holds_three_hidden_rows():
    # exaone4: 8328 B/token
    width = generate.feed_forward(
        hidden_size=256, intermediate_size=1_024, products=3, element_bytes=BF16, hidden_rows=3
    )

    assert 8_328 == width + 4 * 32 + 8 + 512


def test_expert_loop_pays_for_the_one_hot_mask():
    few = generate.experts_loop(
        hidden_size=2_048, num_experts=8, experts_per_token=2, expert_intermediate_size=768, element_bytes=BF16
    )
    many = generate.experts_loop(
        hidden_size=2_048, num_experts=128, experts_per_token=8, expert_intermediate_size=768, element_bytes=BF16
    )

    assert 8 * 128 * 8 < many
    assert few < many


@pytest.mark.parametrize(
    ("weight_bytes", "per_token", "traced"), [(2, 4, 11_080), (4, 2, 8_944)], ids=["qwen3_moe", "mixtral: fp32 weights"]
)
def test_grouped_experts_match_their_traces(weight_bytes, per_token, traced):
    width = generate.experts_grouped(
        hidden_size=256, experts_per_token=per_token, expert_intermediate_size=64, weight_bytes=weight_bytes,
        element_bytes=BF16,
    )  # fmt: skip

    assert width + 4 * 32 + 512 == pytest.approx(traced, rel=0.03)


def test_a_window_mask_is_a_byte_per_pair():
    # gemma3 with a window of 256: 13378560 against 12329984 bytes at 1024 tokens
    assert 13_378_560 - 12_329_984 == generate.window_mask(batch_size=1, tokens=1_024, keys=1_024, element_bytes=1)


def test_scores_grow_with_the_square_of_the_length():
    short, long = (
        generate.eager_scores(num_attention_heads=32, tokens=n, keys=n, batch_size=1, per_score_bytes=8)
        for n in (1_024, 2_048)
    )

    assert 4 * short == long


def test_logits_of_a_whole_prompt_come_with_an_fp32_copy():
    whole = generate.prompt_logits(rows=6_144, vocab_size=151_936, element_bytes=BF16, upcast=True)
    last = generate.prompt_logits(rows=1, vocab_size=151_936, element_bytes=BF16, upcast=False)

    assert 6_144 * 151_936 * 6 == whole
    assert 151_936 * 2 == last


def test_next_token_logits_are_six_bytes_a_vocabulary_entry():
    assert 6 * 151_936 == generate.next_token_logits(batch_size=1, vocab_size=151_936, element_bytes=BF16)


def test_repeated_heads_cost_qwen_14b_40_mib_in_the_last_step():
    keys = 8 * 128 * 2 * 2_048
    step = generate.decode_step(key_bytes=keys, value_bytes=keys, heads_per_kv_head=5, repeated=True)

    assert 40 * MiB == step
    assert keys == generate.decode_step(key_bytes=keys, value_bytes=keys, heads_per_kv_head=5, repeated=False)


def test_tuple_caches_exist_twice_during_a_step():
    assert 17 == generate.tuple_cache_step(cache_bytes=17)


def test_exllama_keeps_one_matrix_in_fp16_and_the_fallback_six_bytes_an_element():
    assert 2 * 100 == generate.exllama_workspace(largest_matrix_elements=100)
    assert 6 * 100 == generate.torch_dequantization(largest_matrix_elements=100)


def test_a_four_bit_product_dequantizes_its_matrix():
    assert 2 * 100 == generate.dequantized_matrix(largest_matrix_elements=100, element_bytes=BF16)


def test_delta_rule_lies_within_four_percent_of_its_traces():
    for heads, keys, key_dim, value_dim, traced in (
        (8, 4, 32, 32, 20_728),
        (16, 8, 64, 64, 67_017),
        (8, 4, 64, 32, 27_928),
    ):
        width = generate.delta_rule(
            hidden_size=256, num_value_heads=heads, value_head_dim=value_dim, num_key_heads=keys, key_head_dim=key_dim,
            chunk=64,
        )  # fmt: skip
        assert width == pytest.approx(traced, rel=0.04)


def test_selective_scan_is_linear_in_its_widths():
    assert 2 * (30 + 40 + 50) == generate.selective_scan(
        hidden_size=10, projected_width=20, inner_size=25, element_bytes=BF16
    )


def test_a_device_map_gives_every_gpu_an_even_share_and_the_last_the_rest():
    blocks = [10] + [5] * 20 + [0, 10]
    budget = generate.balanced_budget(total=sum(blocks), devices=3, largest_block=5)

    assert 40 + 6 == budget
    assert (0, 6, 15) == generate.balanced_split(blocks=blocks, budget=budget, devices=3, kept_free=10)


def test_one_gpu_takes_every_block():
    assert (0,) == generate.balanced_split(blocks=[5] * 4, budget=1, devices=1, kept_free=0)


def test_gpus_without_a_block_start_behind_the_last():
    assert (0, 1, 1) == generate.balanced_split(blocks=[5], budget=100, devices=3, kept_free=0)


@pytest.mark.parametrize(
    ("nope", "rope", "value", "traced"),
    [(32, 16, 32, 18_984), (32, 16, 64, 23_080), (64, 16, 32, 27_176), (32, 32, 32, 23_240)],
)
def test_latent_attention_matches_its_traces(nope, rope, value, traced):
    width = generate.latent_attention(
        hidden_size=256, num_attention_heads=32, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=value,
        element_bytes=BF16,
    )  # fmt: skip
    cache, tables = 2 * (64 + rope) * BF16, 4 * rope + 8

    assert width + cache + tables == pytest.approx(traced, rel=0.01)
