"""What a request leaves open stays inside the bands: installed kernels, the other engine, exclusion lists, adapters' slots."""

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
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_8B = {
    "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
    "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "kv_lora_rank": 512,
    "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
    "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
    "max_position_embeddings": 163840, "tie_word_embeddings": False, "torch_dtype": "float16",
}  # fmt: skip


@cache
def catalog():
    return load_catalog()


def answer(version, config=LLAMA_8B, gpu="h100-sxm", ranks=1, weights=None, **serving):
    request = {
        "model": config if isinstance(config, str) else {"config": config},
        "serving": {"engine": "vllm", "engine_version": version, **serving},
        "placement": {"gpu": gpu, "tensor_parallel_size": ranks},
    }
    if weights is not None:
        request["weights"] = {"format": weights}
    return account(resolve(catalog(), msgspec.convert(request, SizingCard)))


def item(found, component, phase="profile"):
    phases = {p.phase: p.items for p in found.loads[0].phases}
    return next((i for i in phases[phase] if i.component == component), None)


LORA = {"max_loras": 1, "max_lora_rank": 32}


def test_slots_made_after_the_printed_weights_are_in_no_budget_of_0_7():
    without = answer("0.7.3", gpu="t4", max_model_len=2048, dtype="float16")
    found = answer("0.7.3", gpu="t4", max_model_len=2048, dtype="float16", lora=LORA)

    assert item(found, "lora_adapters") is None
    assert 0.172 == pytest.approx(item(found, "adapter_slots").bytes.expected / GiB, abs=0.001)
    assert not item(found, "adapter_slots").inside_budget
    assert without.kv_cache.pool.expected == found.kv_cache.pool.expected


@pytest.mark.parametrize("version", ["0.6.4", "0.8.1", "0.8.5"])
def test_slots_are_counted_before_and_after(version):
    found = answer(version, gpu="t4", max_model_len=2048, dtype="float16", lora=LORA)

    assert 0.172 == pytest.approx(item(found, "lora_adapters").bytes.expected / GiB, abs=0.001)


@pytest.mark.parametrize(("version", "gib"), [("0.10.2", 0.1626), ("0.16.0", 0.1812)])
def test_embedding_and_head_have_slots_in_some_classes_only(version, gib):
    found = answer(version, QWEN3_8B, lora=LORA)

    assert gib == pytest.approx(item(found, "lora_adapters").bytes.expected / GiB, abs=0.0005)


def test_experts_have_slots_since_0_11_1():
    before, after = (item(answer(v, DEEPSEEK_V2_LITE, lora=LORA), "lora_adapters") for v in ("0.11.0", "0.11.1"))

    assert 26 * 64 * 3 * (2048 + 1408) * 32 * 2 == after.bytes.expected - before.bytes.expected


@pytest.mark.parametrize(("version", "open_"), [("0.9.2", True), ("0.11.0", True), ("0.16.0", True), ("0.17.0", False)])
def test_a_sorting_sampler_may_be_replaced_by_an_installed_one(version, open_):
    found = answer(version)
    sampler = item(found, "sampler").bytes
    unit = 4 * 1024 * 128_256

    assert open_ == (sampler.low < sampler.expected - 5 * unit)
    assert sampler.high < 1.1 * sampler.expected
    assert open_ == (found.kv_cache.pool.high > found.kv_cache.pool.expected + 5 * unit)


def test_ranks_without_logits_print_more_than_the_first():
    found = answer("0.7.3", ranks=2, max_model_len=8192)
    first, other = found.loads
    profile = [sum(i.bytes.expected for i in load.phases[1].items) for load in (first, other)]

    assert found.kv_cache.pool.expected + profile[0] - profile[1] <= found.kv_cache.pool.high


def test_while_v1_counts_the_context_the_other_engine_is_inside_the_band():
    assert item(answer("0.8.5"), "framework").bytes.low < 0.2 * GiB
    assert item(answer("0.9.0"), "framework").bytes.low > 0.05 * GiB


