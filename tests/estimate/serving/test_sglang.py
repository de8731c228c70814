"""SGLang's accounting: fractions by release, pools, what stands outside."""

from functools import cache

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.errors import ContradictoryWorkload
from tonnage.estimate import estimate
from tonnage.estimate.serving import account
from tonnage.spec.card import SizingCard

QWEN_7B = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


@cache
def catalog():
    return load_catalog()


def asked(serving, placement, config):
    request = {
        "model": config if isinstance(config, str) else {"config": config},
        "serving": {"engine": "sglang", "engine_version": "0.5.8", **(serving or {})},
        "placement": {"gpu": "h100-sxm", **(placement or {})},
    }
    return resolve(catalog(), msgspec.convert(request, SizingCard))


def answer(serving=None, placement=None, config=QWEN_7B):
    return account(asked(serving, placement, config))


def required(serving):
    return estimate(asked(serving, None, QWEN_7B)).required.expected


def fraction(found):
    return next(a.value for a in found.assumptions if a.field == "serving.gpu_memory_utilization")


@pytest.mark.parametrize(
    ("version", "ranks", "expected"),
    [("0.4.3", 1, 0.88), ("0.4.3", 4, 0.85), ("0.4.6", 2, 0.87), ("0.4.9", 1, 0.875), ("0.5.8", 1, 0.835)],
)
def test_the_default_fraction_follows_the_release(version, ranks, expected):
    found = answer({"engine_version": version}, {"tensor_parallel_size": ranks})

    assert expected == pytest.approx(fraction(found), abs=0.045)


def test_a_fraction_covers_weights_and_cache_of_what_is_free():
    found = answer({"gpu_memory_utilization": 0.8})
    phases = {p.phase: {i.component: i.bytes.expected for i in p.items} for p in found.loads[0].phases}
    load = phases["load"]
    inside = load["weights"] + load["buffers"] + found.kv_cache.pool.expected

    assert found.claimed_bytes == pytest.approx(inside, rel=1e-6)


def test_graphs_table_and_activations_stand_outside_the_fraction():
    found = answer()
    outside = {i.component for p in found.loads[0].phases for i in p.items if not i.inside_budget}

    assert {"cuda_graphs", "workspace", "activations", "logits", "device_context"} == outside


def test_tokens_are_the_pool_by_bytes_per_token():
    cache_ = answer().kv_cache

    assert 57_344 == cache_.bytes_per_token
    assert cache_.capacity_tokens.expected == cache_.pool.expected // 57_344


def test_disabled_graphs_are_not_captured():
    found = answer({"disable_cuda_graph": True})

    assert "cuda_graph" not in {p.phase for p in found.loads[0].phases}


def test_weights_that_use_the_fraction_up_are_refused():
    found = answer({"gpu_memory_utilization": 0.1})

    assert "excluded" in {f.status for f in found.findings}


def test_a_longest_request_beyond_the_pool_needs_confirmation_only():
    found = answer({"gpu_memory_utilization": 0.22, "max_model_len": 131_072})

    assert {"needs_confirmation"} == {f.status for f in found.findings}


def test_a_stated_request_beyond_the_pool_is_refused():
    found = answer(
        {"gpu_memory_utilization": 0.22, "max_model_len": 131_072, "input_tokens": 120_000, "output_tokens": 1000}
    )

    assert "excluded" in {f.status for f in found.findings}


GEMMA_3_1B = {
    "model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "head_dim": 256,
    "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 262144, "max_position_embeddings": 32768,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "sliding_window": 512, "sliding_window_pattern": 6,
}  # fmt: skip


def test_gemma_keeps_its_embedding_whole_on_every_rank():
    one, two = (weights(answer(placement={"tensor_parallel_size": ranks}, config=GEMMA_3_1B)) for ranks in (1, 2))

    assert two > one / 2 + 262_144 * 1152 * 0.9


