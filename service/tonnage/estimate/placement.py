"""
Valid parallel layouts of n GPUs for a model: what the engine supports and what divides.

`refusal` is the single rule book; `layouts` lists what it lets through, best first. Sizes of the parts
are the business of `laws.sharding`.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tonnage.estimate.identity_cache import remembered
from tonnage.spec.card import Placement
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Attention, Layer, Model, Recurrent


class Support(NamedTuple):
    """Kinds of parallelism an engine or framework runs."""

    tensor: bool = False
    pipeline: bool = False
    data: bool = True
    expert: bool = False
    context: bool = False
    source: str = ""


SUPPORT: dict[str, Support] = {
    "vllm": Support(True, True, True, True, source="vllm-project/vllm@0.19.0 vllm/config/parallel.py ParallelConfig"),
    "sglang": Support(True, True, True, True, source="sgl-project/sglang@0.5.8 python/sglang/srt/server_args.py"),
    "tensorrt-llm": Support(True, True, True, True, True, source="NVIDIA/TensorRT-LLM tensorrt_llm/mapping.py Mapping"),
    "tgi": Support(True, source="huggingface/text-generation-inference@v3.3.7 launcher --num-shard"),
    "llama.cpp": Support(pipeline=True, source="ggml-org/llama.cpp --split-mode layer (whole layers per device)"),
    "ollama": Support(pipeline=True, source="ollama/ollama layer split of llama.cpp"),
    "transformers": Support(pipeline=True, source="huggingface/transformers device_map='auto' (whole layers per device)"),
    "mlx": Support(data=False, source="ml-explore/mlx-lm: one machine, unified memory"),
    "T:megatron": Support(True, True, True, True, True, source="NVIDIA/Megatron-LM megatron/core/model_parallel_config.py"),
    "T:torchtitan": Support(True, True, True, True, True, source="pytorch/torchtitan torchtitan/config JobConfig.parallelism"),
    "T:litgpt": Support(tensor=True, source="Lightning-AI/litgpt litgpt/generate/tp.py, FSDP in finetune"),
    "T:torchtune": Support(tensor=True, source="pytorch/torchtune recipes/full_finetune_distributed.py"),
    "T:deepspeed": Support(pipeline=True, source="deepspeedai/DeepSpeed deepspeed/runtime/pipe, zero"),
    "T:axolotl": Support(True, False, True, False, True, source="axolotl-ai-cloud/axolotl docs/nd_parallelism.qmd"),
    "T:transformers": Support(pipeline=True, source="huggingface/transformers Trainer: DDP, FSDP, DeepSpeed; device_map='auto'"),
    "T:peft": Support(pipeline=True, source="huggingface/peft over accelerate: DDP, FSDP, DeepSpeed; device_map='auto'"),
    "T:trl": Support(pipeline=True, source="huggingface/trl over accelerate"),
    "T:llama-factory": Support(pipeline=True, source="hiyouga/LLaMA-Factory over accelerate"),
    "T:ms-swift": Support(pipeline=True, source="modelscope/ms-swift over accelerate"),
    "T:unsloth": Support(source="unslothai/unsloth: one GPU, or DDP"),
}  # fmt: skip
MOST_STAGES = 32
"""Pipeline stages of a layout that is looked for; a stated one may have more. [unitless]"""
ANY = Support(True, True, True, True, True)


def support(*, engine: str | None, framework: str | None) -> Support:
    """What the card's engine or framework runs; a card with neither leaves everything open."""
    if engine is not None:
        return SUPPORT.get(engine, ANY)
    return SUPPORT.get(f"T:{framework}", ANY) if framework is not None else ANY


