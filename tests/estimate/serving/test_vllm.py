"""vLLM's accounting on small cards whose every term can be worked out by hand."""

from functools import cache

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate.serving import account
from tonnage.spec.card import SizingCard
from tonnage.units import GiB

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


@cache
def catalog():
    return load_catalog()


def workload(serving=None, placement=None, config=LLAMA_8B, **card):
    request = {
        "model": {"config": config},
        "serving": {"engine": "vllm", "engine_version": "0.19.0", **(serving or {})},
        "placement": {"gpu": "h100-sxm", **(placement or {})},
        **card,
    }
    return resolve(catalog(), msgspec.convert(request, SizingCard))


def answer(*args, **kwargs):
    return account(workload(*args, **kwargs))


def items(found, phase, load=0):
    phases = {p.phase: p.items for p in found.loads[load].phases}
    return {i.component: i for i in phases[phase]}


def expected(found, phase, *components):
    return sum(i.bytes.expected for i in items(found, phase).values() if i.component in components)


def test_the_parts_and_the_pool_add_up_to_the_budget():
    found = answer({"gpu_memory_utilization": 0.9})
    counted = expected(
        found,
        "profile",
        "weights",
        "buffers",
        "framework",
        "communication",
        "activations",
        "logits",
        "sampler",
        "workspace",
    )

    assert found.claimed_bytes == counted + found.kv_cache.pool.expected


def test_defaults_are_those_of_the_card_and_listed():
    found = answer()
    notes = {a.field: a.value for a in found.assumptions}

    assert 1024 == notes["serving.max_num_seqs"]
    assert 8192 == notes["serving.max_num_batched_tokens"]
    assert 0.9 == notes["serving.gpu_memory_utilization"]
    assert 131_072 == notes["serving.max_model_len"]


def test_an_a100_is_of_the_small_tier():
    notes = {a.field: a.value for a in answer(placement={"gpu": "a100-80-sxm"}).assumptions}

    assert 256 == notes["serving.max_num_seqs"]
    assert 2048 == notes["serving.max_num_batched_tokens"]


def test_the_pool_does_not_depend_on_the_longest_request():
    short, long = (answer({"max_model_len": n}).kv_cache.pool for n in (2048, 32_768))

    assert short == long


def test_fp8_cache_holds_twice_the_tokens():
    plain, half = (answer({"kv_cache_dtype": d}).kv_cache.capacity_tokens.expected for d in ("auto", "fp8_e4m3"))

    assert plain * 2 == pytest.approx(half, abs=32)


def test_a_request_longer_than_the_pool_is_refused_with_the_fraction_it_would_take():
    found = answer({"gpu_memory_utilization": 0.3, "max_model_len": 131_072})
    reasons = [f for f in found.findings if f.status == "excluded"]

    assert ["/serving/gpu_memory_utilization"] == [f.field for f in reasons]
    assert "max_model_len 131072" in reasons[0].reason


def test_a_budget_smaller_than_the_weights_leaves_no_blocks():
    found = answer({"gpu_memory_utilization": 0.15})

    assert "no available memory for the cache blocks" in found.findings[0].reason
    assert 0 == found.kv_cache.pool.expected


def test_demand_is_rounded_to_blocks_and_shares_prefixes():
    one = answer({"concurrency": 1, "input_tokens": 17, "output_tokens": 1}).loads[0].demand_kv.expected
    many = answer({"concurrency": 10, "input_tokens": 1000, "output_tokens": 24, "shared_prefix_tokens": 512})

    assert 2 * 16 * 131_072 == one
    assert (32 + 10 * 32) * 16 * 131_072 == many.loads[0].demand_kv.expected


def test_without_a_demand_one_longest_request_stands_for_it():
    assert 8192 * 131_072 == answer({"max_model_len": 8192}).loads[0].demand_kv.expected


def test_tensor_parallel_ranks_hold_half_the_weights_and_all_of_the_sampler():
    one, two = answer(), answer(placement={"tensor_parallel_size": 2})

    assert 0.5 == pytest.approx(expected(two, "load", "weights") / expected(one, "load", "weights"), abs=0.001)
    assert expected(one, "profile", "sampler") == expected(two, "profile", "sampler")


def test_stages_without_a_head_have_no_sampler_term():
    found = answer(placement={"pipeline_parallel_size": 2})

    assert 2 == len(found.loads)
    assert "sampler" not in items(found, "profile", 0)
    assert "sampler" in items(found, "profile", 1)


def test_eager_runs_capture_nothing():
    found = answer({"enforce_eager": True})

    assert "cuda_graph" not in {p.phase for p in found.loads[0].phases}


