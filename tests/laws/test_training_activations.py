"""Kept bytes per token of fused layers, in the units the sources use."""

from tonnage.laws import activations

SEVEN = {
    "hidden_size": 4096,
    "query_width": 4096,
    "key_value_width": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
}


def test_llama_2_7b_keeps_45_hidden_sizes_as_litgpt_measured():
    assert 45.5 == round(activations.eager_llama_layer(**SEVEN) / 4096, 1)


def test_compiling_drops_half_of_the_norms_and_a_quarter_of_the_mlp():
    saved = activations.eager_llama_layer(**SEVEN) - activations.compiled_layer(**SEVEN)

    assert 8 * 4096 + 2 * 11008 == saved
    assert activations.compiled_layer(**SEVEN, gated=False) < activations.compiled_layer(**SEVEN)


def test_selective_checkpointing_keeps_less_than_half():
    first = activations.selective_operators_layer(**SEVEN, every_second=True)
    later = activations.selective_operators_layer(**SEVEN, every_second=False)

    assert 2 * 4096 == first - later
    assert first < activations.compiled_layer(**SEVEN) / 2


def test_sequence_parallelism_divides_the_stream_too():
    cut = activations.transformer_engine_layer(**SEVEN, tensor_parallel_size=4, sequence_parallel=True)
    whole = activations.transformer_engine_layer(**SEVEN, tensor_parallel_size=1, sequence_parallel=True)
    stream = activations.transformer_engine_layer(**SEVEN, tensor_parallel_size=4, sequence_parallel=False)

    assert whole == 4 * cut
    assert stream > cut
    assert activations.transformer_engine_layer(**SEVEN, tensor_parallel_size=4, sequence_parallel=True, fp8=True) < cut


def test_full_checkpointing_keeps_the_input_and_recomputes_one_layer():
    assert 8192 == activations.checkpointed_layer(hidden_size=4096)
    assert 45 + 2 * 4 + 4 * 11 == activations.recomputed_layer(kept=45, hidden_size=4, intermediate_size=11)


def test_experts_keep_a_copy_of_the_token_each():
    sizes = {"hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8}

    assert 8 * (4 * 2048 + 8 * 768) + 6 * 128 == activations.routed_experts(**sizes, trains=True)
    assert 6 * 768 * 8 == activations.routed_experts(**sizes, trains=False)


def test_kept_outputs_hold_the_inputs_of_4_bit_linears_and_fp32_logits():
    law = activations.stale_inputs

    held = law(hidden_size=8, query_width=8, intermediate_size=16, layers=2, vocab_size=100, tokens=10, percent=50)

    assert (((32 + 16 + 32) * 2 + 400) * 10) // 2 == held


def test_activations_of_a_moment_go_with_tokens_pairs_and_padded_tokens():
    given = {"tokens": 1000, "pairs": 1_000_000, "padded_tokens": 1024}

    assert 5000 == activations.at_moment(bytes_per_token=5, bytes_per_pair=0, bytes_per_padded_token=0, **given)
    assert 5000 + 2_000_000 + 4096 == activations.at_moment(
        bytes_per_token=5, bytes_per_pair=2, bytes_per_padded_token=4, **given
    )
    assert 0 == activations.at_moment(bytes_per_token=-1, bytes_per_pair=0, bytes_per_padded_token=0, **given)


def test_what_no_batch_changes_is_what_was_held_and_what_came_since_and_never_below_nothing():
    assert 12 == activations.unvarying(before=8, here=4)
    assert 0 == activations.unvarying(before=8, here=-16)


def test_a_causal_mask_of_all_positions_is_a_byte_per_pair():
    assert 64 * 2**20 == activations.causal_mask_buffer(positions=8192)
