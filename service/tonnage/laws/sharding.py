"""
Who holds how much: tensors over tensor-parallel ranks, layers over pipeline stages, experts over ranks.

A cut that the engines refuse is refused here with the reason; sizes are those of the fullest rank.
"""

from collections.abc import Sequence

from tonnage.errors import ContradictoryWorkload
from tonnage.units import ceil_div


def even_part(*, elements: int, tensor_parallel_size: int, name: str = "dimension") -> int:
    """
    Part of a dimension that must divide.

    Args:
        elements: Length of the dimension. [elements]
        tensor_parallel_size: Ranks. [unitless]
        name: What the dimension is called in the refusal.

    Returns:
        Length on each rank. [elements]

    Raises:
        ContradictoryWorkload: The dimension does not divide.

    Source:
        vllm-project/vllm@0.19.0 vllm/distributed/utils.py divide
    """
    if elements % tensor_parallel_size:
        raise ContradictoryWorkload(
            f"{name} ({elements}) is not divisible by tensor_parallel_size {tensor_parallel_size}",
            pointer="/placement/tensor_parallel_size",
        )
    return elements // tensor_parallel_size


def kv_heads(*, num_key_value_heads: int, tensor_parallel_size: int) -> int:
    """
    KV heads of one rank; fewer heads than ranks are replicated.

    Args:
        num_key_value_heads: KV heads of the layer. [heads]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        Heads on each rank, at least one. [heads]

    Raises:
        ContradictoryWorkload: Neither divides the other.

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/linear.py QKVParallelLinear.__init__
    """
    larger, smaller = max(num_key_value_heads, tensor_parallel_size), min(num_key_value_heads, tensor_parallel_size)
    if smaller and larger % smaller:
        raise ContradictoryWorkload(
            f"num_key_value_heads ({num_key_value_heads}) and tensor_parallel_size {tensor_parallel_size}: "
            "neither divides the other",
            pointer="/placement/tensor_parallel_size",
        )
    return max(1, num_key_value_heads // tensor_parallel_size)


def local_experts(*, num_experts: int, expert_parallel_size: int) -> int:
    """
    Experts of the fullest rank when whole experts are dealt out.

    Args:
        num_experts: Routed experts of the layer. [unitless]
        expert_parallel_size: Ranks that share them. [unitless]

    Returns:
        Experts on the fullest rank. [unitless]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/fused_moe/layer.py determine_expert_map
        (the first ranks take the remainder)
    """
    return ceil_div(num_experts, expert_parallel_size)


def layers_by_stage(*, num_layers: int, pipeline_parallel_size: int, surplus: str = "late") -> tuple[range, ...]:
    """
    Consecutive layers of every pipeline stage.

    Args:
        num_layers: Decoder layers. [layers]
        pipeline_parallel_size: Stages. [unitless]
        surplus: Who takes what does not divide: "late" (later stages, the very last one last: vLLM 0.8.0 and newer),
            "last" (the last stage takes all of it: vLLM before 0.8.0, SGLang before 0.5.6), "first" (the first stages:
            SGLang 0.5.6 and newer, TensorRT-LLM), "refuse" (Megatron).

    Returns:
        Layer numbers by stage. [layers]

    Raises:
        ContradictoryWorkload: More stages than layers, or a surplus that the framework refuses.

    Source:
        vllm-project/vllm@0.19.0 vllm/distributed/utils.py get_pp_indices (late since pull 13839, 2025-02-26);
        sgl-project/sglang pull 13282 (2025-11-17); NVIDIA/Megatron-LM@core_v0.12
        megatron/core/transformer/transformer_block.py get_num_layers_to_build
    """
    if num_layers < pipeline_parallel_size:
        raise ContradictoryWorkload(
            f"{num_layers} layers cannot fill pipeline_parallel_size {pipeline_parallel_size} stages",
            pointer="/placement/pipeline_parallel_size",
        )
    counts = _stage_counts(num_layers, pipeline_parallel_size, surplus)
    starts = [sum(counts[:stage]) for stage in range(pipeline_parallel_size)]
    return tuple(range(start, start + count) for start, count in zip(starts, counts, strict=True))


def _stage_counts(num_layers: int, stages: int, surplus: str) -> Sequence[int]:
    counts = [num_layers // stages] * stages
    remaining = num_layers % stages
    if remaining and surplus == "refuse":
        raise ContradictoryWorkload(
            f"{num_layers} layers are not divisible by pipeline_parallel_size {stages}",
            pointer="/placement/pipeline_parallel_size",
        )
    if surplus == "last":
        counts[-1] += remaining
    elif surplus == "first":
        for stage in range(remaining):
            counts[stage] += 1
    else:
        for back in range(2, remaining + 2):
            counts[-back] += 1
    return counts
