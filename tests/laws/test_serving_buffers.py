import pytest

from tonnage.laws import serving_buffers
from tonnage.units import GiB, MiB


def test_llama_3_1_keeps_32_mib_of_rotary_tables():
    assert 32 * MiB == serving_buffers.rotary_cache(positions=131_072, rotary_dim=128, element_bytes=2)


def test_gemma_3_stretches_its_table_eightfold():
    assert GiB // 2 == serving_buffers.rotary_cache(positions=8 * 131_072, rotary_dim=256, element_bytes=2)


def test_absorbed_projections_are_the_latent_by_every_heads_widths():
    assert 512 * 16 * 256 * 2 == serving_buffers.absorbed_projections(
        kv_lora_rank=512, heads=16, qk_nope_head_dim=128, v_head_dim=128, element_bytes=2
    )


def test_absorbed_matrices_of_deepseek_v2_lite_on_eight_ranks_take_216_mib():
    layer = serving_buffers.absorbed_matrices(
        query_size=2048, hidden_size=2048, kv_lora_rank=512, heads=2, element_bytes=2
    )

    assert 216 * MiB == 27 * layer


def test_slots_of_llama_8b_at_rank_32_take_a_sixth_of_a_gib():
    widths = 32 * 81_920 + 2 * (128_256 + 4096)

    assert 0.172 == pytest.approx(
        serving_buffers.lora_slots(max_loras=1, max_lora_rank=32, widths=widths, element_bytes=2) / GiB, abs=0.001
    )


def test_qwen3_vl_8b_keeps_three_levels_of_features():
    assert 192 * MiB == serving_buffers.deepstack_features(levels=3, tokens=8192, hidden_size=4096, element_bytes=2)


def test_selected_token_numbers_are_32_bits():
    assert 8192 * 2048 * 4 == serving_buffers.top_k_indices(tokens=8192, index_topk=2048)


def test_penalties_count_every_token_of_the_vocabulary():
    assert 4 * 256 * (128_256 + 4008) == serving_buffers.penalty_counts(max_num_seqs=256, vocab_size=128_256)


def test_token_ids_of_long_requests_are_pinned_on_the_host():
    assert 512 * MiB == serving_buffers.pinned_token_ids(max_num_seqs=1024, max_model_len=131_072)


def test_flashinfer_keeps_394_mib_and_8_for_every_wrapper():
    assert (394 + 8 * 53) * MiB == serving_buffers.flashinfer_wrappers(graphs=51)
    assert 410 * MiB == serving_buffers.flashinfer_wrappers(graphs=0)