def test_latent_attention_chunks_long_contexts_too():
    assumed = {a.field: a.value for a in answer("0.7.3", DEEPSEEK_V2_LITE).assumptions}

    assert 2048 == assumed["serving.max_num_batched_tokens"]


@pytest.mark.parametrize(("gpu", "least"), [("gb10", 1.2), ("rtx-4090", 0)])
def test_a_host_that_shares_its_memory_counts(gpu, least):
    grown = item(answer("0.27.0", QWEN3_8B, gpu=gpu), "framework").bytes

    assert least < grown.expected / GiB < least + 1.0
    assert (gpu == "gb10") == (grown.high > 3 * GiB)


def test_gpt_oss_captures_up_to_1024_whatever_its_requests():
    found = answer("0.19.0", "openai/gpt-oss-20b", max_num_seqs=8)

    assert item(found, "cuda_graphs", "cuda_graph").detail.startswith("83 sizes up to 1024")


def test_a_list_of_what_stays_in_16_bit_that_is_not_stated_widens_the_weights_upwards():
    weights = item(answer("0.9.2", weights="bnb-nf4"), "weights").bytes

    assert weights.high - weights.expected > 3 * (weights.expected - weights.low)


@pytest.mark.parametrize(("version", "more"), [("0.11.0", 0.03), ("0.12.0", 0.02)])
def test_marlin_may_pad_mxfp4_more_where_the_kernels_are_optional(version, more):
    weights = item(answer(version, "openai/gpt-oss-120b"), "weights").bytes

    assert more == pytest.approx(weights.high / weights.expected - 1, abs=0.002)


@pytest.mark.parametrize(("version", "times"), [("0.7.2", 1), ("0.8.5", 4)])
def test_multimodal_rotary_tables_reserve_four_times_the_positions(version, times):
    config = QWEN3_8B | {"rope_scaling": {"type": "mrope", "mrope_section": [24, 20, 20]}}
    plain, stacked = (item(answer(version, c), "buffers").bytes.expected for c in (QWEN3_8B, config))

    assert (times - 1) * 40960 * 128 * 2 == stacked - plain


@pytest.mark.parametrize(("version", "times"), [("0.18.0", 4), ("0.27.1", 4)])
def test_tables_are_multimodal_where_the_config_leaves_out_that_they_are(version, times):
    buffers = item(answer(version, "Qwen/Qwen3.5-9B"), "buffers").bytes.expected

    assert times * 262_144 * 64 * 2 <= buffers < (times + 0.5) * 262_144 * 64 * 2


def test_recurrent_kernels_may_be_tuned_only_when_captured():
    recurrent, plain = (
        item(answer("0.20.0", model, max_num_seqs=1), "cuda_graphs", "cuda_graph").bytes
        for model in ("Qwen/Qwen3.5-9B", QWEN3_8B)
    )

    assert 550_000_000 == recurrent.high - recurrent.expected
    assert plain.high < 2 * plain.expected


def test_scores_of_an_indexer_are_part_of_full_graphs():
    short, long = (
        item(answer("0.26.0", "zai-org/GLM-5", gpu="b200-sxm", ranks=8, max_model_len=n), "cuda_graphs", "cuda_graph")
        for n in (65_536, 131_072)
    )

    assert 512 * 65_536 * 4 == pytest.approx(long.bytes.expected - short.bytes.expected, rel=0.001)


def test_a_sampler_that_leads_may_leave_pieces_that_its_warm_up_cannot_use():
    pieces = item(answer("0.19.0"), "fragmentation", "prefill")

    assert 0 == pieces.bytes.low == pieces.bytes.expected
    assert 1.1 * GiB < pieces.bytes.high < 1.2 * GiB
    assert item(answer("0.24.0"), "fragmentation", "prefill") is None
