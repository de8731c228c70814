import pytest

from tonnage.laws import serving_activations
from tonnage.units import GiB, MiB


def test_a_stream_is_tokens_by_width():
    assert 64 * MiB == serving_activations.stream(tokens=8192, hidden_size=4096, element_bytes=2)


def test_compiled_codellama_peaks_at_what_its_log_prints():
    # 0.77 GiB with 32 MiB of cuBLAS
    peak = serving_activations.mlp_compiled(
        tokens=8192, hidden_size=4096, width=11_008, gated=True, element_bytes=2, l2_cache_bytes=50 * MiB
    )

    assert 0.77 == pytest.approx((peak + 32 * MiB) / GiB, abs=0.005)


def test_eager_llama_peaks_at_what_its_log_prints():
    # 20,000 tokens unchunked: 2.07 GiB
    peak = serving_activations.mlp_eager(
        tokens=20_000, hidden_size=4096, width=14_336, gated=True, element_bytes=2, keeps_gate_up=False
    )

    assert 2.07 == pytest.approx((peak + 8.125 * MiB) / GiB, abs=0.005)


def test_models_that_keep_gate_and_up_hold_one_stream_more():
    sizes = {"tokens": 100, "hidden_size": 64, "width": 256, "gated": True, "element_bytes": 2}
    rebinding, keeping = (serving_activations.mlp_eager(**sizes, keeps_gate_up=keeps) for keeps in (False, True))

    assert serving_activations.stream(tokens=100, hidden_size=64, element_bytes=2) == keeping - rebinding


def test_an_ungated_mlp_holds_two_halves_instead_of_three():
    sizes = {"tokens": 100, "hidden_size": 64, "width": 256, "element_bytes": 2}
    gated, plain = (serving_activations.mlp_compiled(**sizes, gated=gated, l2_cache_bytes=0) for gated in (True, False))

    assert 100 * 256 * 2 == gated - plain


def test_quantized_inputs_take_a_byte_each():
    assert 8192 * 32_768 == serving_activations.quantized_input(tokens=8192, width=32_768)


def test_a_stage_hands_over_hidden_states_and_residual():
    assert 128 * MiB == serving_activations.pipeline_handover(tokens=8192, hidden_size=4096, element_bytes=2)


def test_deepseek_v3_projects_four_gib_of_context_on_one_rank():
    context = serving_activations.mla_context_tokens(max_model_len=163_840, max_num_seqs=256, block_size=64)
    whole = serving_activations.mla_context_projection(
        context_tokens=context, heads=128, qk_nope_head_dim=128, v_head_dim=128, element_bytes=2
    )

    assert 65_536 == context
    assert 4 * GiB == whole
    assert whole // 8 == serving_activations.mla_context_projection(
        context_tokens=context, heads=16, qk_nope_head_dim=128, v_head_dim=128, element_bytes=2
    )


def test_the_context_chunk_holds_a_block_of_every_request():
    assert 1024 * 128 == serving_activations.mla_context_tokens(max_model_len=100, max_num_seqs=1024, block_size=128)


def test_glm_5_2_gathers_four_gib_of_indexer_keys():
    assert 4.03 == pytest.approx(
        serving_activations.indexer_gather(max_model_len=819_200, row_bytes=132) / GiB, abs=0.01
    )


def test_score_matrices_grow_with_the_square_of_the_length():
    short, long = (serving_activations.eager_attention_scores(heads=8, tokens=n) for n in (4096, 8192))

    assert 4 * short == long


def test_adapter_intermediates_are_fp32_for_three_slices():
    assert 3 * 2048 * 32 * 4 == serving_activations.lora_intermediate(tokens=2048, max_lora_rank=32)


def test_several_ranks_hold_the_sum_of_the_down_projection_beside_it():
    # Qwen2.5-32B, 10,000 tokens on two ranks of vLLM 0.7.1: 1.26 GiB
    sizes = {"tokens": 10_000, "hidden_size": 5120, "width": 13_824, "gated": True, "element_bytes": 2}
    peak = serving_activations.mlp_eager(**sizes, keeps_gate_up=True, reduced_copy=True)

    assert 1.26 == pytest.approx((peak + 8.125 * MiB) / GiB, abs=0.005)


def test_a_bitsandbytes_matrix_is_written_out_in_the_models_dtype():
    assert 27_648 * 5120 * 2 == serving_activations.dequantized_matrix(rows=27_648, columns=5120, element_bytes=2)


def test_eight_parts_of_a_product_and_their_sum_are_alive_at_once():
    # vLLM 0.2.7, issue 2382: 32,768 tokens of Mixtral, whose pool leaves 20 GiB beside the weights
    found = serving_activations.split_matmul(tokens=32_768, columns=2 * 14_336, element_bytes=2)

    assert 15.75 == found / GiB


def test_the_lookup_is_benchmarked_with_a_second_table():
    # vLLM 0.23, Qwen2.5-Coder-7B on RTX 4090: 1.1 GiB when it compiles, 0.33 from the cache
    found = serving_activations.embedding_benchmark(
        vocab_rows=152_064, hidden_size=3584, tokens=2048, element_bytes=2, l2_cache_bytes=72 * MiB
    )

    assert 1.1 == pytest.approx(found / GiB, abs=0.01)


def test_the_stream_and_its_normalised_copy_come_before_the_head():
    assert 2 * 2 * 4096 * 1000 == serving_activations.normed_stream(rows=1000, hidden_size=4096, element_bytes=2)
