"""
Buffers of fused expert kernels: what stays allocated (workspace) and what one pass adds (transient).

`rows` is tokens x experts per token, `width` the experts' width on this rank, `hidden` the width they work on.
"""

from tonnage.units import round_up


def triton(*, rows: int, hidden_size: int, width: int, element_bytes: int) -> int:
    """
    Workspace of the modular Triton, CUTLASS fp8 and Marlin experts: the two buffers their passes alternate between.

    Args:
        rows: Tokens times experts per token. [unitless]
        hidden_size: Width the experts work on. [elements]
        width: Width of an expert on this rank. [elements]
        element_bytes: dtype of the activations. [bytes]

    Returns:
        Persistent size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/fused_moe/modular_kernel.py _allocate_buffers;
        measured: tests/measured/serving_vllm.json#vllm019-qwen3-30b-a3b
    """
    return rows * (max(width, hidden_size) + max(2 * width, hidden_size)) * element_bytes


def triton_transient(*, rows: int, hidden_size: int, width: int, element_bytes: int) -> int:
    """
    What the Triton experts allocated per pass before there was a persistent workspace.

    Args:
        rows: Tokens times experts per token. [unitless]
        hidden_size: Width the experts work on. [elements]
        width: Width of an expert on this rank. [elements]
        element_bytes: dtype of the activations. [bytes]

    Returns:
        Transient size. [bytes]

    Source:
        vllm-project/vllm@0.11.0 vllm/model_executor/layers/fused_moe/fused_moe.py fused_experts_impl (cache13,
        intermediate_cache2)
    """
    return rows * (max(2 * width, hidden_size) + width) * element_bytes


def fp8_copies(*, tokens: int, rows: int, hidden_size: int, width: int) -> int:
    """
    Quantized inputs of both expert products with their block scales.

    Args:
        tokens: Batch. [tokens]
        rows: Tokens times experts per token. [unitless]
        hidden_size: Width the experts work on. [elements]
        width: Width of an expert on this rank. [elements]

    Returns:
        Transient size: one byte per element and 4 per 128. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/fused_moe/utils.py moe_kernel_quantize_input
        (_fp8_quantize, block 128)
    """
    elements = tokens * hidden_size + rows * width
    return elements + elements // 128 * 4


def deepgemm_rows(*, rows: int, local_experts: int, tile: int = 128) -> int:
    """
    Rows once every expert's part is padded to a tile.

    Args:
        rows: Tokens times experts per token. [unitless]
        local_experts: Experts of this rank. [unitless]
        tile: Alignment of the grouped product. [unitless]

    Returns:
        Rows. [unitless]

    Source:
        vllm-project/vllm@0.13.0 vllm/model_executor/layers/fused_moe/deep_gemm_utils.py compute_aligned_M
    """
    return round_up(rows + local_experts * (tile - 1), tile)


def flashinfer_cutlass(*, rows: int, hidden_size: int, width: int, fp8_blocks: bool) -> int:
    """
    Device workspace of FlashInfer's CUTLASS experts, allocated through torch at every call.

    Args:
        rows: Tokens times experts per token. [unitless]
        hidden_size: Width the experts work on. [elements]
        width: Width of an expert on this rank. [elements]
        fp8_blocks: Block-scaled fp8 weights.

    Returns:
        Transient size. [bytes]

    Source:
        flashinfer-ai/flashinfer@0.6.6 csrc/fused_moe/cutlass_backend/cutlass_fused_moe_kernels.cuh
        getWorkspaceDeviceBufferSizes
    """
    wider = max(hidden_size, width)
    if fp8_blocks:
        return rows * (2 * wider + 4 * width) + rows * wider * 132 // 128
    return rows * (2 * wider + max(4 * width, 2 * hidden_size))


def flashinfer_trtllm(
    *, rows: int, num_experts: int, hidden_size: int, width: int, family: str, tile: int = 128
) -> int:
    """
    Buffers of FlashInfer's TensorRT-LLM experts.

    Args:
        rows: Tokens times experts per token. [unitless]
        num_experts: Experts the router sees. [unitless]
        hidden_size: Width the experts work on. [elements]
        width: Width of an expert on this rank. [elements]
        family: Weight format: fp8, nvfp4, or mxfp4 and bf16 with 16-bit activations.
        tile: Rows an expert is padded to. [unitless]

    Returns:
        Transient size. [bytes]

    Source:
        flashinfer-ai/flashinfer@0.6.6 csrc/trtllm_fused_moe_kernel_launcher.cu
    """
    padded = rows + num_experts * (tile - 1)
    if family == "fp8":
        return padded * (3 * width + 2 * hidden_size)
    if family == "nvfp4":
        return padded * (width * 9 // 16 + 2 * hidden_size)
    return padded * 2 * (width + hidden_size)


def dequantized_experts(*, experts: int, hidden_size: int, width: int, element_bytes: int) -> int:
    """
    Both matrices of every expert of a layer in 16 bit, as bitsandbytes' experts run.

    Args:
        experts: Experts of this rank. [unitless]
        hidden_size: Width the experts work on. [elements]
        width: Width of an expert on this rank. [elements]
        element_bytes: dtype of the activations. [bytes]

    Returns:
        Transient size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/quantization/bitsandbytes.py
        BitsAndBytesMoEMethod._apply_bnb_dequant
    """
    return 3 * experts * hidden_size * width * element_bytes
