"""Multi-head latent attention (MLA): one compressed key-value vector per token, with or without a sparse indexer."""

from tonnage.architecture.attention import positions
from tonnage.architecture.fields import Fields
from tonnage.architecture.tensors import linear, norm
from tonnage.spec.model import Attention, Tensor


def latent_attention(fields: Fields) -> tuple[Attention, list[Tensor]]:
    """Facts and tensors of one MLA layer."""
    facts = _facts(fields)
    tensors = [*_queries(fields, facts), *_keys_and_values(fields, facts), *_indexer(fields, facts)]
    return facts, tensors


def _facts(fields: Fields) -> Attention:
    nope, rope = fields.integer("qk_nope_head_dim"), fields.count("qk_rope_head_dim")
    indexed = fields.optional("index_head_dim") is not None and not fields.flag("indexer_shared")
    return Attention(
        kind="mla",
        num_attention_heads=fields.integer("num_attention_heads"),
        num_key_value_heads=fields.integer("num_key_value_heads"),
        head_dim=nope + rope,
        v_head_dim=fields.integer("v_head_dim"),
        q_lora_rank=fields.optional("q_lora_rank"),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        index_head_dim=fields.integer("index_head_dim") if indexed else None,
        index_n_heads=fields.integer("index_n_heads") if indexed else None,
        index_topk=fields.optional("index_topk"),
        qkv_bias=fields.flag("qkv_bias"),
        **(positions(fields, rope) if rope else {"rotary": "none"}),
    )


def _queries(fields: Fields, facts: Attention) -> list[Tensor]:
    hidden = fields.integer("hidden_size")
    width = facts.num_attention_heads * facts.head_dim
    if facts.q_lora_rank is None:
        return linear(fields, "q", rows=width, columns=hidden, component="attention", shard="column")
    rank = facts.q_lora_rank
    return [
        *linear(
            fields, "q_a", rows=rank, columns=hidden,
            component="attention", shard="replicated", bias=facts.qkv_bias,
        ),
        *norm(fields, fields.name("q_a_norm"), rank, component="attention", role="q_a_norm"),
        *linear(fields, "q_b", rows=width, columns=rank, component="attention", shard="column"),
    ]  # fmt: skip


def _keys_and_values(fields: Fields, facts: Attention) -> list[Tensor]:
    hidden = fields.integer("hidden_size")
    latent, heads = facts.kv_lora_rank or 0, facts.num_attention_heads
    return [
        *linear(
            fields, "kv_a", rows=latent + (facts.qk_rope_head_dim or 0), columns=hidden,
            component="attention", shard="replicated", bias=facts.qkv_bias,
        ),
        *norm(fields, fields.name("kv_a_norm"), latent, component="attention", role="kv_a_norm"),
        *linear(
            fields, "kv_b", rows=heads * ((facts.qk_nope_head_dim or 0) + facts.v_head_dim), columns=latent,
            component="attention", shard="column",
        ),
        *linear(
            fields, "o", rows=hidden, columns=heads * facts.v_head_dim,
            component="attention", shard="row", bias=fields.flag("o_bias"),
        ),
    ]  # fmt: skip


def _indexer(fields: Fields, facts: Attention) -> list[Tensor]:
    if facts.index_head_dim is None or facts.index_n_heads is None:
        return []
    hidden = fields.integer("hidden_size")
    width, heads = facts.index_head_dim, facts.index_n_heads
    return [
        *linear(
            fields, "index_q", rows=heads * width, columns=facts.q_lora_rank or hidden,
            component="attention", shard="replicated",
        ),
        *linear(fields, "index_k", rows=width, columns=hidden, component="attention", shard="replicated"),
        *norm(fields, fields.name("index_k_norm"), width, component="attention", role="index_norm", bias=True),
        *linear(fields, "index_weights", rows=heads, columns=hidden, component="attention", shard="replicated"),
    ]  # fmt: skip
