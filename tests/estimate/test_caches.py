"""Caches against what vLLM's cache specs and Hugging Face's caches hold."""

import pytest
from tests.estimate.stock import BF16, FORMATS, KV_FORMATS, LLAMA_8B, LLAMA_70B, golden, model

from tonnage.estimate import caches

META = golden("vllm_meta_device.json")["cases"]


@pytest.mark.parametrize("name", META)
def test_token_and_state_bytes_are_those_of_vllms_cache_specs(name):
    case = META[name]
    kind = KV_FORMATS[case.get("kv_format", "kv-bf16")]
    read, ranks = model(case["config"]), case["tensor_parallel_size"]

    assert case["token_bytes"] == caches.token_bytes(read, kind, kind, tensor_parallel_size=ranks)
    assert 2 * case["state_elements"] == caches.state_bytes_per_sequence(
        read, conv_bytes=2, state_bytes=2, tensor_parallel_size=ranks
    )


@pytest.mark.parametrize(
    ("config", "ranks", "expected"),
    [
        (LLAMA_8B, 1, 131_072),
        (LLAMA_8B, 4, 32_768),
        (LLAMA_70B, 1, 327_680),
        (META["deepseek-v3 MLA tp8"]["config"], 1, 70_272),
        (META["deepseek-v3 MLA tp8"]["config"], 8, 70_272),
        (META["qwen3-30b-a3b"]["config"], 1, 98_304),
    ],
)
def test_published_cache_sizes_per_token_come_out(config, ranks, expected):
    assert expected == caches.token_bytes(model(config), BF16, BF16, tensor_parallel_size=ranks)


def test_sliding_and_full_layers_of_gpt_oss_are_told_apart():
    read = model(META["gpt-oss-20b"]["config"])
    per_layer = 8 * 2 * 64 * 2

    assert 24 * per_layer == caches.token_bytes(read, BF16, BF16)
    assert 12 * per_layer * (128 + 32_768) == caches.sequence_bytes(read, 32_768, BF16, BF16)


def test_within_the_window_a_sliding_layer_costs_what_a_full_one_does():
    read = model(META["gpt-oss-20b"]["config"])

    assert 100 * caches.token_bytes(read, BF16, BF16) == caches.sequence_bytes(read, 100, BF16, BF16)


def test_keys_and_values_may_differ():
    read = model(LLAMA_8B)

    assert 32 * 8 * (4 * 34 + 4 * 18) == caches.token_bytes(read, KV_FORMATS["kv-q8_0"], KV_FORMATS["kv-q4_0"])


def test_layers_of_a_stage_keep_only_their_own_caches():
    read = model(LLAMA_8B)

    assert 131_072 // 4 == caches.token_bytes(read, BF16, BF16, layers=tuple(range(8)))


DEEPSEEK_V4 = {
    "model_type": "deepseek_v4", "head_dim": 512, "hc_mult": 4, "hidden_size": 4096, "index_head_dim": 128,
    "index_n_heads": 64, "index_topk": 512, "max_position_embeddings": 1048576, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 64, "num_experts_per_tok": 6,
    "num_hidden_layers": 43, "num_hash_layers": 3, "num_key_value_heads": 1, "o_groups": 8, "o_lora_rank": 1024,
    "q_lora_rank": 1024, "qk_rope_head_dim": 64, "sliding_window": 128, "vocab_size": 129280,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4], "torch_dtype": "bfloat16",
}  # fmt: skip


def test_a_compressed_cache_grows_by_the_share_of_an_entry_and_keeps_its_window():
    read = model(DEEPSEEK_V4)
    latent, index = 1024, 132

    assert 2 * latent + 21 * (latent + index) // 4 + 20 * latent // 128 == caches.token_bytes(read, BF16, BF16)
    assert 43 * 128 * latent + 21 * 250_000 * (latent + index) + 20 * 7813 * latent == caches.sequence_bytes(
        read, 1_000_000, BF16, BF16
    )
    assert 21 * (65_536 + 16_384) + 20 * 524_288 == caches.state_bytes_per_sequence(read)


def test_a_model_without_recurrent_layers_keeps_no_state():
    assert 0 == caches.state_bytes_per_sequence(model(LLAMA_8B))


def test_auto_is_the_models_own_dtype():
    assert BF16.row_bytes(128) == caches.plain_kv_format("bf16").row_bytes(128)
    assert 512 == caches.plain_kv_format("fp32").row_bytes(128)


def test_formats_of_tests_are_the_catalogues():
    assert {"bf16", "fp8-block-128x128", "gguf-q4-k-m", "bnb-nf4-dq"} <= set(FORMATS)
    assert "kv-fp8-e4m3" in KV_FORMATS