def test_shared_experts_are_cloned_to_every_rank_in_the_releases_that_fused_them_by_clones():
    cloned, cut = (
        weights(answer({"engine_version": version}, {"tensor_parallel_size": 8}, "deepseek-ai/DeepSeek-R1"))
        for version in ("0.4.6", "0.4.9")
    )

    assert 58 * 3 * 7168 * 2048 * 7 / 8 == pytest.approx(cloned - cut, rel=0.03)


@pytest.mark.parametrize(("version", "tables"), [("0.4.4", 0), ("0.5.10", 32_768 * 256 * 4)])
def test_gemma_3_computed_its_rotary_embedding_before_0_5_10(version, tables):
    load = answer({"engine_version": version}, config=GEMMA_3_1B).loads[0].phases[0]

    assert tables == sum(i.bytes.expected for i in load.items if i.component == "buffers")


def test_early_releases_cut_the_fraction_of_multimodal_models_even_if_it_is_stated():
    pool, less, later = (
        answer(
            {"engine_version": version, "gpu_memory_utilization": stated}, config="google/gemma-3-4b-it"
        ).claimed_bytes
        for version, stated in (("0.5.8", 0.76), ("0.4.4", 0.8), ("0.4.8", 0.8))
    )

    assert pool == pytest.approx(less, rel=0.02)
    assert later < less


def weights(found):
    return next(i.bytes.expected for i in found.loads[0].phases[0].items if i.component == "weights")


def test_no_more_sizes_are_captured_than_requests_run():
    few, many = (graphs(answer({"max_num_seqs": n})) for n in (4, 256))

    assert few < many / 3


def graphs(found):
    captured = next(p for p in found.loads[0].phases if p.phase == "cuda_graph")
    return next(i.bytes.expected for i in captured.items if i.component == "cuda_graphs")


def test_a_window_has_a_pool_of_its_own_only_where_the_release_gives_the_model_one():
    before, with_pool = (
        answer({"engine_version": version}, config=GPT_OSS).kv_cache.bytes_per_token for version in ("0.5.3", "0.5.8")
    )
    gemma = answer(config=GEMMA_3_1B).kv_cache.bytes_per_token

    assert with_pool <= before
    assert gemma == 26 * 2 * 256 * 2


GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "head_dim": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 201088, "max_position_embeddings": 131072,
    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(("version", "expected"), [("0.5.2", 0.874), ("0.5.3", 0.835)])
def test_parts_make_the_reserve_from_0_5_3_on_and_the_board_before(version, expected):
    """81,559 MiB: 9.5 GiB + 0.5 GiB a rank before; 512 + 1.5 x 8192 + 2 x 256 + 128 MiB after."""
    assert expected == pytest.approx(fraction(answer({"engine_version": version})), abs=0.001)


@pytest.mark.parametrize(("method", "gibibytes"), [("eagle", 2), ("standalone", 6)])
def test_a_draft_takes_from_the_fraction_before_0_5_3_too(method, gibibytes):
    with_draft = {"engine_version": "0.5.2", "speculative": {"method": method, "num_speculative_tokens": 3}}
    fractions = [fraction(answer(serving)) for serving in ({"engine_version": "0.5.2"}, with_draft)]

    assert gibibytes * 1024 / 81559 == pytest.approx(fractions[0] - fractions[1], abs=0.001)


def test_a_tower_whose_config_says_depth_counts_as_24_layers():
    """Qwen2.5-VL has 32 layers of 1280: 0.95 x (1 - 0.1 x (24 x 1280^2 / (24 x 1024^2) - 1))."""
    plain = fraction(answer(config="Qwen/Qwen2.5-7B-Instruct"))
    found = fraction(answer(config="Qwen/Qwen2.5-VL-7B-Instruct"))

    assert 0.95 * 0.94375 == pytest.approx(found / plain, abs=1e-6)


