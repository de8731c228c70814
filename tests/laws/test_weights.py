"""Each storage law against its source's own numbers, its limits, and what conserves."""

import pytest

from tonnage.laws import weights

BITSANDBYTES_STORED = [
    # Bytes that bitsandbytes 0.49 really stored for random matrices: shape, plain nf4, double quantization.
    ((64, 64), 2_368, 3_208),
    ((256, 1024), 147_520, 136_324),
    ((1000, 96), 54_064, 50_616),
    ((4096, 1024), 2_359_360, 2_164_804),
    ((2048, 8192), 9_437_248, 8_655_940),
]


def test_a_q4_k_block_of_256_weights_takes_144_bytes():
    assert 144 == weights.blocks(elements=256, block_elements=256, block_bytes=144)


def test_the_last_block_is_whole():
    assert 2 * 34 == weights.blocks(elements=33, block_elements=32, block_bytes=34)


def test_nothing_takes_nothing():
    assert 0 == weights.blocks(elements=0, block_elements=32, block_bytes=34)


def test_every_row_of_a_ggml_matrix_is_packed_for_itself():
    assert 3 * 2 * 18 == weights.packed_rows(out_features=3, in_features=33, block_elements=32, block_bytes=18)


def test_packed_rows_equal_blocks_of_the_whole_when_rows_divide():
    whole = weights.blocks(elements=4096 * 4096, block_elements=256, block_bytes=144)

    assert whole == weights.packed_rows(out_features=4096, in_features=4096, block_elements=256, block_bytes=144)


def test_gptq_scales_and_zeros_of_groups_of_128_are_20_bits_a_group():
    assert 14336 * 32 * 20 // 8 == weights.group_scales(
        out_features=14336, in_features=4096, group_size=128, scale_bits=20
    )


def test_a_group_size_of_zero_is_one_scale_per_output_channel():
    assert 4096 * 4 == weights.group_scales(out_features=4096, in_features=14336, group_size=0, scale_bits=32)


def test_a_negative_group_size_is_one_scale_per_tensor():
    assert 4 == weights.group_scales(out_features=4096, in_features=14336, group_size=-1, scale_bits=32)


def test_groups_that_do_not_divide_round_up():
    assert 2 * 2 == weights.group_scales(out_features=1, in_features=129, group_size=128, scale_bits=16)


def test_deepseek_fp8_keeps_one_scale_per_tile_of_128_by_128():
    assert 56 * 144 * 4 == weights.tile_scales(
        out_features=7168, in_features=18432, tile_out=128, tile_in=128, scale_bytes=4
    )


def test_a_tile_that_sticks_out_counts_whole():
    assert 5 * 56 * 4 == weights.tile_scales(
        out_features=576, in_features=7168, tile_out=128, tile_in=128, scale_bytes=4
    )


@pytest.mark.parametrize(("shape", "plain", "double"), BITSANDBYTES_STORED)
def test_codes_and_bitsandbytes_state_are_what_the_library_stores(shape, plain, double):
    elements = shape[0] * shape[1]
    codes = weights.blocks(elements=elements, block_elements=2, block_bytes=1)

    assert plain == codes + weights.bitsandbytes_state(elements=elements)
    assert double == codes + weights.bitsandbytes_state(elements=elements, nested_block=256)


def test_llama_3_vocabulary_needs_no_padding_and_gpt2s_does():
    assert 128_256 == weights.padded_vocabulary(vocab_size=128_256)
    assert 50_304 == weights.padded_vocabulary(vocab_size=50_257)


def test_megatron_pads_to_a_multiple_for_every_rank():
    assert 51_200 == weights.padded_vocabulary(vocab_size=50_257, multiple=128 * 8, tensor_parallel_size=8)


def test_without_a_multiple_the_vocabulary_stays_as_it_is():
    assert 50_257 == weights.padded_vocabulary(vocab_size=50_257, multiple=1)


def test_a_rank_holds_its_even_part_of_a_known_file():
    assert 1_250_000 == weights.part_of_file(file_bytes=5_000_003, ranks=4)


def test_a_bare_count_in_an_average_width_is_cut_upwards():
    assert 1_250_001 == weights.average(parameters_bytes=5_000_003, ranks=4)
