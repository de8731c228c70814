"""Dense feed-forward and mixture of experts."""

from tonnage.architecture.fields import Fields
from tonnage.architecture.tensors import linear
from tonnage.errors import ContradictoryWorkload
from tonnage.spec.model import Component, Mlp, Moe, Shard, Tensor


def dense(fields: Fields) -> tuple[Mlp, list[Tensor]]:
    """Facts and tensors of a dense feed-forward."""
    facts = Mlp(
        intermediate_size=fields.integer("intermediate_size"),
        gated=fields.flag("gated"),
        activation=str(fields["hidden_act"] or "silu"),
        fused_gate_up=fields.flag("fused_gate_up"),
    )
    tensors = feed_forward(
        fields,
        "",
        width=facts.intermediate_size,
        hidden=fields.integer("hidden_size"),
        component="mlp",
        gated=facts.gated,
        fused=facts.fused_gate_up,
        bias=fields.flag("mlp_bias"),
    )
    return facts, tensors


def mixture(fields: Fields) -> tuple[Moe, list[Tensor]]:
    """Facts and tensors of routed experts, their router and shared experts."""
    hidden = fields.integer("hidden_size")
    experts, chosen = fields.integer("num_experts"), fields.integer("num_experts_per_tok")
    if chosen > experts:
        key = fields.key("num_experts_per_tok")
        raise ContradictoryWorkload(
            f"{key} {chosen} is above the {experts} experts ({fields.key('num_experts')})",
            pointer=f"{fields.pointer}/{key}",
        )
    facts = Moe(
        num_experts=experts,
        num_experts_per_tok=chosen,
        moe_intermediate_size=fields.integer("moe_intermediate_size"),
        gated=fields.flag("gated"),
        shared_intermediate_size=fields.count("shared_intermediate_size"),
        shared_gate=fields.flag("shared_gate"),
        hidden_size=fields.count("moe_hidden_size"),
    )
    routed = feed_forward(
        fields,
        "expert_",
        width=facts.moe_intermediate_size,
        hidden=facts.hidden_size or hidden,
        component="routed_experts",
        gated=facts.gated,
        fused=fields.flag("fused_experts"),
        bias=fields.flag("expert_bias"),
        experts=facts.num_experts,
    )
    return facts, [*_router(fields, facts, hidden), *routed, *_shared(fields, facts, hidden)]


def _router(fields: Fields, facts: Moe, hidden: int) -> list[Tensor]:
    out = linear(
        fields, "router", rows=facts.num_experts, columns=hidden,
        component="router", shard="replicated", bias=fields.flag("router_bias"),
    )  # fmt: skip
    if fields.flag("router_correction"):
        counted = fields["router_correction"] == "parameter"
        out.append(
            Tensor(
                name=fields.name("router_correction"),
                component="router",
                out_features=facts.num_experts,
                fixed_dtype="fp32",
                parameter=counted,
                role="router_correction",
            )
        )
    return out


def _shared(fields: Fields, facts: Moe, hidden: int) -> list[Tensor]:
    if not facts.shared_intermediate_size:
        return []
    out = feed_forward(
        fields,
        "shared_",
        width=facts.shared_intermediate_size,
        hidden=hidden,
        component="shared_experts",
        gated=facts.gated,
        fused=fields.flag("fused_shared"),
        bias=fields.flag("mlp_bias"),
    )
    if facts.shared_gate:
        out += linear(
            fields, "shared_expert_gate", rows=1, columns=hidden, component="shared_experts", shard="replicated"
        )
    return out


def feed_forward(
    fields: Fields,
    prefix: str,
    *,
    width: int,
    hidden: int,
    component: Component,
    gated: bool,
    fused: bool,
    bias: bool,
    experts: int = 1,
) -> list[Tensor]:
    """Up (and gate) and down matrices; `prefix` picks their names, `experts` how many of each."""
    into: Shard = "expert_column" if component == "routed_experts" else "column"
    back: Shard = "expert_row" if component == "routed_experts" else "row"
    roles = ("gate_up",) if gated and fused else ("gate", "up") if gated else ("up",)
    out: list[Tensor] = []
    for role in roles:
        out += linear(
            fields, prefix + role, rows=2 * width if role == "gate_up" else width, columns=hidden,
            component=component, shard=into, bias=bias, experts=experts,
        )  # fmt: skip
    return out + linear(
        fields, prefix + "down", rows=hidden, columns=width,
        component=component, shard=back, bias=bias, experts=experts,
    )  # fmt: skip