@pytest.mark.parametrize(("version", "gpu", "ratio"), [
    ("0.5.5", "h100-sxm", 1.0), ("0.5.8", "h100-sxm", 1 / 0.9), ("0.5.8", "b200-sxm", 1.0), ("0.5.12", "b200-sxm", 1 / 0.9),
])  # fmt: skip
def test_windows_of_gpt_oss_get_a_pool_of_their_own_from_0_5_8_on_and_on_blackwell_later(version, gpu, ratio):
    found = answer({"engine_version": version}, {"gpu": gpu}, "openai/gpt-oss-20b")
    whole = 24 * 8 * 2 * 64 * 2

    assert ratio == pytest.approx(whole / found.kv_cache.bytes_per_token, rel=1e-4)


def test_a_draft_s_cache_is_part_of_a_token_from_0_5_14_on():
    serving = {"speculative": {"method": "eagle", "num_speculative_tokens": 3}, "gpu_memory_utilization": 0.8}
    before, after = (answer({"engine_version": version, **serving}) for version in ("0.5.12", "0.5.14"))

    assert before.kv_cache.bytes_per_token * 29 // 28 == after.kv_cache.bytes_per_token
    outside = [sum(i.component == "kv_cache" for i in found.loads[0].phases[-1].items) for found in (before, after)]
    assert [2, 1] == outside


def test_drafts_let_48_requests_run_where_no_limit_is_stated():
    found = answer({"speculative": {"method": "eagle", "num_speculative_tokens": 3}, "concurrency": 49})

    assert any("48 may run" in finding.reason for finding in found.findings)


def test_recurrent_states_were_512_before_they_became_a_share_of_the_pool():
    card = (
        {"gpu_memory_utilization": 0.85},
        {"gpu": "h200-sxm", "tensor_parallel_size": 4},
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
    )
    before, after = (answer({"engine_version": v, **card[0]}, *card[1:]).kv_cache for v in ("0.5.2", "0.5.4"))
    slots = int(after.detail.split()[0])

    assert before.detail.startswith("512 recurrent states")
    assert 0.9 == pytest.approx(
        slots * after.state_bytes_per_sequence / (after.capacity_tokens.expected * after.bytes_per_token), rel=1e-3
    )


@pytest.mark.parametrize(
    ("gpu", "length", "ratio"), [("mi300x", 32768, 0.85), ("mi300x", 8192, 1.0), ("r9700", 32768, 1.0)]
)
def test_amd_s_own_attention_kernels_cut_the_fraction_for_long_contexts(gpu, length, ratio):
    gpu = "radeon-ai-pro-r9700" if gpu == "r9700" else gpu
    found = answer({"gpu_memory_utilization": 0.8, "max_model_len": length}, {"gpu": gpu})
    load = {i.component: i.bytes.expected for i in found.loads[0].phases[0].items}
    free = load["weights"] + load["buffers"] + found.kv_cache.pool.expected

    assert found.claimed_bytes == pytest.approx(free, rel=1e-6)
    assert ratio == pytest.approx(found.claimed_bytes / (0.8 * (TOTALS[gpu] - load["device_context"])), rel=0.01)


@pytest.mark.parametrize(
    ("model", "version", "captured"),
    [
        ("Qwen/Qwen3-8B", "0.5.9", False), ("Qwen/Qwen3-8B", "0.5.10", True), ("Qwen/Qwen3-VL-8B-Instruct", "0.5.20", False),
        ("Qwen/Qwen3.5-35B-A3B", "0.5.15", False), ("Qwen/Qwen3.5-35B-A3B", "0.5.17", True),
        ("deepseek-ai/DeepSeek-V3", "0.5.15", False), ("deepseek-ai/DeepSeek-V3", "0.5.20", True),
    ],
)  # fmt: skip
def test_prefill_is_captured_where_release_and_model_allow_it(model, version, captured):
    found = answer({"engine_version": version}, {"gpu": "b200-sxm", "tensor_parallel_size": 8}, model)
    (graphs,) = [i for i in found.loads[0].phases[-1].items if i.component == "cuda_graphs"]

    assert captured == (" 0 prefill sizes" not in graphs.detail)


