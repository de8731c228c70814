"""Which tensors a format quantizes: defaults of the families, and what a checkpoint lists itself."""

import pytest
from tests.estimate.stock import FORMATS, LLAMA_8B, golden, model

from tonnage.estimate.module_names import ModuleNames, module_paths
from tonnage.estimate.quantization import stored_tensors
from tonnage.estimate.weights import stage_weights

MOE = golden("vllm_meta_device.json")["cases"]["qwen3-30b-a3b"]["config"]
LAYER = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def quantized(config, name=None):
    """Parameters that take the quantized format."""
    read = model(config)
    return stage_weights(read, FORMATS[name or read.weight_format], FORMATS)[0].quantized_parameters


def listed(*names, key="modules_to_not_convert", base=FP8, config=LLAMA_8B):
    return quantized(config | {"quantization_config": base | {key: list(names)}})


@pytest.mark.parametrize("name", ["fp8-block-128x128", "awq-w4-g128", "bnb-nf4-dq", "int8-w8a8", "nvfp4"])
def test_linears_are_quantized_and_embedding_head_and_norms_stay(name):
    assert 32 * LAYER == quantized(LLAMA_8B, name)


def test_mlx_quantizes_embedding_and_head_too():
    assert 32 * LAYER + 2 * 128256 * 4096 == quantized(LLAMA_8B, "mlx-4bit-g64")


def test_routers_stay_plain():
    read = model(MOE)
    plain = [s.tensor.component for s in stored_tensors(read, FORMATS["fp8-block-128x128"]) if s.format.kind == "plain"]

    assert "router" in plain
    assert "routed_experts" not in plain


def test_nvfp4_quantizes_experts_alone_where_there_are_any():
    assert 48 * 128 * 3 * 2048 * 768 == quantized(MOE, "nvfp4")


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["model.layers.0.self_attn"], LAYER - 3 * 4096 * 14336),
        (["model.layers.0.mlp.down_proj", "model.layers.31.mlp.down_proj"], 2 * 4096 * 14336),
        (["mlp"], 32 * 3 * 4096 * 14336),
        (["down_proj"], 32 * 4096 * 14336),
        (["re:.*mlp.*"], 32 * 3 * 4096 * 14336),
        (["re:model\\.layers\\.[01]\\..*"], 2 * LAYER),
        (["model.layers.*.self_attn"], 0),
        (["model.layers.*.self_attn*"], 32 * (LAYER - 3 * 4096 * 14336)),
        (["lm_head", "gate"], 0),
        (["re:("], 0),
    ],
)
def test_modules_a_checkpoint_lists_stay_plain(names, left):
    assert 32 * LAYER - left == listed(*names)


def test_a_glob_without_end_covers_the_modules_below_in_gpt_oss_lists():
    config = golden("vllm_meta_device.json")["cases"]["gpt-oss-20b mxfp4"]["config"]
    own = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.embed_tokens"]}

    assert 24 * 32 * 3 * 2880 * 2880 == quantized(config | {"quantization_config": own})


@pytest.mark.parametrize("key", ["ignore", "exclude_modules", "ignored_layers", "llm_int8_skip_modules"])
def test_every_quantizers_spelling_of_the_list_is_read(key):
    assert 32 * (LAYER - 4096 * 14336) == listed("down_proj", key=key)


def test_gptq_dynamic_rules_that_begin_with_a_minus_leave_modules_plain():
    own = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*down_proj.*": {}}}

    assert 32 * (LAYER - 4096 * 14336) == quantized(LLAMA_8B | {"quantization_config": own})


def test_a_checkpoints_own_list_does_not_bind_another_format():
    config = LLAMA_8B | {"quantization_config": FP8 | {"modules_to_not_convert": ["mlp"]}}

    assert 32 * LAYER == quantized(config, "awq-w4-g128")


def test_a_mixed_checkpoint_stores_each_group_in_its_own_format():
    groups = {
        "group_0": {
            "targets": ["re:.*self_attn.*"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
        },
        "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    }
    read = model(LLAMA_8B | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}})
    stored = stored_tensors(read, FORMATS["nvfp4"], FORMATS)
    by_role = {s.tensor.role: s.format.id for s in stored if s.tensor.linear}

    assert "fp8-per-channel-dynamic" == by_role["q"]
    assert "nvfp4" == by_role["down"]
    assert ["bf16"] == [s.format.id for s in stored if s.tensor.component == "lm_head"]


def test_a_plain_pattern_matches_whole_parts_of_a_name_only():
    gate = ModuleNames(["gate"])

    assert gate.match(module_paths("mlp.gate.weight", 3))
    assert not gate.match(module_paths("mlp.gate_proj.weight", 3))


def test_the_fbgemm_recipe_leaves_attention_plain_though_its_list_names_one_layer():
    # Llama 3.1 405B as first published (16 key-value heads) on eight ranks: 57.752 GiB in the log of vLLM issue 6746
    own = {"quant_method": "fbgemm_fp8"}
    found = listed("model.layers.0.self_attn.q_proj", base=own)

    assert 32 * 3 * 4096 * 14336 == found


V4 = {
    "model_type": "deepseek_v4", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 1024,
    "head_dim": 128, "q_lora_rank": 256, "o_lora_rank": 128, "o_groups": 2, "moe_intermediate_size": 256,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "qk_rope_head_dim": 64, "compress_ratios": [0, 4],
    "index_head_dim": 128, "index_n_heads": 8, "index_topk": 64, "num_nextn_predict_layers": 0,
    "max_position_embeddings": 4096, "quantization_config": FP8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("stated", "bytes_per_32"), [({}, 17), ({"expert_dtype": "fp4"}, 17), ({"expert_dtype": "fp8"}, 32)]
)
def test_experts_of_deepseek_v4_are_fp4_unless_the_config_says_otherwise(stated, bytes_per_32):
    read = model(V4 | stated)
    found = stage_weights(read, FORMATS[read.weight_format], FORMATS)[0].bytes_by_component["routed_experts"]
    elements = 2 * 4 * 3 * 512 * 256

    assert bytes_per_32 * elements // 32 == pytest.approx(found, rel=0.001)