def refusal(
    *,
    model: Model,
    placement: Placement,
    engine: str | None,
    framework: str | None,
    weight_format: WeightFormat | None = None,
) -> str | None:
    """
    Why a layout cannot run.

    Args:
        model: The architecture; with only a count known, nothing about division is.
        placement: The layout.
        engine: Serving engine, or None.
        framework: Training framework, or None.
        weight_format: Format whose groups must not be cut, or None.

    Returns:
        The first rule it breaks, in words; None when it may run.
    """
    kinds = support(engine=engine, framework=framework)
    who = engine or framework or "this card"
    for flag, size, word in (
        (kinds.tensor, placement.tensor_parallel_size, "tensor"),
        (kinds.pipeline, placement.pipeline_parallel_size, "pipeline"),
        (kinds.data, placement.data_parallel_size, "data"),
        (kinds.expert, placement.expert_parallel_size, "expert"),
        (kinds.context, placement.context_parallel_size, "context"),
    ):
        if size > 1 and not flag:
            return f"{who} does not run {word} parallelism"
    if not model.known:
        return None
    return (
        _pipeline_refusal(model, placement)
        or expert_refusal(model, placement)
        or _tensor_refusal(model, placement, weight_format)
    )


@remembered(1024)
def layouts(
    *,
    model: Model,
    gpus: int,
    fast_domain: int,
    engine: str | None,
    framework: str | None,
    weight_format: WeightFormat | None = None,
    expert_parallel: bool = False,
    context_parallel: bool = False,
) -> tuple[Placement, ...]:
    """
    Layouts that use all GPUs and that nothing refuses, best first.

    Args:
        model: The architecture.
        gpus: GPUs to use. [unitless]
        fast_domain: GPUs that one tensor-parallel group may span. [unitless]
        engine: Serving engine, or None.
        framework: Training framework, or None.
        weight_format: Format whose groups must not be cut.
        expert_parallel: Deal whole experts out over the tensor- and data-parallel ranks.
        context_parallel: Also cut the sequence.

    Returns:
        Placements without a GPU: serving prefers wide tensor parallelism, then stages, then replicas;
        training prefers data parallelism, then tensor parallelism, then stages.
    """
    kinds = support(engine=engine, framework=framework)
    found = [
        p
        for p in _shapes(gpus, fast_domain, kinds, expert_parallel and _has_experts(model), context_parallel)
        if refusal(model=model, placement=p, engine=engine, framework=framework, weight_format=weight_format) is None
    ]
    return tuple(sorted(found, key=_training_order if framework is not None else _serving_order))


def _serving_order(p: Placement) -> tuple[int, ...]:
    return p.data_parallel_size, p.pipeline_parallel_size, p.context_parallel_size, -p.tensor_parallel_size


def _training_order(p: Placement) -> tuple[int, ...]:
    return p.pipeline_parallel_size, p.tensor_parallel_size, p.context_parallel_size, -p.data_parallel_size


def _shapes(gpus: int, fast_domain: int, kinds: Support, experts: bool, context: bool) -> Iterator[Placement]:
    for tensor, pipeline, cut in _factors(gpus, context and kinds.context):
        data = gpus // (tensor * pipeline * cut)
        if tensor > fast_domain or pipeline > MOST_STAGES:
            continue
        if (tensor > 1 > kinds.tensor) or (pipeline > 1 > kinds.pipeline) or (data > 1 > kinds.data):
            continue
        yield Placement(
            tensor_parallel_size=tensor,
            pipeline_parallel_size=pipeline,
            data_parallel_size=data,
            context_parallel_size=cut,
            expert_parallel_size=tensor * data if experts and kinds.expert else 1,
        )


@lru_cache(maxsize=512)
def _factors(gpus: int, context: bool) -> tuple[tuple[int, int, int], ...]:
    """Ordered (tensor, pipeline, context) triples whose product divides the GPUs."""
    parts = [n for n in range(1, gpus + 1) if gpus % n == 0]
    cuts = parts if context else [1]
    return tuple((t, p, c) for t in parts for p in parts for c in cuts if gpus % (t * p * c) == 0)


def _has_experts(model: Model) -> bool:
    return any(g.layer.moe is not None for g in model.layers)


