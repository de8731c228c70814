from tonnage.laws import llama_cpp_cache as cache
from tonnage.units import KiB, MiB


def test_context_is_padded_to_256_cells():
    assert 65_536 == cache.context_cells(context_tokens=65_535)
    assert 4_096 == cache.context_cells(context_tokens=4_096)
    assert 64 == cache.context_cells(context_tokens=33, padding=32)


def test_unified_slots_share_one_stream_and_separate_ones_divide_it():
    assert 131_072 == cache.stream_cells(context_cells=131_072, sequences=4, unified=True)
    assert 32_768 == cache.stream_cells(context_cells=131_072, sequences=4, unified=False)
    assert 512 == cache.stream_cells(context_cells=1_024, sequences=3, unified=False)


def test_gpt_oss_120b_keeps_1024_window_cells_for_four_unified_slots():
    # public log: non-SWA 65536 cells, SWA 1024 cells
    assert 1_024 == cache.sliding_cells(
        stream_cells=65_536, window=128, sequences=4, unified=True, micro_batch_tokens=512
    )


def test_gpt_oss_120b_keeps_1280_window_cells_per_separate_stream():
    # ollama issue 16480: SWA 1280 cells, 2 streams
    assert 1_280 == cache.sliding_cells(
        stream_cells=131_072, window=128, sequences=2, unified=False, micro_batch_tokens=1_024
    )


def test_a_window_wider_than_the_context_costs_the_context():
    assert 4_096 == cache.sliding_cells(
        stream_cells=4_096, window=8_192, sequences=1, unified=True, micro_batch_tokens=512
    )


def test_gpt_oss_120b_caches_2304_and_36_mib():
    row = 8 * 64 * 2
    full = cache.layer(cells=65_536, streams=1, key_row_bytes=row, value_row_bytes=row)
    sliding = cache.layer(cells=1_024, streams=1, key_row_bytes=row, value_row_bytes=row)

    assert 2_304 * MiB == 18 * full
    assert 36 * MiB == 18 * sliding


def test_deepseek_before_mla_cached_80_kib_per_token_and_layer():
    assert 80 * KiB == cache.layer(cells=1, streams=1, key_row_bytes=128 * 192 * 2, value_row_bytes=128 * 128 * 2)


def test_recurrent_state_is_by_slot_and_snapshot():
    assert 4 * 100 == cache.recurrent(state_bytes=100, sequences=4)
    assert 3 * 100 == cache.recurrent(state_bytes=100, sequences=1, draft_tokens=2)


def test_staging_of_a_quantized_cache_is_the_293_mib_that_pr_23861_shows():
    # Qwen3.6-35B-A3B, 150000 cells, 2 KV heads of 256: peak 8275 - idle 7981 MiB
    size = cache.dequantized_staging(cells=150_016, num_key_value_heads=2, key_head_dim=256, value_head_dim=256)

    assert 293 == size // MiB
