"""Caches by kind of attention, against the numbers their sources print."""

import pytest

from tonnage.laws import kv_cache


def test_a_bf16_row_takes_two_bytes_an_element():
    assert 256 == kv_cache.row(elements=128, block_elements=1, block_bytes=2)


def test_a_q8_0_row_takes_34_bytes_for_32_elements():
    assert 4 * 34 == kv_cache.row(elements=128, block_elements=32, block_bytes=34)


def test_a_row_with_scale_and_zero_carries_them_per_head():
    assert 128 + 4 == kv_cache.row(elements=128, block_elements=1, block_bytes=1, per_head_bytes=4)


def test_llama_3_1_8b_keeps_4096_bytes_a_token_and_layer():
    assert 4096 == kv_cache.full_attention(num_key_value_heads=8, key_bytes=256, value_bytes=256)


def test_four_ranks_keep_a_quarter_each():
    assert 1024 == kv_cache.full_attention(
        num_key_value_heads=8, key_bytes=256, value_bytes=256, tensor_parallel_size=4
    )


def test_fewer_heads_than_ranks_are_replicated():
    assert 512 == kv_cache.full_attention(
        num_key_value_heads=8, key_bytes=256, value_bytes=256, tensor_parallel_size=16
    )


def test_deepseek_v3_keeps_a_latent_of_512_and_a_rotary_key_of_64():
    assert 1152 == kv_cache.mla(latent_bytes=2 * (512 + 64))


def test_the_v3_2_indexer_adds_132_bytes():
    assert 132 == kv_cache.index_key(index_head_dim=128)
    assert 1152 + 132 == kv_cache.mla(latent_bytes=1152, index_key_bytes=kv_cache.index_key(index_head_dim=128))


@pytest.mark.parametrize(("tokens", "kept"), [(0, 0), (127, 127), (128, 128), (32_768, 128)])
def test_sliding_window_tokens_stop_at_the_window(tokens, kept):
    assert kept == kv_cache.sliding_window_tokens(tokens=tokens, window=128)


@pytest.mark.parametrize(("tokens", "kept"), [(0, 0), (8192, 8192), (1_000_000, 8192)])
def test_chunked_local_tokens_stop_at_the_chunk(tokens, kept):
    assert kept == kv_cache.chunked_local_tokens(tokens=tokens, chunk=8192)


def test_cross_attention_tokens_are_the_encoders_whatever_the_decoder_does():
    assert 1500 == kv_cache.cross_attention_tokens(encoder_tokens=1500)


@pytest.mark.parametrize(("tokens", "ratio", "entries"), [(0, 4, 0), (1, 4, 1), (128, 128, 1), (129, 128, 2)])
def test_compressed_tokens_count_the_open_group(tokens, ratio, entries):
    assert entries == kv_cache.compressed_tokens(tokens=tokens, compress_ratio=ratio)


@pytest.mark.parametrize(
    ("width", "ratio", "overlap", "size"), [(512, 4, 2, 65_536), (512, 128, 1, 524_288), (128, 4, 2, 16_384)]
)
def test_compressor_state_is_what_llama_cpp_allocates_per_layer(width, ratio, overlap, size):
    assert size == kv_cache.compressor_state(width=width, compress_ratio=ratio, overlap=overlap)
