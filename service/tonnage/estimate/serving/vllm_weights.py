"""Weights as vLLM loads them: its padding and replication rules, the buffers beside them, adapter slots."""

from collections.abc import Iterator

from msgspec import Struct

from tonnage.estimate.caches import decoder_groups
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.vllm_settings import Settings
from tonnage.estimate.weights import StageWeights, WeightRules, stage_weights
from tonnage.laws import serving_buffers
from tonnage.spec.card import Placement, ServingLora
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Attention, Model, Tensor
from tonnage.spec.workload import Workload

_VOCABULARY_MULTIPLE = 64
_STACKED_MROPE = 4
"""Multimodal rotary tables reserve four times the positions."""


class Padding(Struct, frozen=True):
    """What a kernel pads experts to: hidden side, intermediate side per rank. [elements]"""

    hidden: int = 1
    intermediate: int = 1


_MXFP4_PADDING = {"triton": Padding(256, 128), "marlin": Padding(256, 128), "flashinfer_trtllm": Padding(256, 256)}


@remembered()
def weight_rules(
    weight_format: WeightFormat,
    expands_nested: bool,
    marlin: bool,
    images: bool,
    encoder_replicated: bool,
    backend: str,
) -> WeightRules:
    """
    vLLM's rules for a format; one object each, because results are kept by it.

    Args:
        weight_format: Format of the weights.
        expands_nested: Double-quantized constants are undone at load.
        marlin: The card repacks group formats for Marlin, which drops symmetric zeros and the group index.
        images: The vision tower is loaded.
        encoder_replicated: Every rank holds the whole tower.
        backend: Expert kernel.

    Returns:
        Rules for `estimate.weights`.
    """
    padding = _MXFP4_PADDING.get(backend, Padding()) if weight_format.family == "mxfp4" else Padding()
    towers = frozenset({"vision", "projector"})
    return WeightRules(
        vocabulary_multiple=_VOCABULARY_MULTIPLE,
        replicated=towers if encoder_replicated else frozenset(),
        absent=frozenset({"mtp"}) if images else frozenset({"mtp"}) | towers,
        expert_hidden_multiple=padding.hidden,
        expert_intermediate_multiple=padding.intermediate,
        without_zeros=frozenset({"gptq"}) if marlin else frozenset(),
        nested_scales_expanded=expands_nested,
    )


def loaded_weights(workload: Workload, settings: Settings, backend: str) -> tuple[StageWeights, ...]:
    """
    Weights of every pipeline stage.

    Args:
        workload: Resolved card.
        settings: vLLM's settings.
        backend: Expert kernel.

    Returns:
        One entry per stage.
    """
    placement = workload.placement
    rules = weight_rules(
        workload.weight_format,
        settings.release.expands_bitsandbytes_scales,
        settings.major >= 8,  # noqa: PLR2004
        settings.images,
        settings.encoder_replicated,
        backend,
    )
    experts = expert_ranks(placement, workload)
    return stage_weights(
        workload.model,
        workload.weight_format,
        workload.formats,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        expert_parallel_size=experts,
        expert_tensor_parallel_size=None if experts > 1 else placement.tensor_parallel_size,
        rules=rules,
        dtype=settings.dtype,
    )


