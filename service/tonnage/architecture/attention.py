"""Attention with a key and a value per head and token: full, sliding, chunked, cross, encoder."""

from typing import Any

from tonnage.architecture.fields import Fields
from tonnage.architecture.tensors import linear, norm
from tonnage.errors import ContradictoryWorkload
from tonnage.spec.model import Attention, Component, Tensor


def head_attention(fields: Fields) -> tuple[Attention, list[Tensor]]:
    """Facts and tensors of one layer's attention."""
    facts = _facts(fields)
    projections = _fused(fields, facts) if facts.fused_qkv else _separate(fields, facts)
    return facts, [
        *projections,
        *_output(fields, facts),
        *_head_norms(fields, facts),
        *_sinks(fields, facts),
        *_indexer(fields, facts),
    ]


def _facts(fields: Fields) -> Attention:
    heads, head_dim = fields.integer("num_attention_heads"), fields.integer("head_dim")
    kv_heads = fields.integer("num_key_value_heads")
    _refuse_uneven(fields, heads, kv_heads, head_dim)
    kind = fields.kind
    windowed = kind in ("sliding", "chunked")
    return Attention(
        kind=_KIND.get(kind, "full"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=fields.optional("value_head_dim") or head_dim,
        window=fields.integer("window") if windowed else None,
        kv_shared=fields.flag("kv_shared"),
        k_eq_v=fields.flag("k_eq_v"),
        qk_norm=fields.choice("qk_norm", "none", "head", "full"),
        qkv_bias=fields.flag("qkv_bias"),
        fused_qkv=fields.flag("fused_qkv"),
        output_gate=fields.flag("output_gate"),
        sinks=fields.flag("sinks"),
        index_head_dim=fields.integer("index_head_dim") if fields.flag("indexed") else None,
        index_n_heads=fields.integer("index_n_heads") if fields.flag("indexed") else None,
        **positions(fields, head_dim),
        softcap=fields.flag("softcap"),
    )


def _refuse_uneven(fields: Fields, heads: int, kv_heads: int, head_dim: int) -> None:
    """Every key head serves the same number of query heads; heads without a size of their own share the hidden size."""
    if heads % kv_heads:
        key = fields.key("num_key_value_heads")
        raise ContradictoryWorkload(
            f"{key} must divide the {heads} attention heads, {kv_heads} does not", pointer=f"{fields.pointer}/{key}"
        )
    hidden = fields.integer("hidden_size")
    if hidden % heads and head_dim == hidden // heads and not (fields.nested or fields.states("head_dim")):
        key = fields.key("hidden_size")
        raise ContradictoryWorkload(
            f"{key} {hidden} is no multiple of the {heads} attention heads, and head_dim is not stated",
            pointer=f"{fields.pointer}/{key}",
        )


_KIND: dict[str, Any] = {"sliding": "sliding", "chunked": "chunked", "cross": "cross", "encoder": "encoder"}


def positions(fields: Fields, head_dim: int) -> dict[str, Any]:
    """How positions enter the attention of a layer."""
    rotary = fields.choice("rotary", "rope", "none", "partial", "alibi", "learned")
    turned = fields.optional("rotary_dim") or head_dim
    if rotary == "rope" and turned < head_dim:
        rotary = "partial"
    rotates = rotary in ("rope", "partial")
    return {
        "rotary": rotary,
        "rotary_dim": turned if rotates else 0,
        "rope_concat": rotates and fields.flag("rope_concat"),
    }


def _separate(fields: Fields, facts: Attention) -> list[Tensor]:
    width = facts.num_attention_heads * facts.head_dim
    hidden = fields.integer("attention_input_size")
    out = linear(
        fields,
        "q",
        rows=2 * width if facts.output_gate else width,
        columns=hidden,
        component="attention",
        shard="column",
        bias=fields.flag("q_bias"),
    )
    if not facts.kv_shared:
        out += _kv(fields, facts, "k", facts.head_dim, fields.flag("k_bias"))
        if not facts.k_eq_v:
            out += _kv(fields, facts, "v", facts.v_head_dim, fields.flag("v_bias"))
    return out


def _kv(fields: Fields, facts: Attention, role: str, head_dim: int, bias: bool) -> list[Tensor]:
    return linear(
        fields,
        role,
        rows=facts.num_key_value_heads * head_dim,
        columns=fields.integer("kv_input_size"),
        component="attention",
        shard="kv",
        bias=bias,
        heads=facts.num_key_value_heads,
    )


def _fused(fields: Fields, facts: Attention) -> list[Tensor]:
    keys = facts.num_key_value_heads * (facts.head_dim + facts.v_head_dim)
    return linear(
        fields,
        "qkv",
        rows=facts.num_attention_heads * facts.head_dim + keys,
        columns=fields.integer("attention_input_size"),
        component="attention",
        shard="column",
        bias=facts.qkv_bias,
        heads=facts.num_key_value_heads,
        kv_rows=keys,
    )


def _output(fields: Fields, facts: Attention) -> list[Tensor]:
    return linear(
        fields,
        "o",
        rows=fields.integer("attention_output_size"),
        columns=facts.num_attention_heads * facts.v_head_dim,
        component="attention",
        shard="row",
        bias=fields.flag("o_bias"),
    )


def _head_norms(fields: Fields, facts: Attention) -> list[Tensor]:
    if facts.qk_norm == "none":
        return []
    per_head = facts.qk_norm == "head"
    q_size = facts.head_dim * (1 if per_head else facts.num_attention_heads)
    k_size = facts.head_dim * (1 if per_head else facts.num_key_value_heads)
    bias = fields.flag("qk_norm_bias")
    component: Component = "norm" if fields["qk_norm_component"] == "norm" else "attention"
    out = norm(fields, fields.name("q_norm"), q_size, component=component, role="q_norm", bias=bias)
    if not facts.kv_shared:
        out += norm(fields, fields.name("k_norm"), k_size, component=component, role="k_norm", bias=bias)
    return out


def _sinks(fields: Fields, facts: Attention) -> list[Tensor]:
    if not facts.sinks:
        return []
    name = fields.name("sinks")
    return [
        Tensor(
            name=name,
            component="attention",
            out_features=facts.num_attention_heads,
            shard="column",
            role="sinks",
        )
    ]


def _indexer(fields: Fields, facts: Attention) -> list[Tensor]:
    if facts.index_head_dim is None or facts.index_n_heads is None:
        return []
    hidden, width = fields.integer("hidden_size"), facts.index_head_dim
    return [
        *linear(
            fields, "head_index_q", rows=facts.index_n_heads * width, columns=hidden,
            component="attention", shard="replicated",
        ),
        *linear(fields, "head_index_k", rows=width, columns=hidden, component="attention", shard="replicated"),
        *norm(fields, fields.name("head_index_q_norm"), width, component="attention", role="index_norm", bias=False),
        *norm(fields, fields.name("head_index_k_norm"), width, component="attention", role="index_norm", bias=False),
    ]  # fmt: skip
