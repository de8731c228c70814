"""What one rank of a pipeline stage computes with: the widths that the laws of activations ask for."""

from msgspec import Struct

from tonnage.estimate.caches import decoder_groups
from tonnage.estimate.identity_cache import remembered
from tonnage.spec.model import Attention, Model, Moe
from tonnage.units import ceil_div


class Experts(Struct, frozen=True, kw_only=True):
    """Routed experts of the widest mixture layer, as one rank sees them."""

    num_experts: int
    local_experts: int
    per_token: int
    hidden_size: int
    width: int
    """Width of an expert on this rank. [elements]"""


class RankShape(Struct, frozen=True, kw_only=True):
    """Widths of one rank of a stage."""

    layers: int
    hidden_size: int
    mlp_width: int
    """Widest dense or shared MLP of a layer, one half when gated. [elements]"""
    gated: bool
    attention_width: int
    """Queries, keys, values and outputs of the widest layer. [elements]"""
    experts: Experts | None
    mla: Attention | None
    mla_heads: int


@remembered()
def rank_shape(
    model: Model, layers: tuple[int, ...] | None, *, tensor_parallel_size: int, expert_parallel_size: int
) -> RankShape:
    """
    Widths of the fullest rank of a stage.

    Args:
        model: Architecture.
        layers: Decoder layers of the stage; None is all of them. A model without any computes with its encoder's.
        tensor_parallel_size: Ranks that cut matrices. [unitless]
        expert_parallel_size: Ranks that whole experts are dealt out over; 1: experts are cut. [unitless]

    Returns:
        The widest of every kind of layer.
    """
    tp = tensor_parallel_size
    groups = decoder_groups(model, layers) or [(group, group.count) for group in model.layers]
    kinds = [group.layer for group, _ in groups]
    mlps = [layer.mlp for layer in kinds if layer.mlp is not None]
    mixtures = [layer.moe for layer in kinds if layer.moe is not None]
    attentions = [layer.attention for layer in kinds if layer.attention is not None]
    widths = [ceil_div(mlp.intermediate_size, tp) for mlp in mlps]
    widths += [ceil_div(moe.shared_intermediate_size, tp) for moe in mixtures]
    latent = next((a for a in attentions if a.kind == "mla"), None)
    return RankShape(
        layers=sum(count for _, count in groups),
        hidden_size=model.hidden_size,
        mlp_width=max(widths, default=0),
        gated=all(mlp.gated for mlp in mlps) if mlps else True,
        attention_width=max((_attention_width(a, tp) for a in attentions), default=0),
        experts=_experts(model, mixtures, tp, expert_parallel_size),
        mla=latent,
        mla_heads=latent.num_attention_heads // tp if latent is not None else 0,
    )


def _attention_width(attention: Attention, ranks: int) -> int:
    heads = ceil_div(attention.num_attention_heads, ranks)
    kv_heads = max(1, attention.num_key_value_heads // ranks)
    return heads * (attention.head_dim + attention.v_head_dim) + kv_heads * (attention.head_dim + attention.v_head_dim)


def _experts(model: Model, mixtures: list[Moe], ranks: int, expert_ranks: int) -> Experts | None:
    if not mixtures:
        return None
    moe = max(mixtures, key=lambda m: m.num_experts_per_tok * m.moe_intermediate_size)
    return Experts(
        num_experts=moe.num_experts,
        local_experts=ceil_div(moe.num_experts, expert_ranks),
        per_token=moe.num_experts_per_tok,
        hidden_size=moe.hidden_size or model.hidden_size,
        width=moe.moe_intermediate_size if expert_ranks > 1 else ceil_div(moe.moe_intermediate_size, ranks),
    )