def expert_ranks(placement: Placement, workload: Workload) -> int:
    """Ranks that whole experts are dealt out over; 1 when experts are cut instead. [unitless]"""
    if placement.expert_parallel_size > 1 or getattr(workload.serving, "enable_expert_parallel", False):
        return placement.tensor_parallel_size * placement.data_parallel_size
    return 1


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

    Returns:
        Size. [bytes]
    """
    groups = decoder_groups(model, layers or None)
    attentions = [(group.layer.attention, count) for group, count in groups if group.layer.attention is not None]
    rotary = {key: size for a, _ in attentions for key, size in _rotary(model, a, element_bytes)}
    absorbed = sum(count * _absorbed(a, tensor_parallel_size, element_bytes) for a, count in attentions)
    topk = max((a.index_topk or 0 for a, _ in attentions), default=0)
    indices = serving_buffers.top_k_indices(tokens=tokens, index_topk=topk)
    return (
        sum(rotary.values())
        + absorbed
        + indices
        + (_deepstack(model, tokens, element_bytes) if images and first else 0)
    )


def _rotary(model: Model, attention: Attention, element_bytes: int) -> Iterator[tuple[tuple[str, int], int]]:
    """One table per distinct rotary embedding: windows have their own where the model says so."""
    if attention.rotary not in ("rope", "partial") or not attention.rotary_dim:
        return
    local = attention.kind == "sliding" and _has_local_rope(model)
    positions, width = rotary_positions(model, local=local), element_bytes
    if attention.kind == "mla" and (model.rope_scaling or {}).get("factor"):
        width = 4
    size = serving_buffers.rotary_cache(positions=positions, rotary_dim=attention.rotary_dim, element_bytes=width)
    yield ("local" if local else "global", attention.rotary_dim), size


def _has_local_rope(model: Model) -> bool:
    text = model.config.get("text_config") or model.config
    return any(key in text for key in ("rope_local_base_freq", "local_rope_theta", "rope_parameters"))


def rotary_positions(model: Model, *, local: bool) -> int:
    """
    Positions of a rotary table.

    Args:
        model: Architecture.
        local: The table of sliding-window layers, which is not stretched.

    Returns:
        Positions. [tokens]
    """
    positions = model.max_position_embeddings
    scaling = {} if local else model.rope_scaling or {}
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor") or 1
    if "mrope_section" in scaling:
        return positions * _STACKED_MROPE
    if kind in ("yarn", "deepseek_yarn"):
        return int((scaling.get("original_max_position_embeddings") or positions) * factor)
    if kind in ("longrope", "su"):
        return positions + int(scaling.get("original_max_position_embeddings") or _longrope_original(model))
    return int(positions * factor) if kind in ("linear", "dynamic") else positions


def _longrope_original(model: Model) -> int:
    return int(model.config.get("original_max_position_embeddings") or 0)


def _absorbed(attention: Attention, tensor_parallel_size: int, element_bytes: int) -> int:
    if attention.kind != "mla":
        return 0
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


def lora_slots(model: Model, lora: ServingLora, layers: tuple[int, ...], settings: Settings, ranks: int) -> int:
    """
    Adapter slots of one rank of a stage.

    Args:
        model: Architecture.
        lora: Slots asked for.
        layers: Decoder layers of the stage.
        settings: vLLM's settings.
        ranks: Tensor parallel size. [unitless]

    Returns:
        Size. [bytes]
    """
    widths = _lora_widths(model, " ".join(lora.target_modules or ()), layers, ranks)
    return serving_buffers.lora_slots(
        max_loras=lora.max_loras,
        max_lora_rank=lora.max_lora_rank,
        widths=widths,
        element_bytes=settings.element_bytes,
    )


@remembered()
def _lora_widths(model: Model, targets: str, layers: tuple[int, ...], ranks: int) -> int:
    inside = sum(
        count * sum(_lora_width(t, ranks) for t in group.layer.tensors if _adaptable(t, targets.split()))
        for group, count in decoder_groups(model, layers or None)
    )
    return inside + (0 if targets else 2 * (model.vocab_size + model.hidden_size))


def _adaptable(tensor: Tensor, targets: list[str]) -> bool:
    if not tensor.linear or tensor.shard.startswith("expert") or tensor.component == "router":
        return False
    return not targets or any(tensor.name.removesuffix(".weight").endswith(target) for target in targets)


def _lora_width(tensor: Tensor, ranks: int) -> int:
    if tensor.shard == "row":
        return tensor.in_features // ranks + tensor.out_features
    return tensor.in_features + tensor.out_features // ranks


__all__ = ["buffers", "expert_ranks", "loaded_weights", "lora_slots", "rotary_positions", "weight_rules"]
