"""
Attention of DeepSeek-V4: all heads share one key-value vector, kept for a window and compressed behind it.

Source: huggingface/transformers v5.24 models/deepseek_v4/modeling_deepseek_v4.py
"""

from tonnage.architecture.fields import Fields
from tonnage.architecture.tensors import linear, norm
from tonnage.spec.model import Attention, Component, Shard, Tensor


def compressed_attention(fields: Fields) -> tuple[Attention, list[Tensor]]:
    """Facts and tensors of one layer; the shared vector is told as MLA with a window."""
    facts = _facts(fields)
    return facts, [*_projections(fields, facts), *_compressor(fields, facts), *_indexer(fields, facts)]


def _facts(fields: Fields) -> Attention:
    head_dim, rope = fields.integer("head_dim"), fields.integer("rotary_dim")
    ratio = fields.count("compress_ratio")
    indexed = fields.flag("indexed")
    return Attention(
        kind="mla",
        num_attention_heads=fields.integer("num_attention_heads"),
        num_key_value_heads=1,
        head_dim=head_dim,
        v_head_dim=head_dim,
        window=fields.integer("sliding_window"),
        q_lora_rank=fields.integer("q_lora_rank"),
        kv_lora_rank=head_dim - rope,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=head_dim - rope,
        index_head_dim=fields.integer("index_head_dim") if indexed else None,
        index_n_heads=fields.integer("index_n_heads") if indexed else None,
        index_topk=fields.optional("index_topk") if indexed else None,
        k_eq_v=True,
        rotary="partial",
        rotary_dim=rope,
        sinks=True,
        compress_ratio=ratio,
    )


def _projections(fields: Fields, facts: Attention) -> list[Tensor]:
    hidden, rank, width = fields.integer("hidden_size"), facts.q_lora_rank or 0, facts.head_dim
    heads, groups = facts.num_attention_heads, fields.integer("o_groups")
    low = groups * fields.integer("o_lora_rank")
    return [
        *_linear(fields, "self_attn.q_a_proj", "q_a", rank, hidden),
        *norm(fields, "self_attn.q_a_norm", rank),
        *_linear(fields, "self_attn.q_b_proj", "q_b", heads * width, rank, shard="column"),
        *_linear(fields, "self_attn.kv_proj", "kv_a", width, hidden),
        *norm(fields, "self_attn.kv_norm", width),
        *_linear(fields, "self_attn.o_a_proj", "o_a", low, heads * width // groups, shard="column"),
        *_linear(fields, "self_attn.o_b_proj", "o", hidden, low, shard="row"),
        _vector("self_attn.sinks", heads, 1, "sinks", shard="column"),
    ]


def _compressor(fields: Fields, facts: Attention) -> list[Tensor]:
    if not facts.compress_ratio:
        return []
    return _compression(fields, "self_attn.compressor", facts.head_dim, facts)


def _compression(fields: Fields, module: str, head_dim: int, facts: Attention) -> list[Tensor]:
    hidden = fields.integer("hidden_size")
    width = head_dim * (2 if facts.index_head_dim else 1)
    return [
        _vector(f"{module}.position_bias", facts.compress_ratio, width, "compressor"),
        *_linear(fields, f"{module}.kv_proj", "compressor", width, hidden),
        *_linear(fields, f"{module}.gate_proj", "compressor", width, hidden),
        *norm(fields, f"{module}.kv_norm", head_dim),
    ]


def _indexer(fields: Fields, facts: Attention) -> list[Tensor]:
    if facts.index_head_dim is None or facts.index_n_heads is None:
        return []
    module, rank = "self_attn.compressor.indexer", facts.q_lora_rank or 0
    heads, width = facts.index_n_heads, facts.index_head_dim
    return [
        *_compression(fields, module, width, facts),
        *_linear(fields, f"{module}.q_b_proj", "index_q", heads * width, rank),
        *_linear(fields, f"{module}.scorer.weights_proj", "index_weights", heads, fields.integer("hidden_size")),
    ]


def _linear(
    fields: Fields, module: str, role: str, rows: int, columns: int, *, shard: Shard = "replicated"
) -> list[Tensor]:
    return linear(fields, module, rows=rows, columns=columns, component="attention", shard=shard, label=role)


def _vector(name: str, rows: int, columns: int, role: str, *, shard: Shard = "replicated") -> Tensor:
    component: Component = "attention"
    return Tensor(
        name=name,
        component=component,
        out_features=rows,
        in_features=columns,
        shard=shard,
        role=role,
        fixed_dtype="fp32",
    )
