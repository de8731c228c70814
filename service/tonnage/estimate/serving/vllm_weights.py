"""Weights as vLLM loads them: its padding and replication rules, the buffers beside them, adapter slots."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from tonnage.estimate.caches import decoder_groups
from tonnage.estimate.fused_projections import with_whole_projections
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.resident import resident_tensors, unsplit_remainders
from tonnage.estimate.serving.moe_kernels import Kernel
from tonnage.estimate.serving.vllm_settings import MARLIN_SINCE, Settings
from tonnage.estimate.weights import StageWeights, WeightRules, stage_weights
from tonnage.laws import serving_buffers
from tonnage.spec.card import Placement, ServingLora
from tonnage.spec.engines.vllm import Vllm as Release
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Attention, Model, Moe, Tensor
from tonnage.spec.workload import Workload
from tonnage.units import ceil_div

_VOCABULARY_MULTIPLE = 64


class Padding(Struct, frozen=True):
    """What an expert kernel pads matrices to. [elements]"""

    hidden: int = 1
    intermediate: int = 1
    values: int = 1
    """Columns of the packed values, their scales left as they are."""


_MXFP4_PADDING = {
    "gpt_oss_triton": Padding(intermediate=64, values=256),
    "marlin": Padding(hidden=256, intermediate=128),
    "flashinfer_cutlass": Padding(hidden=128, intermediate=128),
}
_SHARDED_MXFP4 = Padding(intermediate=128, values=256)
"""Of the Triton layout when experts are cut; fitted to one start-up log, no rule found in the source."""
_STACKED_MROPE = 4
"""Times the positions that a multimodal rotary table reserves in later releases."""
_TOWERS = frozenset({"vision", "projector"})
_DRAFTS = frozenset({"mtp"})
_MACHETE = 9
"""Major compute capability of the GPUs that Machete is written for."""


@remembered()
def weight_rules(
    release: Release,
    *,
    marlin: bool,
    images: bool,
    encoder_replicated: bool,
    mxfp4_backend: str,
    sharded: bool,
    machete: bool = False,
) -> WeightRules:
    """
    Rules of a release; one object each, because results are kept by it.

    Args:
        release: vLLM's release.
        marlin: The card repacks group formats for Marlin, which drops symmetric zeros and the group index.
        images: The vision tower is loaded.
        encoder_replicated: Every rank holds the whole tower.
        mxfp4_backend: Kernel of MXFP4 experts, "" for other formats.
        sharded: Experts are cut.
        machete: The GPU has the kernel that newer releases prefer for group formats.

    Returns:
        Rules for `estimate.weights`.
    """
    padding = _MXFP4_PADDING.get(mxfp4_backend, Padding())
    if mxfp4_backend == "gpt_oss_triton" and sharded:
        padding = _SHARDED_MXFP4
    if mxfp4_backend == "flashinfer_trtllm":
        padding = Padding(hidden=256, intermediate=release.mxfp4_trtllm_multiple)
    return WeightRules(
        vocabulary_multiple=_VOCABULARY_MULTIPLE,
        replicated=_TOWERS if encoder_replicated else frozenset(),
        absent=_DRAFTS if images else _DRAFTS | _TOWERS,
        expert_hidden_multiple=padding.hidden,
        expert_intermediate_multiple=padding.intermediate,
        expert_values_multiple=padding.values,
        without_zeros=frozenset({"gptq"}) if marlin else frozenset(),
        scaled_zeros=frozenset({"awq"}) if machete and release.awq_scaled_zeros else frozenset(),
        nested_scales_expanded=release.expands_bitsandbytes_scales,
        merges=True,
        stacks_experts=True,
    )


class Loaded(Struct, frozen=True, kw_only=True):
    """Weights of the stages as the allocator counts them."""

    stages: tuple[StageWeights, ...]
    remainders: tuple[int, ...]
    """What the allocator counts beyond the tensors' own sizes, by stage. [bytes]"""


def loaded_weights(workload: Workload, settings: Settings, kernel: Kernel) -> Loaded:
    """
    Weights of every pipeline stage.

    Args:
        workload: Resolved card.
        settings: vLLM's settings.
        kernel: Expert kernel.

    Returns:
        Weights, and the allocator's remainders.
    """
    placement, weight_format = workload.placement, _as_loaded(workload)
    experts = expert_ranks(placement, workload)
    expert_cut = 1 if experts > 1 else placement.tensor_parallel_size
    rules = weight_rules(
        settings.release,
        marlin=settings.major >= MARLIN_SINCE,
        images=settings.images,
        encoder_replicated=settings.encoder_replicated,
        mxfp4_backend=kernel.name if kernel.family == "mxfp4" else "",
        sharded=expert_cut > 1,
        machete=settings.major == _MACHETE,
    )
    return _loaded(
        with_whole_projections(workload.model),
        weight_format,
        workload.formats,
        rules,
        settings.dtype,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        expert_parallel_size=experts,
        expert_tensor_parallel_size=expert_cut,
    )