def _pipeline_refusal(model: Model, placement: Placement) -> str | None:
    stages, layers = placement.pipeline_parallel_size, model.num_hidden_layers
    if stages == 1:
        return None
    if any(g.layer.role == "encoder" for g in model.layers):
        return "a model with an encoder is not cut into pipeline stages"
    return f"{stages} pipeline stages for {layers} layers" if stages > layers else None


def expert_refusal(model: Model, placement: Placement) -> str | None:
    """Why whole experts cannot be dealt out so, None when they can; with only a count known, ranks are all that is looked at."""
    size = placement.expert_parallel_size
    if size == 1:
        return None
    if model.known and not _has_experts(model):
        return "expert parallelism without routed experts"
    ranks = placement.tensor_parallel_size * placement.data_parallel_size * placement.context_parallel_size
    if ranks % size:
        return f"expert_parallel_size {size} does not divide the {ranks} tensor- and data-parallel ranks of a stage"
    fewest = min((g.layer.moe.num_experts for g in model.layers if g.layer.moe is not None), default=size)
    return f"expert_parallel_size {size} is above the {fewest} experts" if size > fewest else None


def _tensor_refusal(model: Model, placement: Placement, weight_format: WeightFormat | None) -> str | None:
    size = placement.tensor_parallel_size
    if size == 1:
        return None
    whole_experts = placement.expert_parallel_size > 1
    for group in model.layers:
        if reason := _layer_refusal(group.layer, size, weight_format, whole_experts):
            return reason
    return None


def _layer_refusal(layer: Layer, size: int, weight_format: WeightFormat | None, whole_experts: bool) -> str | None:
    for attention in (layer.attention, layer.cross_attention):
        if attention is not None and (reason := _attention_refusal(attention, size)):
            return reason
    if layer.recurrent is not None and (reason := _recurrent_refusal(layer.recurrent, size)):
        return reason
    if layer.mlp is not None and (
        reason := _width_refusal("intermediate_size", layer.mlp.intermediate_size, size, weight_format)
    ):
        return reason
    if layer.moe is not None and not whole_experts:
        return _width_refusal("moe_intermediate_size", layer.moe.moe_intermediate_size, size, weight_format)
    return None


def _attention_refusal(attention: Attention, size: int) -> str | None:
    heads, kv_heads = attention.num_attention_heads, attention.num_key_value_heads
    if heads % size:
        return f"num_attention_heads ({heads}) is not divisible by tensor_parallel_size {size}"
    if attention.kind != "mla" and max(kv_heads, size) % max(1, min(kv_heads, size)):
        return f"num_key_value_heads ({kv_heads}) and tensor_parallel_size {size}: neither divides the other"
    return None


def _recurrent_refusal(recurrent: Recurrent, size: int) -> str | None:
    heads = recurrent.num_value_heads or recurrent.state_heads
    if heads > 1 and heads % size:
        return f"recurrent heads ({heads}) are not divisible by tensor_parallel_size {size}"
    if recurrent.num_key_heads and recurrent.num_key_heads % size:
        return f"recurrent key heads ({recurrent.num_key_heads}) are not divisible by tensor_parallel_size {size}"
    return None


def _width_refusal(name: str, width: int, size: int, weight_format: WeightFormat | None) -> str | None:
    if width % size:
        return f"{name} ({width}) is not divisible by tensor_parallel_size {size}"
    grain = _grain(weight_format)
    if grain > 1 and (width // size) % grain:
        return (
            f"{name} / {size} = {width // size} cuts the {grain}-element groups of {weight_format.id}"
            if weight_format is not None
            else None
        )
    return None


def _grain(weight_format: WeightFormat | None) -> int:
    """Elements of a row-parallel input that stay together; flat blocks and padded expert formats may be cut. [elements]"""
    if (
        weight_format is None
        or weight_format.kind != "linear"
        or weight_format.experts_only
        or weight_format.nested_block
    ):
        return 1
    if weight_format.block_shape is not None:
        return weight_format.block_shape[1]
    return max(1, weight_format.group_size or 1)
