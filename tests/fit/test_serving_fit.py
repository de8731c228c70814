"""Real models under a real engine: what holds for every package."""

import msgspec
import pytest
from fit_requests import catalog, offered, reasons, request, sku, statuses

from tonnage.catalog import resolve
from tonnage.estimate import estimate
from tonnage.fit import fit
from tonnage.spec.card import SizingCard

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LARGE = "meta-llama/Llama-3.1-70B-Instruct"


def answer(model=LLAMA, **fields):
    serving = fields.pop("serving", {"engine": "vllm", "max_model_len": 8192, "concurrency": 8})
    return fit(catalog(), request(**{"model": model, "weights": {}, "reserve": 0, "serving": serving} | fields))


def test_a_real_card_over_the_whole_catalogue_selects_the_cheapest_that_is_met_in_full():
    found = answer(requirements={"duration": "3 days"})
    met = [c for c in found.candidates if c.status == "met"]

    assert found.selected is not None
    assert {"met"} == set(statuses(found.selected).values())
    assert not met or found.selected.sku == met[0].sku
    assert found.considered.met > 0


def test_no_candidate_stands_on_a_gpu_whose_capacity_the_weights_exceed():
    found = answer(LARGE, requirements={"duration": "3 days"}, limit=500)

    assert found.candidates
    assert all(c.memory.required.low <= c.memory.usable_bytes for c in found.candidates)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_layouts_use_what_the_package_has(count):
    found = answer(offer=offered(sku(gpu="h100-sxm", gpus_per_host=count)))
    placement = found.candidates[0].placement

    assert count == placement.gpus
    assert count == placement.tensor_parallel_size


def test_six_gpus_are_used_in_a_way_that_divides():
    found = answer(LARGE, offer=offered(sku(gpu="h100-sxm", gpus_per_host=6)))
    placement = found.candidates[0].placement

    assert placement.gpus <= 6
    assert 64 % placement.tensor_parallel_size == 0


def test_weights_that_exceed_a_gpu_are_said_to():
    found = answer(LARGE, offer=offered(sku(gpu="l4", gpus_per_host=1)))

    assert "of weights alone" in found.excluded[0].reason
    assert found.excluded[0].example.memory is not None


def test_several_hosts_are_stages_not_wider_tensor_parallelism():
    package = sku(gpu="l40s", gpus_per_host=2, max_hosts=4, interconnect="PCIe + 400 Gb/s")
    found = answer(LARGE, offer=offered(package), requirements={"duration": 1})

    assert all(c.placement.tensor_parallel_size <= 2 for c in found.candidates)
    assert any(c.hosts > 1 and c.placement.pipeline_parallel_size > 1 for c in found.candidates)


def test_an_unnamed_network_between_hosts_needs_confirmation():
    found = answer(LARGE, offer=offered(sku(gpu="l40s", gpus_per_host=2, max_hosts=4, interconnect="PCIe")))

    assert "needs_confirmation" == statuses(found.candidates[0])["interconnect"]


@pytest.mark.parametrize(
    ("interconnect", "expected"), [("NVSwitch 900 GB/s", "met"), ("PCIe", "excluded"), (None, "needs_confirmation")]
)
def test_a_fast_link_is_asked_of_the_tensor_parallel_group(interconnect, expected):
    found = answer(
        offer=offered(sku(gpu="l40s", gpus_per_host=4, interconnect=interconnect), allow={"data_parallel": False}),
        placement={"tensor_parallel_size": 4},
        requirements={"interconnect": "nvlink"},
    )
    judged = [*found.candidates, *(g.example for g in found.excluded)][0]

    assert expected == statuses(judged)["interconnect"]


def test_an_old_gpu_without_bf16_needs_another_dtype():
    found = answer(offer=offered(sku(gpu="v100-32")))

    assert "float16" in reasons(found.candidates[0])["native_dtypes"]


def test_an_engine_that_does_not_run_on_a_vendor_is_excluded():
    found = answer(offer=offered(sku(gpu="apple-m2-ultra-192"), sku("ok", gpu="l40s")), serving={"engine": "vllm"})
    apple = [c for c in found.candidates if c.sku == "one"] + [g.example for g in found.excluded]

    assert statuses(apple[0])["engine"] in {"needs_confirmation", "excluded"}


def test_the_largest_length_and_concurrency_are_found_and_hold():
    offer = offered(sku(gpu="l40s"))
    longest = answer(offer=offer, maximize="max_model_len").candidates[0].maximum
    busiest = answer(offer=offer, maximize="concurrency").candidates[0].maximum

    assert "/serving/max_model_len" == longest.field
    assert 8192 <= longest.met <= longest.possible <= 131_072
    serving = {"engine": "vllm", "max_model_len": longest.met, "concurrency": 8}
    assert "met" == statuses(answer(offer=offer, serving=serving).candidates[0])["memory"]
    assert busiest.met >= 8


def test_a_format_and_a_cache_type_are_variants_of_one_package():
    found = answer(
        offer=offered(
            sku(gpu="l40s"), allow={"weight_formats": ["bf16", "fp8-per-tensor"], "kv_cache_dtypes": ["auto", "fp8"]}
        )
    )

    assert {("bf16", "auto"), ("bf16", "fp8"), ("fp8-per-tensor", "auto"), ("fp8-per-tensor", "fp8")} == {
        (c.weights_format, c.kv_cache_dtype) for c in found.candidates
    }