@remembered()
def _loaded(
    model: Model,
    weight_format: WeightFormat,
    formats: Mapping[str, WeightFormat],
    rules: WeightRules,
    dtype: str,
    **cut: int,
) -> Loaded:
    stages = stage_weights(model, weight_format, formats, **cut, rules=rules, dtype=dtype)
    if not model.known or weight_format.kind == "file-mix":
        return Loaded(stages=stages, remainders=(0,) * len(stages))
    tensors = resident_tensors(model, weight_format, formats, **cut, rules=rules, dtype=dtype)
    return Loaded(stages=stages, remainders=tuple(unsplit_remainders(stage) for stage in tensors))


def _as_loaded(workload: Workload) -> WeightFormat:
    """Weights of bitsandbytes are always double quantized at load; later releases undo it."""
    weight_format = workload.weight_format
    if weight_format.family != "bitsandbytes" or weight_format.block_elements == 1:
        return weight_format
    return workload.formats.get(f"{weight_format.id.removesuffix('-dq')}-dq", weight_format)


def expert_ranks(placement: Placement, workload: Workload) -> int:
    """Ranks that whole experts are dealt out over; 1 when experts are cut instead. [unitless]"""
    if placement.expert_parallel_size > 1 or getattr(workload.serving, "enable_expert_parallel", False):
        return placement.tensor_parallel_size * placement.data_parallel_size
    return 1


class RotaryTables(NamedTuple):
    """How a release builds rotary tables."""

    local_model_types: tuple[str, ...]
    """Models whose windows have a table of their own."""
    mrope_factor: int
    """Times the positions that a multimodal table reserves. [unitless]"""
    mrope_model_types: tuple[str, ...]
    """Models whose table is multimodal whether or not their configuration says so."""


@remembered()
def buffers(
    model: Model,
    layers: tuple[int, ...],
    first: bool,
    *,
    tensor_parallel_size: int,
    element_bytes: int,
    tokens: int,
    images: bool,
    rope: RotaryTables,
    absorbed_bytes: int,
) -> int:
    """
    Tensors beside the weights on one rank of a stage.

    Args:
        model: Architecture.
        layers: Decoder layers of the stage.
        first: The stage holds the embedding.
        tensor_parallel_size: Ranks. [unitless]
        element_bytes: dtype of the model. [bytes]
        tokens: max_num_batched_tokens. [tokens]
        images: The vision tower is loaded.
        rope: How the release builds its rotary tables.
        absorbed_bytes: Width of the products MLA keeps of its projections, 0 where it keeps copies. [bytes]

    Returns:
        Size. [bytes]
    """
    groups = decoder_groups(model, layers or None)
    attentions = [(group.layer.attention, count) for group, count in groups if group.layer.attention is not None]
    rotary = {key: size for a, _ in attentions for key, size in _rotary(model, a, element_bytes, rope)}
    absorbed = sum(
        count * _absorbed(model, a, tensor_parallel_size, element_bytes, absorbed_bytes) for a, count in attentions
    )
    topk = max((a.index_topk or 0 for a, _ in attentions), default=0)
    indices = serving_buffers.top_k_indices(tokens=tokens, index_topk=topk)
    return (
        sum(rotary.values())
        + absorbed
        + indices
        + (_deepstack(model, tokens, element_bytes) if images and first else 0)
    )


def _rotary(
    model: Model, attention: Attention, element_bytes: int, rope: RotaryTables
) -> Iterator[tuple[tuple[str, int], int]]:
    """One table per distinct rotary embedding: windows have their own where the model says so."""
    if attention.rotary not in ("rope", "partial") or not attention.rotary_dim:
        return
    local = attention.kind == "sliding" and model.model_type in rope.local_model_types
    positions, width = rotary_positions(model, local=local, stacked=rope.mrope_factor), element_bytes
    if model.rope_scaling is None and model.model_type in rope.mrope_model_types:
        positions *= rope.mrope_factor
    if attention.kind == "mla" and (model.rope_scaling or {}).get("factor"):
        width = 4
    size = serving_buffers.rotary_cache(positions=positions, rotary_dim=attention.rotary_dim, element_bytes=width)
    yield ("local" if local else "compressed" if attention.compress_ratio else "global", attention.rotary_dim), size