@pytest.mark.parametrize(("version", "inside"), [("0.19.0", False), ("0.20.2", True)])
def test_graphs_are_inside_the_budget_from_0_20(version, inside):
    found = answer({"engine_version": version})

    assert inside == items(found, "cuda_graph")["cuda_graphs"].inside_budget


@pytest.mark.parametrize(
    ("version", "units"), [("0.11.0", 9), ("0.19.0", 3), ("0.21.0", 3), ("0.24.0", 0), ("0.33.0", 3)]
)
def test_the_sampler_shrinks_and_grows_with_the_releases(version, units):
    unit = 4 * 1024 * 128_256
    sampler = expected(answer({"engine_version": version}), "profile", "sampler")

    assert units * unit == pytest.approx(sampler, abs=unit * 0.6)


def test_v0_chunks_long_contexts_only():
    # 20k fits, 29k fails, 35k fits again
    pools = {
        length: answer(
            {"engine_version": "0.6.4", "max_model_len": length, "gpu_memory_utilization": 0.9},
            {"gpu": "rtx-3090"},
        ).kv_cache
        for length in (20_000, 29_000, 35_000)
    }

    assert pools[20_000].max_concurrency > 1
    assert pools[29_000].max_concurrency < 1
    assert pools[35_000].max_concurrency > 1


def test_a_fixed_pool_is_taken_as_it_is():
    found = answer({"kv_cache_memory_bytes": "10 GiB"})

    assert 10 * GiB == found.kv_cache.pool.expected
    assert found.claimed_bytes is None


def test_slots_of_adapters_are_part_of_the_weights():
    found = answer({"lora": {"max_loras": 1, "max_lora_rank": 32}})

    assert 0.172 == pytest.approx(expected(found, "load", "lora_adapters") / GiB, abs=0.001)


def test_offloaded_weights_move_to_the_host():
    plain, moved = answer(), answer({"cpu_offload_gb": 4})

    assert 4 * GiB == expected(plain, "load", "weights") - expected(moved, "load", "weights")
    assert 4 * GiB == next(i for i in moved.host.items if i.component == "weights").bytes.expected


def test_without_a_card_there_is_no_pool_but_a_need():
    request = {"model": {"config": LLAMA_8B}, "serving": {"engine": "vllm", "max_model_len": 8192}}
    found = account(resolve(catalog(), msgspec.convert(request, SizingCard)))

    assert found.kv_cache.pool is None
    assert found.claimed_bytes is None
    assert 8192 * 131_072 == items(found, "idle")["kv_cache"].bytes.expected


def test_more_requests_than_slots_wait():
    found = answer({"concurrency": 300, "max_num_seqs": 256, "input_tokens": 100, "output_tokens": 100})

    assert any(f.field == "/serving/max_num_seqs" and f.status == "needs_confirmation" for f in found.findings)


def test_a_batch_smaller_than_its_requests_is_refused():
    found = answer({"max_num_seqs": 256, "max_num_batched_tokens": 128})

    assert any(f.field == "/serving/max_num_batched_tokens" and f.status == "excluded" for f in found.findings)


def test_a_newer_version_is_answered_with_the_newest_profile_and_needs_confirmation():
    found = answer({"engine_version": "1.0.0"})

    assert any(f.field == "/serving/engine_version" for f in found.findings)


def test_a_bare_count_gives_weights_only():
    request = {
        "model": {"parameters": 8_030_261_248},
        "serving": {"engine": "vllm", "max_model_len": 4096},
        "placement": {"gpu": "h100-sxm"},
    }
    found = account(resolve(catalog(), msgspec.convert(request, SizingCard)))

    assert 8_030_261_248 * 2 == expected(found, "load", "weights")
    assert any("parameter count" in text for text in found.unknowns)


