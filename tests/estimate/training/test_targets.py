"""Target names of every framework against the linears of a model."""

import pytest
from asking import LLAMA

from tonnage.architecture import read_config
from tonnage.estimate.training.targets import adapted_linears, default_targets, scaled_targets

ATTENTION = {"q", "k", "v", "o"}
FEED = {"gate", "up", "down"}
QWEN_1 = {
    "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
    "kv_channels": 128, "vocab_size": 151936, "no_bias": True, "seq_length": 8192, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257, "n_positions": 1024}
MIXTURE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "tie_word_embeddings": False,
}  # fmt: skip


def roles(config, *targets, experts=False):
    return {a.role for a in adapted_linears(read_config(config), targets, experts)}


def parameters(config, *targets, rank=16, experts=False):
    found = adapted_linears(read_config(config), targets, experts)
    return sum(rank * (a.in_features + a.out_features) * a.copies for a in found)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (("q_proj", "v_proj"), {"q", "v"}),
        (("q", "v"), {"q", "v"}),
        (("query", "value"), {"q", "v"}),
        (("wq", "wv", "wo"), {"q", "v", "o"}),
        (("self_attn.q_proj",), {"q"}),
        (("q", "k", "v", "proj", "mlp", "head"), ATTENTION | FEED | {"head"}),
        (("w1", "w2", "w3"), FEED),
        (("q_proj", "k_proj", "v_proj", "output_proj", "w1", "w2", "w3", "output"), ATTENTION | FEED | {"head"}),
        (("all-linear",), ATTENTION | FEED),
        (("lm_head",), {"head"}),
        (("gate_up_proj",), {"gate", "up"}),
        (("nonsense",), set()),
    ],
)
def test_spellings_of_llama(targets, expected):
    assert roles(LLAMA, *targets) == expected


def test_published_counts_of_llama():
    assert parameters(LLAMA, "q_proj", "v_proj", rank=8) == 3_407_872
    assert parameters(LLAMA, "all-linear", rank=16) == 41_943_040


def test_qwen_1_calls_its_second_gate_w2():
    assert roles(QWEN_1, "c_attn", "c_proj", "w1", "w2") == {"qkv", "o", "down", "up", "gate"}


def test_c_proj_of_gpt_2_is_two_linears():
    assert parameters(GPT2, "c_attn", rank=8) == 8 * (768 + 3 * 768) * 12
    assert roles(GPT2, "c_proj") == {"o", "down"}


def test_part_of_a_fused_matrix_has_its_own_width():
    found = adapted_linears(read_config(GPT2), ("q", "v"), experts_are_linears=False)

    assert [(a.role, a.out_features) for a in found] == [("q", 768), ("v", 768)]


def test_experts_are_linears_before_transformers_5():
    before, after = parameters(MIXTURE, "all-linear", experts=True), parameters(MIXTURE, "all-linear")

    assert before - after == 16 * (48 * 128 * 3 * (2048 + 768) + 48 * (2048 + 128))


def test_expert_stacks_are_named():
    assert roles(MIXTURE, "experts") >= {"expert_down"}


def test_peft_chooses_by_model_type():
    assert default_targets(read_config(LLAMA)) == ("q_proj", "v_proj")
    assert default_targets(read_config(GPT2)) == ("c_attn",)
    assert scaled_targets(read_config(LLAMA)) == ("k_proj", "v_proj", "down_proj")
    assert scaled_targets(read_config(GPT2)) == ("query_key_value", "down_proj")
