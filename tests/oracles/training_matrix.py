"""
The runs that fake_training.py records: model families x method x checkpointing x attention x precision x optimizer.

Widths are those of the public config.json of each family; depth is cut to a few layers in most runs, since layers
repeat and the record of a deep model only takes longer. `training` holds fields of the API's card; beside it stand
the facts a card states otherwise: `weights` (format), `autocast`, `padded` (a 4-D mask), `reentrant`, `kbit_fp32`.
"""

import random

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


def decoder(model_type, hidden, intermediate, layers, heads, kv_heads, vocabulary, **more):
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary,
    } | more  # fmt: skip


FAMILIES = {
    "llama-3.1-8b": decoder("llama", 4096, 14336, 4, 32, 8, 128256),
    "llama-3.2-1b": decoder("llama", 2048, 8192, 4, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "llama-2-7b": decoder("llama", 4096, 11008, 4, 32, 32, 32000),
    "mistral-7b": decoder("mistral", 4096, 14336, 4, 32, 8, 32000, sliding_window=None),
    "qwen2.5-0.5b": decoder("qwen2", 896, 4864, 4, 14, 2, 151936, tie_word_embeddings=True),
    "qwen2.5-7b": decoder("qwen2", 3584, 18944, 4, 28, 4, 152064),
    "qwen3-8b": decoder("qwen3", 4096, 12288, 4, 32, 8, 151936, head_dim=128),
    "gemma-2b": decoder("gemma", 2048, 16384, 4, 8, 1, 256000, head_dim=256),
    "gemma2-2b": decoder(
        "gemma2", 2304, 9216, 4, 8, 4, 256000, head_dim=256, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        hidden_activation="gelu_pytorch_tanh",
    ),
    "gemma3-1b": decoder("gemma3_text", 1152, 6912, 6, 4, 1, 262144, head_dim=256, sliding_window=512),
    "phi-2": decoder("phi", 2560, 10240, 4, 32, 32, 51200, partial_rotary_factor=0.4),
    "phi-3-mini": decoder("phi3", 3072, 8192, 4, 32, 32, 32064, pad_token_id=32000),
    "stablelm-3b": decoder("stablelm", 2560, 6912, 4, 32, 32, 50304, partial_rotary_factor=0.25),
    "olmo-1b": decoder("olmo", 2048, 8192, 4, 16, 16, 50304, tie_word_embeddings=True),
    "olmo2-7b": decoder("olmo2", 4096, 11008, 4, 32, 32, 100352),
    "olmo3-7b": decoder("olmo3", 4096, 11008, 4, 32, 32, 100278, sliding_window=4096),
    "glm4-9b": decoder("glm4", 4096, 13696, 4, 32, 2, 151552, head_dim=128, pad_token_id=151329, attention_bias=False),
    "granite-2b": decoder("granite", 2048, 8192, 4, 32, 8, 49155, tie_word_embeddings=True, logits_scaling=8.0, embedding_multiplier=12.0),
    "cohere-7b": decoder("cohere", 4096, 16384, 4, 32, 8, 256000, logit_scale=0.0625),
    "starcoder2-3b": decoder("starcoder2", 3072, 12288, 4, 24, 2, 49152, tie_word_embeddings=True),
    "smollm3-3b": decoder("smollm3", 2048, 11008, 4, 16, 4, 128256, tie_word_embeddings=True, pad_token_id=128004),
    "seed-oss": decoder("seed_oss", 5120, 27648, 4, 80, 8, 155136, head_dim=128, attention_bias=True, attention_dropout=0.1, residual_dropout=0.1),
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 4, "vocab_size": 50257, "n_positions": 1024,
        "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "activation_function": "gelu_new"},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 4, "vocab_size": 50257, "n_positions": 1024,
        "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "activation_function": "gelu_new"},
    "pythia-6.9b": {
        "model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 4,
        "num_attention_heads": 32, "vocab_size": 50432,
    },
    "opt-1.3b": {
        "model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 4, "num_attention_heads": 32,
        "vocab_size": 50272, "word_embed_proj_dim": 2048, "dropout": 0.1, "attention_dropout": 0.0,
        "max_position_embeddings": 2048,
    },
    "falcon-7b": {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 4, "num_attention_heads": 71, "vocab_size": 65024,
        "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False, "alibi": False,
    },
    "bloom-7b1": {"model_type": "bloom", "hidden_size": 4096, "n_layer": 4, "n_head": 32, "vocab_size": 250880},
    "qwen3-30b-a3b": decoder(
        "qwen3_moe", 2048, 6144, 2, 32, 4, 151936, head_dim=128, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True,
    ),
    "mixtral-8x7b": decoder("mixtral", 4096, 14336, 2, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "gpt-oss-20b": decoder(
        "gpt_oss", 2880, 2880, 2, 64, 8, 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4, sliding_window=128,
    ),
    "deepseek-v3": {
        "model_type": "deepseek_v3", "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 128, "num_key_value_heads": 128,
        "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 8, "vocab_size": 129280,
    },
    "qwen3-next": decoder(
        "qwen3_next", 2048, 5120, 4, 16, 2, 151936, head_dim=256, moe_intermediate_size=512, num_experts=64,
        num_experts_per_tok=10, shared_expert_intermediate_size=512, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
        linear_value_head_dim=128, linear_conv_kernel_dim=4,
    ),
    "qwen1.5-moe": decoder(
        "qwen2_moe", 2048, 5632, 2, 16, 16, 151936, moe_intermediate_size=1408, num_experts=60, num_experts_per_tok=4,
        shared_expert_intermediate_size=5632,
    ),
    "olmoe-7b": decoder("olmoe", 2048, 1024, 2, 16, 16, 50304, num_experts=64, num_experts_per_tok=8),
    "glm4.5-air": decoder(
        "glm4_moe", 4096, 10944, 2, 96, 8, 151552, head_dim=128, moe_intermediate_size=1408, n_routed_experts=32,
        n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, attention_bias=True, partial_rotary_factor=0.5,
    ),
    "gpt-j-6b": {
        "model_type": "gptj", "n_embd": 4096, "n_layer": 4, "n_head": 16, "rotary_dim": 64, "vocab_size": 50400, "n_positions": 2048,
        "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "activation_function": "gelu_new",
    },
    "starcoderbase": {
        "model_type": "gpt_bigcode", "n_embd": 2048, "n_layer": 4, "n_head": 16, "n_inner": 8192, "vocab_size": 49152, "n_positions": 8192,
        "multi_query": True, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "activation_function": "gelu_pytorch_tanh",
    },
    "nemotron-4b": decoder("nemotron", 3072, 9216, 4, 24, 8, 256000, head_dim=128, partial_rotary_factor=0.5, hidden_act="relu2"),
    "exaone4-1b": decoder("exaone4", 2048, 4096, 4, 32, 8, 102400, head_dim=64, sliding_window=4096, layer_types=["full_attention"] * 4, tie_word_embeddings=True),
    "ernie4.5-0.3b": decoder("ernie4_5", 1024, 3072, 4, 16, 2, 103424, head_dim=128, tie_word_embeddings=True),
    "helium-2b": decoder("helium", 2560, 7040, 4, 20, 20, 48000, head_dim=128),
    "arcee-4.5b": decoder("arcee", 2560, 18432, 4, 20, 4, 128004, head_dim=128),
    "granitemoe-1b": decoder(
        "granitemoe", 1024, 512, 2, 16, 8, 49155, num_local_experts=32, num_experts_per_tok=8, tie_word_embeddings=True,
    ),
    "hunyuan-1.8b": decoder("hunyuan_v1_dense", 2048, 6144, 4, 16, 4, 120818, head_dim=128, tie_word_embeddings=True),
    "apertus-8b": decoder("apertus", 4096, 21504, 4, 32, 8, 131072),
    "dots1": decoder(
        "dots1", 4096, 10944, 2, 32, 32, 152064, head_dim=128, moe_intermediate_size=1408, n_routed_experts=32, n_shared_experts=2,
        num_experts_per_tok=6, first_k_dense_replace=1,
    ),
    "lfm2-1.2b": decoder("lfm2", 2048, 12288, 4, 32, 8, 65536, layer_types=["conv", "conv", "full_attention", "conv"]),
    "bert-large": {
        "model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16, "intermediate_size": 4096,
        "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    },
    "roberta-base": {
        "model_type": "roberta", "hidden_size": 768, "num_hidden_layers": 4, "num_attention_heads": 12, "intermediate_size": 3072,
        "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "hidden_act": "gelu", "pad_token_id": 1,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    },
    "distilbert-base": {
        "model_type": "distilbert", "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522,
        "max_position_embeddings": 512,
    },
    "modernbert-base": {
        "model_type": "modernbert", "hidden_size": 768, "num_hidden_layers": 4, "num_attention_heads": 12, "intermediate_size": 1152,
        "vocab_size": 50368, "pad_token_id": 50283,
    },
    "t5-large": {
        "model_type": "t5", "d_model": 1024, "d_ff": 4096, "d_kv": 64, "num_heads": 16, "num_layers": 3, "num_decoder_layers": 3,
        "vocab_size": 32128, "feed_forward_proj": "relu", "dropout_rate": 0.1,
    },
    "flan-t5-large": {
        "model_type": "t5", "d_model": 1024, "d_ff": 2816, "d_kv": 64, "num_heads": 16, "num_layers": 3, "num_decoder_layers": 3,
        "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.1, "tie_word_embeddings": False,
    },
    "mamba2": {"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 4, "num_heads": 80, "head_dim": 64, "vocab_size": 50288},
}  # fmt: skip

TARGETS = {
    "phi-2": ["q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"],
    "phi-3-mini": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    "glm4-9b": [*ATTENTION, "gate_up_proj", "down_proj"],
    "starcoder2-3b": [*ATTENTION, "c_fc", "c_proj"],
    "gpt2": ["c_attn", "c_proj", "c_fc"], "gpt2-xl": ["c_attn"],
    "pythia-6.9b": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
    "opt-1.3b": ["q_proj", "v_proj"],
    "gpt-j-6b": [*ATTENTION[:3], "out_proj", "fc_in", "fc_out"], "starcoderbase": ["c_attn", "c_proj", "c_fc"],
    "lfm2-1.2b": ["q_proj", "k_proj", "v_proj", "out_proj", "w1", "w2", "w3"],
    **dict.fromkeys(("qwen1.5-moe", "olmoe-7b", "glm4.5-air", "granitemoe-1b", "dots1"), ATTENTION),
    **{name: [*ATTENTION, "up_proj", "down_proj"] for name in ("nemotron-4b", "arcee-4.5b", "apertus-8b")},
    "falcon-7b": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
    "bloom-7b1": ["query_key_value"],
    "qwen3-30b-a3b": ATTENTION, "mixtral-8x7b": ATTENTION, "gpt-oss-20b": ATTENTION,
    "deepseek-v3": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    "qwen3-next": ATTENTION, "mamba2": ["in_proj", "out_proj"],
}  # fmt: skip

FULL = {
    "method": "full",
    "weight_dtype": "bf16",
    "compute_dtype": "bf16",
    "optimizer": "adamw",
    "optimizer_implementation": "fused",
}
CHECKPOINTED = {"gradient_checkpointing": "full"}


ENCODERS = {
    "bert-large": "SequenceClassification",
    "roberta-base": "SequenceClassification",
    "distilbert-base": "SequenceClassification",
    "modernbert-base": "SequenceClassification",
    "t5-large": "Seq2SeqLM",
    "flan-t5-large": "Seq2SeqLM",
}
EAGER_ONLY = {"gemma2-2b", "bloom-7b1", "gpt-oss-20b", "mamba2", "t5-large", "flan-t5-large"}
"""Families whose classes refuse scaled_dot_product_attention."""


def run(family, batch, length, *, layers=None, beside=None, lora=None, **training):
    config = FAMILIES[family] if layers is None else FAMILIES[family] | {"num_hidden_layers": layers}
    if family in EAGER_ONLY:
        training = training | {"attn_implementation": "eager"}
    card = FULL | {"micro_batch_size": batch, "sequence_length": length} | training
    if lora is not None:
        card |= {
            "method": training.get("method", "lora"),
            "lora": {"rank": 16, "target_modules": TARGETS.get(family, LINEARS)} | lora,
        }
    return {"family": family, "config": config, "training": card} | (beside or {})


AUTOCAST = {"weight_dtype": "fp32", "compute_dtype": "bf16"}
PURE_FP32 = {"weight_dtype": "fp32", "compute_dtype": "fp32"}
QLORA = {"method": "qlora"}

CORE = [
    run(family, 2, 2048, **more)
    for family in ("llama-3.1-8b", "llama-2-7b", "qwen3-8b")
    for more in (
        {}, CHECKPOINTED, {"attn_implementation": "eager"}, CHECKPOINTED | {"attn_implementation": "eager"},
        AUTOCAST, AUTOCAST | CHECKPOINTED, PURE_FP32, PURE_FP32 | CHECKPOINTED,
        CHECKPOINTED | {"optimizer_implementation": "foreach"}, CHECKPOINTED | {"optimizer_implementation": "for_loop"},
        CHECKPOINTED | {"optimizer": "sgd"}, {"gradient_accumulation_steps": 2}, CHECKPOINTED | {"gradient_accumulation_steps": 2},
        {"beside": {"padded": True}}, CHECKPOINTED | {"beside": {"padded": True}}, CHECKPOINTED | {"beside": {"reentrant": True}},
        {"lora": {}}, {"lora": {}} | CHECKPOINTED, {"lora": {"dropout": 0.05}}, {"lora": {"dropout": 0.05}} | CHECKPOINTED,
        {"lora": {"dtype": "bf16"}}, {"lora": {"dtype": "bf16"}} | CHECKPOINTED, {"lora": {"dtype": "bf16", "dropout": 0.05}} | CHECKPOINTED,
        {"lora": {"target_modules": ["q_proj", "v_proj"]}}, {"lora": {"target_modules": ["q_proj", "v_proj"]}} | CHECKPOINTED,
        {"lora": {"target_modules": ["gate_proj", "up_proj", "down_proj"]}},
        {"lora": {"dropout": 0.05}, "beside": {"autocast": True}}, {"lora": {"dropout": 0.05}, "beside": {"autocast": True}} | CHECKPOINTED,
        {"lora": {}, "attn_implementation": "eager"} | CHECKPOINTED,
        {"lora": {}} | QLORA, {"lora": {}} | QLORA | CHECKPOINTED, {"lora": {"dropout": 0.1}} | QLORA | CHECKPOINTED,
        {"lora": {"dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}} | QLORA,
    )
]  # fmt: skip

LONG = [
    run(family, 1, length, **more)
    for family in ("llama-3.1-8b", "mistral-7b", "gemma2-2b", "phi-3-mini")
    for length in (8192, 32768)
    for more in (CHECKPOINTED, {"lora": {}} | CHECKPOINTED, {"lora": {"dropout": 0.05}} | QLORA | CHECKPOINTED)
]

BREADTH = [
    run(family, 2, 1024, **more)
    for family in FAMILIES
    if family not in ENCODERS
    and family not in {"qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "deepseek-v3", "qwen3-next", "mamba2"}
    for more in (
        {},
        CHECKPOINTED,
        AUTOCAST,
        {"lora": {}},
        {"lora": {"dropout": 0.05}} | CHECKPOINTED,
        {"attn_implementation": "eager"},
    )
]

ENCODED = [
    run(family, 8, 512, beside={"task": task}, **more)
    for family, task in ENCODERS.items()
    for more in (
        {},
        PURE_FP32 | {"attn_implementation": "eager"},
        AUTOCAST,
        CHECKPOINTED,
        {"lora": {"target_modules": ["q", "v"] if "t5" in family else ["query", "value"]}},
    )
    if "lora" not in more or family != "modernbert-base"
]

MIXTURES = [
    run(family, 1, 2048, **more)
    for family in ("qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "deepseek-v3", "qwen3-next", "mamba2")
    for more in ({}, CHECKPOINTED, {"lora": {}}, {"lora": {}} | CHECKPOINTED)
]

BLIND = [
    run(family, 2, 1280, **more)
    for family in (
        "qwen1.5-moe", "olmoe-7b", "glm4.5-air", "gpt-j-6b", "starcoderbase", "nemotron-4b", "exaone4-1b", "ernie4.5-0.3b",
        "helium-2b", "arcee-4.5b", "granitemoe-1b", "hunyuan-1.8b", "apertus-8b", "dots1", "lfm2-1.2b",
    )
    for more in ({}, {"lora": {"dropout": 0.05}} | CHECKPOINTED, AUTOCAST | CHECKPOINTED)
]  # fmt: skip

DEEP = [
    run("llama-3.1-8b", 1, 4096, layers=32, **CHECKPOINTED),
    run("llama-3.1-8b", 1, 2048, layers=32, lora={}),
    run("llama-3.2-1b", 4, 2048, layers=16),
    run("qwen2.5-7b", 1, 4096, layers=28, lora={}, **CHECKPOINTED),
    run("qwen2.5-0.5b", 8, 1024, layers=24),
    run("gemma-2b", 1, 2048, layers=18, **CHECKPOINTED),
    run("gpt2", 8, 1024),
]

ODDS = [
    run("llama-3.2-1b", 4, 256),
    run("llama-3.2-1b", 4, 256, **CHECKPOINTED),
    run("llama-3.2-1b", 1, 512, optimizer="sgd_momentum", **CHECKPOINTED),
    run("qwen2.5-7b", 1, 1024, lora={"modules_to_save": ["embed_tokens", "lm_head"]}, **CHECKPOINTED),
    run("llama-3.1-8b", 1, 1024, lora={"modules_to_save": ["lm_head"]}),
    run("llama-3.1-8b", 2, 1024, lora={"dora": True}),
    run("llama-3.1-8b", 2, 1024, lora={"dora": True, "dropout": 0.05}, **CHECKPOINTED),
    run("llama-2-7b", 4, 700, lora={"rank": 128}, **CHECKPOINTED),
    run("llama-3.1-8b", 2, 2048, lora={}, beside={"kbit_fp32": False}, **QLORA, **CHECKPOINTED),
    run("llama-3.1-8b", 2, 2048, lora={}, beside={"weights": "bnb-nf4"}, **QLORA),
    run(
        "llama-3.1-8b",
        2,
        2048,
        lora={"dtype": "bf16"},
        beside={"kbit_fp32": False, "autocast": False},
        **QLORA,
        **CHECKPOINTED,
    ),
]

DRAWS = 60
PACKED_EXPERTS = {"qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "deepseek-v3", "qwen3-next", "mamba2"}
"""Families whose experts are no linears, or whose record takes minutes: drawn without 4-bit bases."""


def drawn(number):
    """A configuration by lot: the number is the seed, so that the list is the same everywhere."""
    dice = random.Random(f"draw {number}")
    family = dice.choice([f for f in FAMILIES if f not in ENCODERS and f not in ("qwen3-next", "mamba2")])
    precision = dice.choice([{}, {}, AUTOCAST, PURE_FP32])
    more = dice.choice([{}, CHECKPOINTED]) | {"attn_implementation": dice.choice(["sdpa", "sdpa", "eager"])}
    more |= dice.choice(
        [{}, {"optimizer_implementation": "foreach"}, {"optimizer_implementation": "for_loop"}, {"optimizer": "sgd"},
         {"optimizer": "sgd_momentum"}]
    )  # fmt: skip
    if dice.random() < 0.3:
        more["gradient_accumulation_steps"] = 4
    lora = {"rank": dice.choice([4, 8, 32, 64]), "dropout": dice.choice([0.0, 0.0, 0.05])}
    method = dice.choice(["full", "full", "lora", "lora", "qlora"])
    if method == "qlora" and (family in PACKED_EXPERTS or family.startswith("gpt2") or family in MOE):
        method = "lora"
    if method == "lora" and precision is PURE_FP32:
        precision = {}
    if method == "qlora":
        precision, more = {}, more | QLORA
    batch = dice.choice([1, 1, 2, 3, 4])
    length = round(2 ** dice.uniform(7, 12.5 if more["attn_implementation"] == "sdpa" else 11))
    config = FAMILIES[family]
    length = min(length, config.get("n_positions", length), config.get("max_position_embeddings", length))
    layers = None if "n_layer" in config or "layer_types" in config else dice.choice([2, 3, 5])
    beside = {"reentrant": True} if "gradient_checkpointing" in more and dice.random() < 0.3 else {}
    return run(
        family, batch, length, layers=layers, lora=None if method == "full" else lora, beside=beside, **precision, **more
    )  # fmt: skip


MOE = {"qwen1.5-moe", "olmoe-7b", "glm4.5-air", "granitemoe-1b", "dots1"}

DRAWN = [drawn(number) for number in range(DRAWS)]

RUNS = [*DEEP[:2], *CORE, *ODDS, *BREADTH, *MIXTURES, *LONG, *DEEP[2:], *ENCODED, *BLIND, *DRAWN]
