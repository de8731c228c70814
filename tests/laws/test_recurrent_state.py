"""States per sequence against the shapes vLLM 0.32 reports on the meta device (bf16) and llama.cpp prints (fp32)."""

import pytest

from tonnage.errors import ContradictoryWorkload
from tonnage.laws import recurrent_state


def test_mamba1_of_mamba_2_8b():
    # shapes ((3, 5120), (5120, 16)), page 194,560 bytes
    assert 194_560 == recurrent_state.mamba1(inner_size=5120, state_size=16, conv_kernel=4, conv_bytes=2, state_bytes=2)


def test_mamba2_of_mamba2_2_7b():
    # shapes ((3, 5376), (80, 64, 128)), page 1,342,976 bytes
    assert 1_342_976 == recurrent_state.mamba2(
        inner_size=5120, heads=80, head_dim=64, state_size=128, n_groups=1, conv_kernel=4, conv_bytes=2, state_bytes=2
    )


def test_mamba2_of_granite_4_hybrid():
    # shapes ((3, 8704), (128, 64, 256)): 8192 + 2 x 1 x 256 channels
    assert 2 * (3 * 8704 + 128 * 64 * 256) == recurrent_state.mamba2(
        inner_size=8192, heads=128, head_dim=64, state_size=256, n_groups=1, conv_kernel=4, conv_bytes=2, state_bytes=2
    )


def test_mamba2_groups_that_ranks_do_not_divide_are_replicated():
    assert 8192 + 2 * 4 * 256 == recurrent_state.mamba2_convolution_channels(
        inner_size=8192, n_groups=1, state_size=256, tensor_parallel_size=4
    )
    assert 8192 + 2 * 8 * 128 == recurrent_state.mamba2_convolution_channels(
        inner_size=8192, n_groups=8, state_size=128, tensor_parallel_size=4
    )


QWEN3_NEXT = {"num_key_heads": 16, "key_head_dim": 128, "num_value_heads": 32, "value_head_dim": 128, "conv_kernel": 4}


@pytest.mark.parametrize(("ranks", "channels", "heads"), [(1, 8192, 32), (4, 2048, 8)])
def test_gated_delta_of_qwen3_next(ranks, channels, heads):
    # shapes ((3, 8192), (32, 128, 128)); at four ranks ((3, 2048), (8, 128, 128))
    assert 2 * (3 * channels + heads * 128 * 128) == recurrent_state.gated_delta(
        **QWEN3_NEXT, conv_bytes=2, state_bytes=2, tensor_parallel_size=ranks
    )


def test_gated_delta_of_qwen3_5_9b_prints_50_25_mib_in_llama_cpp():
    one = recurrent_state.gated_delta(**QWEN3_NEXT, conv_bytes=4, state_bytes=4)

    assert 24 * one == 50.25 * 1024 * 1024


def test_kda_of_kimi_linear_at_two_ranks_is_1_035_mib():
    # 32 heads of 128, kernel 4, conv in bf16 and state in fp32: block of 960 tokens in vllm-project/vllm issue 28228
    assert 3 * 3 * 2048 * 2 + 16 * 128 * 128 * 4 == recurrent_state.kda(
        heads=32, head_dim=128, conv_kernel=4, conv_bytes=2, state_bytes=4, tensor_parallel_size=2
    )


def test_lightning_keeps_a_square_matrix_per_head():
    assert 64 * 128 * 128 * 4 == recurrent_state.lightning(heads=64, head_dim=128, state_bytes=4)


def test_a_short_convolution_keeps_its_last_inputs():
    assert 2 * 2048 * 2 == recurrent_state.short_conv(channels=2048, conv_kernel=3, conv_bytes=2)


def test_a_layer_without_convolution_or_state_keeps_nothing():
    assert 0 == recurrent_state.convolution(channels=0, kernel=0, element_bytes=2)
    assert 0 == recurrent_state.matrix(heads=0, rows=0, columns=0, element_bytes=2)


def test_state_heads_that_do_not_divide_are_refused():
    with pytest.raises(ContradictoryWorkload, match="state heads"):
        recurrent_state.matrix(heads=24, rows=64, columns=128, element_bytes=2, tensor_parallel_size=5)