TOTALS = {"mi300x": 191.98 * 2**30, "radeon-ai-pro-r9700": 31.86 * 2**30}


@pytest.mark.parametrize(("weights", "element_bytes"), [("bf16", 2), ("fp8-block-128x128", 1)])
def test_latent_attention_keeps_copies_of_its_projections(weights, element_bytes):
    """w_kc and w_vc of eight ranks, and one fp32 rotary table of 163,840 positions."""
    request = {
        "model": "deepseek-ai/DeepSeek-V3", "weights": {"format": weights},
        "serving": {"engine": "sglang", "engine_version": "0.5.8"},
        "placement": {"gpu": "b300-sxm", "tensor_parallel_size": 8},
    }  # fmt: skip
    found = account(resolve(catalog(), msgspec.convert(request, SizingCard)))
    (buffers,) = [i for i in found.loads[0].phases[0].items if i.component == "buffers"]

    assert 61 * 512 * 16 * (128 + 128) * element_bytes + 163840 * 64 * 4 == buffers.bytes.expected


# ---- attention over data-parallel groups ----

GROUPED = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 4,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    "norm_topk_prob": True, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
ATTENTION = 4 * (2 * 4096 * 2048 + 2 * 512 * 2048)
EMBEDDING = 151936 * 2048


def grouped(groups=None, **serving):
    more = {} if groups is None else {"enable_dp_attention": True, "dp_size": groups}
    return answer({"gpu_memory_utilization": 0.8} | more | serving, {"tensor_parallel_size": 8}, GROUPED)


def test_attention_over_groups_keeps_its_tensors_and_the_embedding_whole_in_each():
    apart = weights(grouped(8)) - weights(grouped())
    kv_shared_by_two = 4 * 2 * 512 * 2048 // 8
    more = 2 * ((ATTENTION + EMBEDDING) * 7 // 8 - kv_shared_by_two)

    assert more == pytest.approx(apart, rel=0.01)


def test_groups_cache_their_own_requests():
    cut, whole = grouped(concurrency=64), grouped(8, concurrency=64)

    assert 4 * cut.kv_cache.bytes_per_token == whole.kv_cache.bytes_per_token
    assert cut.loads[0].demand_kv.expected == 2 * whole.loads[0].demand_kv.expected


def test_one_group_is_none():
    assert weights(grouped()) == weights(grouped(1))


def test_early_releases_have_a_group_for_every_rank_and_a_whole_head():
    early = grouped(engine_version="0.4.1", enable_dp_attention=True)
    one = grouped(engine_version="0.4.1")

    assert 2 * (ATTENTION + 2 * EMBEDDING) * 7 // 8 == pytest.approx(weights(early) - weights(one), rel=0.03)


@pytest.mark.parametrize("version", ["0.5.1", "0.5.9"])
def test_groups_take_from_the_default_fraction(version):
    found = [
        fraction(answer({"engine_version": version} | more, {"tensor_parallel_size": 8}, GROUPED))
        for more in ({}, {"enable_dp_attention": True, "dp_size": 8})
    ]

    assert found[1] < found[0]


def test_groups_that_do_not_divide_or_are_not_asked_for_contradict():
    with pytest.raises(ContradictoryWorkload, match="not divisible by dp_size 3"):
        grouped(3)
    with pytest.raises(ContradictoryWorkload, match=r"placement\.data_parallel_size"):
        grouped(dp_size=8)
    assert grouped(dp_size=1)


def test_requests_share_a_prefix_only_where_the_radix_cache_keeps_it():
    traffic = {"concurrency": 10, "input_tokens": 1000, "output_tokens": 200, "shared_prefix_tokens": 600}
    apart = {k: v for k, v in traffic.items() if k != "shared_prefix_tokens"}
    kept, without, plain = (
        required({"disable_radix_cache": off} | more)
        for off, more in ((False, traffic), (True, traffic), (True, apart))
    )

    assert 9 * 600 * 28 * 2 * 4 * 128 * 2 == without - kept
    assert plain == without
