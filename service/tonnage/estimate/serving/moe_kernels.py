"""Which expert kernel a release runs on a card, and the buffers it keeps."""

from collections.abc import Mapping

from msgspec import Struct

from tonnage.estimate.serving.rank_shape import RankShape
from tonnage.estimate.serving.vllm_settings import Settings
from tonnage.laws import moe_workspace
from tonnage.spec.facts import WeightFormat

_FP8 = frozenset({"fp8", "fp8_block"})


class Kernel(Struct, frozen=True):
    """An expert kernel and the family of its weights."""

    name: str
    family: str
    """bf16, fp8, fp8_block, int8, wna16, nvfp4, mxfp4 or bitsandbytes."""

    @property
    def quantized(self) -> bool:
        """Whether expert weights are stored in fewer than 16 bits."""
        return self.family != "bf16"


_FAMILIES = {
    "plain": "bf16", "fp8": "fp8", "int8": "int8", "gptq": "wna16", "awq": "wna16", "compressed-tensors": "wna16",
    "nvfp4": "nvfp4", "mxfp4": "mxfp4", "bitsandbytes": "bitsandbytes",
}  # fmt: skip


def kernel_family(weight_format: WeightFormat) -> str:
    """Kernel family of a weight format: by its own family, else by its width."""
    if weight_format.kind == "plain":
        return "bf16"
    if weight_format.id.startswith("mxfp4"):
        return "mxfp4"
    if weight_format.family == "fp8" and weight_format.block_shape is not None:
        return "fp8_block"
    if weight_format.native_dtype == "int8":
        return "int8"
    return _FAMILIES.get(weight_format.family, "wna16")


def kernel(backends: Mapping[str, str], weight_format: WeightFormat, major: int, expert_parallel: bool) -> Kernel:
    """
    The default kernel.

    Args:
        backends: The release's table: "<family>:<major>[:ep]" or "<family>[:ep]".
        weight_format: Format of the experts.
        major: Compute capability, major number.
        expert_parallel: Whole experts are dealt out.

    Returns:
        Kernel.
    """
    family = kernel_family(weight_format)
    names = (f"{family}:{major}", family)
    keys = (*(f"{n}:ep" for n in names), *names) if expert_parallel else names
    return Kernel(next((backends[k] for k in keys if k in backends), "triton"), family)


def buffers(shape: RankShape, settings: Settings, data_parallel_size: int, kernel: Kernel) -> tuple[int, int]:
    """
    Workspace that stays, and what one pass adds.

    Args:
        shape: Widths of the rank.
        settings: vLLM's settings.
        data_parallel_size: Replicas whose tokens meet in expert-parallel layers. [unitless]
        kernel: Expert kernel.

    Returns:
        Persistent and transient size. [bytes]
    """
    experts, release, width = shape.experts, settings.release, settings.element_bytes
    if experts is None:
        return 0, 0
    tokens = settings.max_num_batched_tokens * (
        data_parallel_size if experts.local_experts < experts.num_experts else 1
    )
    if release.moe_chunk_tokens:
        tokens = min(tokens, release.moe_chunk_tokens)
    rows = tokens * experts.per_token
    sizes = {"rows": rows, "hidden_size": experts.hidden_size, "width": experts.width}
    copies = 0
    if kernel.family in _FP8 and kernel.name in ("triton", "deepgemm"):
        copies = moe_workspace.fp8_copies(tokens=tokens, **sizes)
    if kernel.name == "deepgemm":
        sizes["rows"] = moe_workspace.deepgemm_rows(rows=rows, local_experts=experts.local_experts)
    if kernel.family == "bitsandbytes":
        copies = moe_workspace.dequantized_experts(
            experts=experts.local_experts, hidden_size=experts.hidden_size, width=experts.width, element_bytes=width
        )
    if kernel.name == "flashinfer_cutlass":
        own = moe_workspace.flashinfer_cutlass(**sizes, fp8_blocks=kernel.family == "fp8_block")
        return (tokens * experts.hidden_size * width if release.moe_workspace_persistent else 0), own
    if kernel.name == "flashinfer_trtllm":
        own = moe_workspace.flashinfer_trtllm(
            **sizes,
            num_experts=experts.num_experts,
            family=kernel.family[:3] if kernel.family in _FP8 else kernel.family,
        )
        return 0, own
    if kernel.name == "gpt_oss_triton":
        return 0, rows * max(2 * experts.width, experts.hidden_size) * width
    if not release.moe_workspace_persistent:
        return 0, moe_workspace.triton_transient(**sizes, element_bytes=width) + copies
    return moe_workspace.triton(**sizes, element_bytes=width), copies