QWEN_MOE_WITH_PREDICTION = {
    "model_type": "glm4_moe", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 32000,
    "max_position_embeddings": 8192, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_a_prediction_layer_is_loaded_with_the_model_and_cached_beside_it():
    serving = {"max_model_len": 4096}
    plain = answer(serving, config=QWEN_MOE_WITH_PREDICTION)
    drafting = answer(
        {**serving, "speculative": {"method": "mtp", "num_speculative_tokens": 1}}, config=QWEN_MOE_WITH_PREDICTION
    )

    assert "draft_model" not in items(plain, "load")
    assert expected(drafting, "load", "draft_model") > 0
    assert 5 * plain.kv_cache.bytes_per_token == 4 * drafting.kv_cache.bytes_per_token


def test_a_separate_draft_brings_its_weights_and_its_layers_of_cache():
    draft = {**LLAMA_8B, "num_hidden_layers": 2}
    found = answer({"speculative": {"method": "draft_model", "model": {"config": draft}, "num_speculative_tokens": 3}})

    assert expected(found, "load", "draft_model") > 2 * GiB
    assert 34 * 4096 == found.kv_cache.bytes_per_token


def test_prompt_lookup_adds_no_draft():
    found = answer({"speculative": {"method": "ngram", "num_speculative_tokens": 3}})

    assert "draft_model" not in items(found, "load")


@pytest.mark.parametrize(
    ("version", "serving", "placement", "legacy"),
    [
        ("0.8.1", {"lora": {"max_loras": 1}}, {}, True),
        ("0.8.3", {"lora": {"max_loras": 1}}, {}, False),
        ("0.8.5", {}, {"pipeline_parallel_size": 2}, True),
        ("0.9.0", {}, {"pipeline_parallel_size": 2}, False),
        ("0.8.1", {"kv_cache_dtype": "fp8"}, {}, True),
        ("0.8.5", {"kv_cache_dtype": "fp8"}, {}, False),
        ("0.10.0", {"kv_cache_dtype": "fp8"}, {"gpu": "a100-80-sxm"}, True),
        ("0.8.5", {}, {"gpu": "t4"}, True),
    ],
)
def test_settings_that_v1_does_not_support_yet_run_v0(version, serving, placement, legacy):
    found = answer({"engine_version": version, "max_model_len": 4096, **serving}, placement)

    assert legacy == any("pinned swap space" in item.detail for item in found.host.items)


@pytest.mark.parametrize(("card", "version", "tokens"), [("h100-sxm", "0.8.1", 8192), ("l40s", "0.8.1", 2048)])
def test_the_first_v1_releases_choose_the_batch_by_the_name_of_the_card(card, version, tokens):
    assumed = {a.field: a.value for a in answer({"engine_version": version}, {"gpu": card}).assumptions}

    assert tokens == assumed["serving.max_num_batched_tokens"]
    assert 1024 == assumed["serving.max_num_seqs"]


def hybrid(version, **serving):
    """Qwen3.6-27B on two cards with a cache of 4.99 GiB each, as a public start-up log of its successor prints it."""
    request = {
        "model": "Qwen/Qwen3.6-27B",
        "weights": {"format": "fp8-block-128x128"},
        "serving": {
            "engine": "vllm", "engine_version": version, "max_model_len": 131_072, "kv_cache_dtype": "fp8",
            "max_num_seqs": 2, "max_num_batched_tokens": 8192, "kv_cache_memory_bytes": int(4.99 * GiB), **serving,
        },
        "placement": {"gpu": "rtx-3090", "tensor_parallel_size": 2},
    }  # fmt: skip
    return account(resolve(catalog(), msgspec.convert(request, SizingCard)))


def test_a_prefix_cache_keeps_a_second_state_of_every_recurrent_group():
    # 208 blocks of 1,568 tokens; a request takes 84 and two for each of three groups
    assert 302_921 == hybrid("0.27.0").kv_cache.capacity_tokens.expected


@pytest.mark.parametrize(
    ("version", "asked", "states"), [("0.24.0", None, 1), ("0.24.0", True, 2), ("0.27.0", False, 1)]
)
def test_the_prefix_cache_of_hybrid_models_is_off_before_0_26_unless_asked_for(version, asked, states):
    found = hybrid(version, enable_prefix_caching=asked)

    assert pytest.approx(208 / (84 + 3 * states), abs=0.005) == found.kv_cache.max_concurrency


@pytest.mark.parametrize(
    ("version", "per_token"),
    [
        # 27 layers, 8 of 16 heads on the rank, keys and values of 256, of 192, then the latent of 512 + 64
        ("0.6.3", 27 * 8 * 2 * 256 * 2),
        ("0.7.0", 27 * 8 * 2 * 192 * 2),
        ("0.7.1", 27 * 576 * 2),
    ],
)
def test_before_0_7_1_mla_layers_cache_every_head(version, per_token):
    request = {
        "model": "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
        "serving": {"engine": "vllm", "engine_version": version, "max_model_len": 4096},
        "placement": {"gpu": "l40", "tensor_parallel_size": 2},
    }
    found = account(resolve(catalog(), msgspec.convert(request, SizingCard)))

    assert per_token == found.kv_cache.bytes_per_token


@pytest.mark.parametrize("seqs", [64, 250])
def test_the_v0_engine_keeps_the_states_of_all_requests_beside_its_pool(seqs):
    request = {
        "model": "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        "serving": {"engine": "vllm", "engine_version": "0.10.1", "max_num_seqs": seqs},
        "placement": {"gpu": "h100-sxm"},
    }
    found = account(resolve(catalog(), msgspec.convert(request, SizingCard)))
    captured = -(-seqs // 8) * 8

    assert captured * found.kv_cache.state_bytes_per_sequence == expected(found, "kv_allocation", "recurrent_state")
    assert 4 * 2 * 2 * 8 * 128 == found.kv_cache.bytes_per_token


def test_decoding_adds_the_logits_of_every_request():
    found = answer({"max_num_seqs": 64})

    assert 64 * 128_256 * 2 == expected(found, "decode", "logits")
    assert "activations" not in items(found, "decode")


def test_the_cache_says_how_many_of_the_stated_requests_it_holds():
    found = answer({"concurrency": 200, "input_tokens": 3000, "output_tokens": 500}, {"gpu": "rtx-4090"})
    blocks, each = found.kv_cache.blocks, 219

    assert f"{blocks // each} requests of 3500 tokens fit at once of 200 asked" in found.kv_cache.detail


def test_bfloat16_by_name_is_refused_on_cards_without_it():
    refused = answer({"dtype": "bfloat16", "max_model_len": 1024}, {"gpu": "t4"}).findings
    halved = answer({"dtype": "float16", "max_model_len": 1024}, {"gpu": "t4"}).findings

    assert ("excluded", "/serving/dtype") in {(f.status, f.field) for f in refused}
    assert "/serving/dtype" not in {f.field for f in halved}


def test_replicas_hold_the_same_on_ranks_of_their_own():
    found = answer({}, {"tensor_parallel_size": 2, "data_parallel_size": 3})

    assert (0, 1, 2, 3, 4, 5) == found.loads[0].ranks


MLA = {
    "model_type": "deepseek_v3", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1024, "max_position_embeddings": 4096,
    "q_lora_rank": 256, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "first_k_dense_replace": 2, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(("version", "card", "row", "block"), [
    ("0.7.3", "h200-sxm", 1280, 16),
    ("0.9.0", "h200-sxm", 1152, 64),
    ("0.9.0", "a100-80-sxm", 1152, 16),
    ("0.11.0", "b200-sxm", 1152, 128),
])  # fmt: skip
def test_latents_are_stored_in_the_rows_and_blocks_of_the_releases_kernel(version, card, row, block):
    cache = answer({"engine_version": version, "max_model_len": 2048}, {"gpu": card}, config=MLA).kv_cache

    assert 2 * row == cache.bytes_per_token
    assert block == cache.block_size


# Layers that keep a window and a compressed past. Given the pool, the logs of vllm-project/vllm#51041 (0.26: 1,009,661
# tokens) and #44376 (0.22: 6.66 GiB for 30,000 tokens, at most 13,528 in 5.44 GiB) print these.


def compressed(version, pool, **serving):
    settings = {
        "engine_version": version,
        "kv_cache_dtype": "fp8",
        "kv_cache_memory_bytes": round(pool * GiB),
        **serving,
    }
    request = {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash"}, "serving": {"engine": "vllm", **settings},
               "placement": {"gpu": "h20", "tensor_parallel_size": 2}}  # fmt: skip
    return account(resolve(catalog(), msgspec.convert(request, SizingCard)))


def test_windows_and_compressed_pasts_share_blocks_of_unequal_pages():
    found = compressed("0.22.0", 5.44, max_model_len=30_000, max_num_batched_tokens=16_384)
    assert found.kv_cache.detail.startswith("5 groups share the pool")
    assert found.loads[0].demand_kv.expected / GiB == pytest.approx(6.66, abs=0.005)
    assert found.kv_cache.largest_max_model_len == pytest.approx(13_528, abs=8)
    assert any(f.status == "excluded" and "max_model_len" in f.reason for f in found.findings)


@pytest.mark.parametrize(
    ("pool", "length", "batch", "tokens"), [(7.01, 912_128, 4_096, 1_009_661), (7.71, 121_344, 8_192, 150_992)]
)
def test_the_printed_concurrency_weighed_classes_by_bytes(pool, length, batch, tokens):
    found = compressed("0.26.0", pool, max_model_len=length, max_num_batched_tokens=batch)
    assert found.kv_cache.capacity_tokens.expected == pytest.approx(tokens, rel=0.002)


def test_since_0_29_a_block_costs_what_the_widest_group_needs():
    # 21 layers of 37,440 + 8,640 and 20 of 1,728 bytes; before, 22 of the first for the windows' groups.
    pool = 8 * 1_002_240 * 100 / GiB
    assert compressed("0.29.0", pool, max_model_len=4_096).kv_cache.blocks == pytest.approx(800, abs=1)
    assert compressed("0.28.0", pool, max_model_len=4_096).kv_cache.blocks == 800 * 1_002_240 // 1_039_680


@pytest.mark.parametrize(("version", "refused"), [("0.29.0", True), ("0.30.0", False)])
def test_a_cache_that_the_compressed_kernel_does_not_read_is_refused(version, refused):
    found = compressed(version, 20, max_model_len=4_096, kv_cache_dtype="auto")
    assert any(f.status == "excluded" and "fp8" in f.reason for f in found.findings) is refused


@pytest.mark.parametrize(("version", "uncertain"), [("0.10.0", True), ("0.19.0", False)])
def test_an_image_longer_than_a_request_is_profiled_whole_by_releases_with_one_engine(version, uncertain):
    found = account(resolve(catalog(), msgspec.convert({
        "model": {"id": "Qwen/Qwen2-VL-7B-Instruct"}, "placement": {"gpu": "h100-sxm"},
        "serving": {"engine": "vllm", "engine_version": version, "max_model_len": 8_192},
    }, SizingCard)))  # fmt: skip
    assert any("encoder's profile is uncertain" in f.reason for f in found.findings) is uncertain


@pytest.mark.parametrize(
    ("version", "videos", "tokens", "copied"),
    [
        ("0.10.2", None, 16_384, 0),
        ("0.11.0", None, 12_288, 153_600),
        ("0.11.0", 0, 16_384, 0),
        ("0.13.0", None, 16_384, 0),
    ],
)
def test_a_qwen_3_video_fills_an_encoder_budget_of_more_than_its_tokens(version, videos, tokens, copied):
    """Three levels of the tower beside its output, and the pixels of the tokens' patches."""
    multimodal = {} if videos is None else {"multimodal": {"videos_per_prompt": videos}}
    found = account(resolve(catalog(), msgspec.convert({
        "model": {"id": "Qwen/Qwen3-VL-8B-Instruct"}, "placement": {"gpu": "h100-sxm"},
        "serving": {"engine": "vllm", "engine_version": version, "max_model_len": 32_768} | multimodal,
    }, SizingCard)))  # fmt: skip
    pixels = 4 * tokens * 3 * 16 * 16 * 2 * 2

    assert expected(found, "profile", "vision_encoder") == (tokens + copied) * 4 * 4_096 * 2 + pixels


@pytest.mark.parametrize(("version", "tokens"), [("0.10.0", 4_096), ("0.11.0", 2_048)])
def test_old_cards_run_v1_once_v0_is_gone(version, tokens):
    found = answer({"engine_version": version, "dtype": "float16", "max_model_len": 4_096}, {"gpu": "t4"})
    assert expected(found, "profile", "activations") == (tokens + 256 + 256) * 4_096 * 2  # the batch, 256 rows twice


@pytest.mark.parametrize(
    ("version", "graphs", "outside"), [("0.2.4", False, 0), ("0.2.5", False, 1), ("0.2.6", True, 1)]
)
def test_the_first_releases_captured_nothing_and_counted_tensors_only(version, graphs, outside):
    found = answer({"engine_version": version, "max_model_len": 2048})
    held = {item.component: item.bytes.expected for p in found.loads[0].phases for item in p.items}

    assert graphs is ("cuda_graphs" in held)
    assert outside == (held.get("framework", 0) > 0)


@pytest.mark.parametrize(("version", "component"), [("0.26.0", "workspace"), ("0.27.0", "framework")])
def test_what_experts_keep_is_printed_as_consumed_by_releases_that_charge_by_free_memory(version, component):
    mixture = {
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
        "max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    found = answer({"engine_version": version}, config=mixture)
    kept = 8192 * 8 * 2 * (2048 + 2048)

    assert kept <= expected(found, "profile", component)


ENCODER = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 8192,
    "type_vocab_size": 2, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_a_model_without_a_decoder_samples_nothing_and_takes_a_request_whole():
    small, large = (answer({"max_model_len": length}, {"gpu": "a100-80-sxm"}, ENCODER) for length in (1024, 8192))
    notes = [{a.field: a.value for a in found.assumptions} for found in (small, large)]

    assert [2048, 8192] == [n["serving.max_num_batched_tokens"] for n in notes]
    for found in (small, large):
        assert not {"logits", "sampler"} & {i.component for p in found.loads[0].phases for i in p.items}
    short, long = (expected(found, "profile", "activations") for found in (small, large))
    assert 2048 * (768 + 3072) * 2 < short < long