def test_a_bound_of_bandwidth_is_stated_where_nothing_was_measured():
    found = answer(offer=offered(sku(gpu="l40s")), requirements={"throughput": {"minimum_tokens_per_second": 1}})

    assert "bounds decoding at" in reasons(found.candidates[0])["throughput"]


def test_no_change_is_said_to_help_where_the_price_excludes():
    found = answer(requirements={"duration": "30 days", "max_price": "5 USD"})

    assert not found.candidates
    assert () == found.alternatives


def test_changes_stand_with_the_verdict_of_their_whole_candidate():
    package = sku(gpu="h100-sxm", gpus_per_host=2, offer={"as_of": None})
    found = answer(offer=offered(package))

    assert {"needs_confirmation"} == {a.verdict for a in found.alternatives}


def test_no_format_is_offered_that_the_asked_quality_excludes():
    quality = {"metric": "mmlu", "minimum": 60, "evidence": {"bf16": 68, "fp8-per-channel-dynamic": 50}}
    found = answer(offer=offered(sku(gpu="h100-sxm")), requirements={"duration": 1, "quality": quality})
    verdicts = {a.to: a.verdict for a in found.alternatives if a.field == "/weights/format"}

    assert "excluded" == verdicts["fp8-per-channel-dynamic"]
    assert "needs_confirmation" == verdicts["awq-w4-g128"]


def test_alternatives_of_a_card_that_does_not_fit_shorten_or_quantize():
    found = answer(
        offer=offered(sku(gpu="t4")), serving={"engine": "vllm", "max_model_len": 131_072, "dtype": "float16"}
    )
    fields = {a.field for a in found.alternatives}

    assert {"/serving/max_model_len", "/weights/format"} & fields


BLOCKS = "deepseek-ai/DeepSeek-V3.1"


@pytest.mark.parametrize(
    ("engine", "gpu", "expected"),
    [
        ("sglang", "mi300x", "met"),
        ("vllm", "mi300x", "met"),
        ("vllm", "a100-80gb-sxm", "met"),
        ("sglang", "a100-80gb-sxm", "needs_confirmation"),
        ("sglang", "mi250x", "needs_confirmation"),
    ],
)
def test_fit_and_estimate_agree_on_kernels_of_block_fp8(engine, gpu, expected):
    package = sku(gpu=gpu, gpus_per_host=8, max_hosts=4)
    serving = {"engine": engine, "max_model_len": 4096, "concurrency": 1}
    found = answer(BLOCKS, serving=serving, offer=offered(package), requirements={"duration": 1})
    card = msgspec.convert({"model": BLOCKS, "serving": serving, "placement": {"gpu": gpu}}, SizingCard)
    doubts = {f.reason for f in estimate(resolve(catalog(), card)).reasons if f.field == "/weights/format"}
    best = found.candidates[0]

    assert expected == statuses(best)["native_dtypes"]
    assert ({reasons(best)["native_dtypes"]} if expected != "met" else set()) == doubts


@pytest.mark.parametrize(
    ("gpu", "serving", "requirement", "words"),
    [
        ("t4", {"engine": "transformers", "attn_implementation": "flash_attention_2"}, "engine", "state sdpa"),
        ("v100-32", {"engine": "tensorrt-llm"}, "engine", "needs compute capability 8.0"),
        ("a100-80-sxm", {"engine": "tensorrt-llm"}, "native_dtypes", "fp8-per-tensor needs 8.9"),
    ],
)
def test_what_an_engine_cannot_run_on_a_generation_is_excluded(gpu, serving, requirement, words):
    found = answer(
        "Qwen/Qwen3-0.6B",
        serving=serving | {"max_model_len": 2048},
        weights={"format": "fp8-per-tensor"} if gpu == "a100-80-sxm" else {},
        offer=offered(sku(gpu=gpu)),
    )

    assert () == tuple(c for c in found.candidates if c.status != "excluded")
    assert (requirement, True) == (found.excluded[0].requirement, words in found.excluded[0].reason)


def test_an_engine_that_would_have_to_be_built_for_a_generation_is_confirmed():
    found = answer("Qwen/Qwen3-0.6B", serving=FP16, weights={"format": "fp16"}, offer=offered(sku(gpu="gtx-1080")))

    assert "needs_confirmation" == statuses(found.candidates[0])["engine"]
    assert "built from source" in reasons(found.candidates[0])["engine"]


FP16 = {"engine": "vllm", "max_model_len": 2048, "dtype": "float16"}


def test_a_pool_too_small_for_the_traffic_is_helped_by_less_or_smaller_cache():
    traffic = {"engine": "vllm", "max_model_len": 32_768, "concurrency": 64}
    found = answer(
        "meta-llama/Llama-3.1-70B-Instruct", serving=traffic, offer=offered(sku(gpu="h100-sxm", gpus_per_host=4))
    )

    assert {"/serving/max_model_len", "/serving/kv_cache_dtype"} <= {a.field for a in found.alternatives}
