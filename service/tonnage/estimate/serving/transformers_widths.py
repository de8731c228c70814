"""How wide the widest moment of a Transformers layer is, per token of the prompt, kind of layer by kind."""

from msgspec import Struct

from tonnage.estimate.identity_cache import remembered
from tonnage.laws import generate
from tonnage.spec.model import Attention, Layer, Model, Moe, Recurrent

_EXPRESSIONS = {"gelu_new": 4, "gelu_fast": 4, "gelu_python": 4, "quick_gelu": 3, "relu2": 3}
"""Live rows of activations written as Python expressions. [unitless]"""
_TWO_NORMS = 2
"""A layer with two norms that stand behind attention and feed-forward has none before them."""


_TRACED_BAND = (0.04, 0.04)
_OLDER_BAND = (0.3, 0.2)
_RECURRENT_BAND = (0.5, 0.25)


class Width(Struct, frozen=True):
    """Widest moment of a device's layers."""

    per_token: int
    """[bytes/token]"""
    law: str
    below: float
    """How much less it may be: kernels that make recurrent layers small, code of their own in older models. [fraction]"""
    above: float
    """How much more. [fraction]"""


class Execution(Struct, frozen=True):
    """How a release runs a layer."""

    element_bytes: int
    repeats_kv_heads: bool
    grouped_experts: bool
    routing_bytes: int
    """dtype of the routing weights. [bytes]"""


@remembered(2048)
def width(model: Model, execution: Execution, layers: tuple[int, ...] | None) -> Width:
    """
    Widest moment over the layers of a device, rotary tables and ids included.

    Args:
        model: Architecture.
        execution: How the release runs it.
        layers: Decoder layers of the device; None: all layers, encoders too.

    Returns:
        Width with the name of the law that leads.
    """
    held = None if layers is None else frozenset(layers)
    kinds = [
        group.layer
        for group in model.layers
        if held is None or (group.layer.role == "decoder" and not held.isdisjoint(group.indices))
    ]
    stages = [stage for layer in kinds for stage in _stages(layer, model, execution)]
    if not stages:
        return Width(0, "laws.generate.feed_forward", 0, 0)
    tables = max(_tables(layer, execution.element_bytes) for layer in kinds)
    widest = max(stages)
    return Width(widest[0] + tables, "laws.generate." + widest[1], *_band(kinds, model))


def _band(kinds: list[Layer], model: Model) -> tuple[float, float]:
    if any(layer.recurrent is not None for layer in kinds):
        return _RECURRENT_BAND
    if model.trust == "generic" or any(layer.norm_kind == "layer" for layer in kinds):
        return _OLDER_BAND
    return _TRACED_BAND


def _tables(layer: Layer, element_bytes: int) -> int:
    attention = layer.attention
    rotated = 0
    if attention is not None and attention.rotary in ("rope", "partial"):
        rotated = attention.rotary_dim or attention.qk_rope_head_dim or attention.head_dim
    return generate.rotary_tables(rotary_dim=rotated, element_bytes=element_bytes)


def _stages(layer: Layer, model: Model, execution: Execution) -> list[tuple[int, str]]:
    hidden, element = model.hidden_size, execution.element_bytes
    stages = []
    if layer.norm_kind in ("rms", "rms_fp32"):
        stages.append((generate.norm(hidden_size=hidden, element_bytes=element), "norm"))
    if layer.attention is not None:
        stages += _attention(layer.attention, hidden, execution)
    if layer.recurrent is not None:
        stages.append(_recurrent(layer.recurrent, hidden, element))
    if layer.mlp is not None:
        stages.append((_feed_forward(layer, hidden, element), "feed_forward"))
    if layer.moe is not None:
        stages.append(_experts(layer.moe, hidden, execution))
    return stages


def _feed_forward(layer: Layer, hidden: int, element: int) -> int:
    mlp = layer.mlp
    assert mlp is not None  # noqa: S101  (such a layer has one)
    products = (4 if mlp.fused_gate_up else 3) if mlp.gated else 2
    products = max(products, _EXPRESSIONS.get(mlp.activation, 0))
    return generate.feed_forward(
        hidden_size=hidden,
        intermediate_size=mlp.intermediate_size,
        products=products,
        element_bytes=element,
        hidden_rows=3 if layer.post_norm and layer.norms == _TWO_NORMS else 4,
    )


def _attention(attention: Attention, hidden: int, execution: Execution) -> list[tuple[int, str]]:
    if attention.kind == "mla":
        return [(_latent(attention, hidden, execution.element_bytes), "latent_attention")]
    element, heads = execution.element_bytes, attention.num_attention_heads
    queries = heads * attention.head_dim
    values = heads * attention.v_head_dim
    grouped = attention.num_key_value_heads < heads
    stages = [
        (
            generate.attention(
                hidden_size=hidden, query_width=queries, key_width=queries, value_width=values,
                repeated=grouped and execution.repeats_kv_heads, element_bytes=element,
            ),
            "attention",
        ),
    ]  # fmt: skip
    if attention.rotary in ("rope", "partial"):
        stages.append(
            (
                generate.rotary(hidden_size=hidden, query_width=queries, element_bytes=element),
                "rotary",
            )
        )
    if attention.qk_norm != "none":
        stages.append(
            (generate.query_norm(hidden_size=hidden, query_width=queries, element_bytes=element), "query_norm")
        )
    return stages


def _latent(attention: Attention, hidden: int, element: int) -> int:
    rope = attention.qk_rope_head_dim or 0
    return generate.latent_attention(
        hidden_size=hidden,
        num_attention_heads=attention.num_attention_heads,
        qk_nope_head_dim=attention.qk_nope_head_dim or attention.head_dim - rope,
        qk_rope_head_dim=rope,
        v_head_dim=attention.v_head_dim,
        element_bytes=element,
    )


def _experts(moe: Moe, hidden: int, execution: Execution) -> tuple[int, str]:
    width_of_experts = moe.hidden_size or hidden
    if execution.grouped_experts:
        size = generate.experts_grouped(
            hidden_size=width_of_experts, experts_per_token=moe.num_experts_per_tok,
            expert_intermediate_size=moe.moe_intermediate_size, weight_bytes=execution.routing_bytes,
            element_bytes=execution.element_bytes,
        )  # fmt: skip
        return size, "experts_grouped"
    size = generate.experts_loop(
        hidden_size=width_of_experts, num_experts=moe.num_experts, experts_per_token=moe.num_experts_per_tok,
        expert_intermediate_size=moe.moe_intermediate_size, element_bytes=execution.element_bytes,
    )  # fmt: skip
    return size, "experts_loop"


def _recurrent(recurrent: Recurrent, hidden: int, element: int) -> tuple[int, str]:
    if recurrent.kind in ("gated_delta", "kda"):
        size = generate.delta_rule(
            hidden_size=hidden,
            num_value_heads=recurrent.num_value_heads or recurrent.state_heads,
            value_head_dim=recurrent.value_head_dim or recurrent.state_rows,
            num_key_heads=recurrent.num_key_heads or recurrent.state_heads,
            key_head_dim=recurrent.key_head_dim or recurrent.state_columns,
            chunk=recurrent.chunk_size or 64,
        )
        return size, "delta_rule"
    inner = recurrent.inner_size or hidden
    projected = inner + recurrent.conv_channels + recurrent.state_heads
    size = generate.selective_scan(
        hidden_size=hidden, projected_width=projected, inner_size=inner, element_bytes=element
    )
    return size, "selective_scan"