def rotary_positions(model: Model, *, local: bool, stacked: int = _STACKED_MROPE) -> int:
    """
    Positions of a rotary table.

    Args:
        model: Architecture.
        local: The table of sliding-window layers, which is not stretched.
        stacked: Times the positions that a multimodal table reserves. [unitless]

    Returns:
        Positions. [tokens]
    """
    positions = model.max_position_embeddings
    scaling = {} if local else model.rope_scaling or {}
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor") or 1
    if "mrope_section" in scaling:
        return positions * stacked
    if kind in ("yarn", "deepseek_yarn"):
        return int((scaling.get("original_max_position_embeddings") or positions) * factor)
    if kind in ("longrope", "su"):
        return positions + int(scaling.get("original_max_position_embeddings") or _longrope_original(model))
    return int(positions * factor) if kind in ("linear", "dynamic") else positions


def _longrope_original(model: Model) -> int:
    return int(model.config.get("original_max_position_embeddings") or 0)


def _absorbed(model: Model, attention: Attention, tensor_parallel_size: int, element_bytes: int, absorbed: int) -> int:
    if attention.kind != "mla":
        return 0
    if absorbed:
        return serving_buffers.absorbed_matrices(
            query_size=attention.q_lora_rank or model.hidden_size,
            hidden_size=model.hidden_size,
            kv_lora_rank=attention.kv_lora_rank or 0,
            heads=attention.num_attention_heads // tensor_parallel_size,
            element_bytes=absorbed,
        )
    return serving_buffers.absorbed_projections(
        kv_lora_rank=attention.kv_lora_rank or 0,
        heads=attention.num_attention_heads // tensor_parallel_size,
        qk_nope_head_dim=attention.qk_nope_head_dim or 0,
        v_head_dim=attention.v_head_dim,
        element_bytes=element_bytes,
    )


def _deepstack(model: Model, tokens: int, element_bytes: int) -> int:
    levels = model.vision.deepstack_levels if model.vision is not None else 0
    return serving_buffers.deepstack_features(
        levels=levels, tokens=tokens, hidden_size=model.hidden_size, element_bytes=element_bytes
    )


def lora_slots(
    model: Model, lora: ServingLora, layers: tuple[int, ...], settings: Settings, *, ranks: int, expert_ranks: int
) -> int:
    """
    Adapter slots of one rank of a stage.

    Args:
        model: Architecture.
        lora: Slots asked for.
        layers: Decoder layers of the stage.
        settings: vLLM's settings.
        ranks: Tensor parallel size. [unitless]
        expert_ranks: Ranks that whole experts are dealt out over; 1: experts are cut. [unitless]

    Returns:
        Size. [bytes]
    """
    release = settings.release
    widths = _lora_widths(
        model,
        " ".join(lora.target_modules or ()),
        layers,
        ranks,
        vocabulary=model.model_type in release.lora_vocabulary_model_types,
        expert_ranks=expert_ranks if release.lora_experts else 0,
    )
    return serving_buffers.lora_slots(
        max_loras=lora.max_loras,
        max_lora_rank=lora.max_lora_rank,
        widths=widths,
        element_bytes=settings.element_bytes,
    )


@remembered()
def _lora_widths(
    model: Model, targets: str, layers: tuple[int, ...], ranks: int, *, vocabulary: bool, expert_ranks: int
) -> int:
    """Inputs and outputs of all targets; `expert_ranks` is 0 where experts get no adapters. [elements]"""
    groups = decoder_groups(model, layers or None)
    inside = sum(
        count * sum(_lora_width(t, ranks) for t in group.layer.tensors if _adaptable(t, targets.split()))
        for group, count in groups
    )
    if targets:
        return inside
    if expert_ranks:
        inside += sum(count * _expert_widths(model, group.layer.moe, ranks, expert_ranks) for group, count in groups)
    return inside + (2 * (model.vocab_size + model.hidden_size) if vocabulary else 0)


def _expert_widths(model: Model, moe: Moe | None, ranks: int, expert_ranks: int) -> int:
    """Gate, up and down projection of every expert of this rank."""
    if moe is None:
        return 0
    width = moe.moe_intermediate_size if expert_ranks > 1 else ceil_div(moe.moe_intermediate_size, ranks)
    return ceil_div(moe.num_experts, expert_ranks) * 3 * ((moe.hidden_size or model.hidden_size) + width)


def _adaptable(tensor: Tensor, targets: list[str]) -> bool:
    if not tensor.linear or tensor.shard.startswith("expert") or tensor.component == "router":
        return False
    return not targets or any(tensor.name.removesuffix(".weight").endswith(target) for target in targets)


def _lora_width(tensor: Tensor, ranks: int) -> int:
    if tensor.shard == "row":
        return tensor.in_features // ranks + tensor.out_features
    return tensor.in_features + tensor.out_features // ranks


__all__ = ["buffers", "expert_ranks", "loaded_weights", "lora_slots", "rotary_positions", "weight_rules"]
