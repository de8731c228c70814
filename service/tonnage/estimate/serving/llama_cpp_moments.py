"""The widest moment of a llama.cpp layer: what its compute buffer must hold of it."""

from typing import NamedTuple

from msgspec import Struct

from tonnage.estimate import caches
from tonnage.estimate.identity_cache import remembered
from tonnage.laws import llama_cpp_graph
from tonnage.spec.model import Attention, Layer, Recurrent

F32 = 4


class Kinds(Struct, frozen=True):
    """Layers of a device that differ; made once for each range of layers."""

    __hash__ = object.__hash__  # what is remembered of them is found by identity

    layers: tuple[Layer, ...]
    hidden_size: int
    attentions: tuple[Attention, ...]
    windowed: tuple[Attention, ...]
    """One attention of every kind of cache where windows are cut."""
    plain: bool
    """Nothing recurrent, no latents."""


class Manner(NamedTuple):
    """What widths of layers depend on beside the layers; other contexts mostly leave it as it is."""

    tokens: int
    """Of one micro-batch. [tokens]"""
    slots: int
    latent_cache: bool
    reads_cache: bool
    """Attention reads its cache as it is stored."""
    score_cells: tuple[int, ...]
    """Cells of every attention whose scores are written out; none with flash attention. [cells]"""
    raw_input: bool = False
    """Graphs keep a raw input, into whose blocks attention outputs fit."""
    copies: bool = False
    """A quantized cache is copied to f16 inside the buffer."""


class Moment(Struct, frozen=True):
    """One moment of a layer."""

    elements: int
    """[elements/token]"""
    state_bytes: int
    law: str


@remembered()
def widest_moments(kinds: Kinds, manner: Manner) -> tuple[Moment, ...]:
    """
    Widest moment of every layer.

    Args:
        kinds: The layers.
        manner: Micro-batch, slots and how attention runs.

    Returns:
        One moment for each of the layers.
    """
    cells = iter(manner.score_cells)
    found = []
    for layer in kinds.layers:
        scored = next(cells, 0) if layer.attention is not None else 0
        moments = _moments(layer, kinds.hidden_size, manner, scored)
        found.append(max(moments, key=lambda moment: manner.tokens * F32 * moment.elements + moment.state_bytes))
    return tuple(found)


@remembered()
def attention_widths(kinds: Kinds, manner: Manner) -> tuple[int, ...]:
    """Elements of every attention's moment with flash attention. [elements/token]"""
    return tuple([_attention(attention, kinds.hidden_size, 0, manner) for attention in kinds.attentions])


def _moments(layer: Layer, hidden: int, manner: Manner, cells: int) -> list[Moment]:
    """Moments of a layer, any of which may be its widest."""
    attention = layer.attention
    moments = [Moment(0, 0, "layer_stage")]
    if attention is not None:
        moments.append(Moment(_attention(attention, hidden, cells, manner), 0, "attention"))
    if layer.recurrent is not None:
        moments.append(_scan(layer.recurrent, manner.slots))
    kept = 0 if manner.raw_input else _kept_attention(layer, hidden, manner.reads_cache)
    gated = layer.recurrent is not None or (attention is not None and attention.output_gate)
    rows = 1 if gated and not manner.raw_input else 2
    if layer.mlp is not None:
        mlp = layer.mlp
        width = llama_cpp_graph.feed_forward(
            hidden_size=hidden,
            intermediate_size=mlp.intermediate_size,
            attention_width=0 if mlp.fused_gate_up else kept,
            gated=mlp.gated,
            hidden_rows=rows,
        )
        moments.append(Moment(width, 0, "feed_forward"))
    if layer.moe is not None:
        moe = layer.moe
        width = llama_cpp_graph.experts(
            hidden_size=hidden,
            experts_per_token=moe.num_experts_per_tok,
            expert_intermediate_size=moe.moe_intermediate_size,
            attention_width=kept,
            hidden_rows=rows,
        )
        moments.append(Moment(width, 0, "experts"))
    return moments


def expert_width(layer: Layer, hidden: int) -> int:
    """Experts of a layer while one of their tensors visits from the host; nothing of attention is left by then. [elements]"""
    if layer.moe is None:
        return 0
    return llama_cpp_graph.experts(
        hidden_size=hidden,
        experts_per_token=layer.moe.num_experts_per_tok,
        expert_intermediate_size=layer.moe.moe_intermediate_size,
        attention_width=0,
    )


def _kept_attention(layer: Layer, hidden: int, plain: bool) -> int:
    """Attention output that stays beside the feed-forward: its block is reused where the residual fits it exactly. [elements]"""
    attention = layer.attention
    width = layer.recurrent.inner_size if layer.recurrent is not None else 0
    if attention is None:
        return width
    width = max(width, attention.num_attention_heads * attention.v_head_dim)
    reusable = attention.kind != "mla" and not layer.post_norm and not layer.parallel
    return 0 if width == hidden and reusable and not plain else width


def _scan(recurrent: Recurrent, slots: int) -> Moment:
    if recurrent.kind not in ("mamba1", "mamba2"):
        return Moment(0, 0, "layer_stage")
    inner = recurrent.inner_size
    width = llama_cpp_graph.selective_scan(
        projected_width=inner + recurrent.conv_channels + recurrent.state_heads,
        conv_channels=recurrent.conv_channels,
        inner_size=inner,
    )
    state = caches.layer_state_bytes(recurrent, conv_bytes=F32, state_bytes=F32)
    return Moment(width, slots * state, "selective_scan")


def _attention(attention: Attention, hidden: int, score_cells: int, manner: Manner) -> int:
    heads = attention.num_attention_heads
    if attention.kind == "mla" and manner.latent_cache:
        rope = attention.qk_rope_head_dim or 0
        return llama_cpp_graph.latent_attention(
            hidden_size=hidden,
            num_attention_heads=heads,
            query_head_dim=(attention.qk_nope_head_dim or 0) + rope,
            latent_dim=(attention.kv_lora_rank or 0) + rope,
            score_cells=score_cells,
            hidden_rows=2 if manner.raw_input else 3,
        )
    return llama_cpp_graph.attention(
        hidden_size=hidden,
        attention_width=heads * attention.v_head_dim,
        score_cells=score_cells,
        num_attention_heads=heads,
        gated=attention.output_gate,
        reused=manner.raw_input,
        copied=manner.copies,
    )
