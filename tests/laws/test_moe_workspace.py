import pytest

from tonnage.laws import moe_workspace
from tonnage.units import GiB


def test_qwen3_30b_keeps_half_a_gib_of_workspace():
    assert GiB // 2 == moe_workspace.triton(rows=8192 * 8, hidden_size=2048, width=768, element_bytes=2)


def test_mixtral_on_two_ranks_alternates_between_hidden_and_twice_its_width():
    rows = 8192 * 2

    assert rows * (7168 + 14_336) * 2 == moe_workspace.triton(rows=rows, hidden_size=4096, width=7168, element_bytes=2)


def test_early_passes_allocate_the_second_buffer_only_as_wide_as_an_expert():
    assert 100 * (512 + 128) * 2 == moe_workspace.triton_transient(
        rows=100, hidden_size=512, width=128, element_bytes=2
    )


def test_fp8_copies_carry_a_scale_for_128_elements():
    assert 128 * 132 == moe_workspace.fp8_copies(tokens=64, rows=64, hidden_size=128, width=128)


def test_deepgemm_rows_leave_every_expert_room_for_a_tile():
    assert 65_536 + 16_256 == moe_workspace.deepgemm_rows(rows=65_536, local_experts=128)


def test_flashinfer_cutlass_grows_with_the_wider_side():
    sizes = {"rows": 1000, "hidden_size": 2048, "fp8_blocks": False}

    assert 1000 * (2 * 2048 + 4096) == moe_workspace.flashinfer_cutlass(**sizes, width=512)
    assert 1000 * (2 * 4096 + 4 * 4096) == moe_workspace.flashinfer_cutlass(**sizes, width=4096)


def test_flashinfer_cutlass_quantizes_its_inputs_for_block_scales():
    plain = 1000 * (2 * 2048 + 4 * 512)

    assert plain + 1000 * 2048 * 132 // 128 == moe_workspace.flashinfer_cutlass(
        rows=1000, hidden_size=2048, width=512, fp8_blocks=True
    )


@pytest.mark.parametrize(("family", "row"), [("fp8", 3 * 512 + 2 * 2048), ("nvfp4", 288 + 4096), ("mxfp4", 2 * 2560)])
def test_trtllm_rows_are_padded_for_every_expert(family, row):
    padded = 1000 + 8 * 127

    assert padded * row == moe_workspace.flashinfer_trtllm(
        rows=1000, num_experts=8, hidden_size=2048, width=512, family=family
    )


def test_bitsandbytes_holds_three_matrices_of_every_expert():
    assert 3 * 8 * 64 * 32 * 2 == moe_workspace.dequantized_experts(
        experts=8, hidden_size=64, width=32, element_bytes=2
    )
