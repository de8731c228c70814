"""Cards as callers send them, and their estimates."""

from functools import cache

import msgspec

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate import estimate
from tonnage.spec.card import SizingCard

LLAMA_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
BERT = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512,
    "type_vocab_size": 2, "torch_dtype": "float32",
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
    "n_group": 8, "topk_group": 4, "moe_layer_freq": 1, "max_position_embeddings": 163840,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


@cache
def catalog():
    return load_catalog()


def answer(config, weights=None, placement=None, **serving):
    """Estimate of a card with this serving part; the model is a config or an id."""
    model = config if isinstance(config, str) else {"config": config}
    request = {"model": model, "serving": serving, "placement": placement or {}}
    if weights is not None:
        request["weights"] = {"format": weights}
    return estimate(resolve(catalog(), msgspec.convert(request, SizingCard)))


def size(report, component, phase=None):
    """Expected bytes of a component on the first GPU, its largest or that of one phase."""
    items = report.gpus[0].items
    if phase is not None:
        items = next(p.items for p in report.gpus[0].phases if p.phase == phase)
    return sum(i.bytes.expected for i in items if i.component == component)


def total(report, phase, counter="allocated"):
    """Total of a phase on the first GPU."""
    return getattr(next(p.total for p in report.phases if p.phase == phase), counter)


def assumed(report):
    """Assumptions as a mapping."""
    return {a.field: a.value for a in report.assumptions}
