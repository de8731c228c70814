"""Sentences of the contract about what an answer means, each as a test."""

from typing import Any

import msgspec
import pytest

from tonnage.errors import ContradictoryWorkload, MissingFact, SizingError, UnknownName, Unsupported
from tonnage.library import estimate
from tonnage.spec.report import Estimate
from tonnage.units import GiB

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
ENGINES = ("vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "transformers", "tgi", "mlx")
PRE_ALLOCATING = ("vllm", "sglang", "tensorrt-llm", "tgi")
GGUF = {
    "general.architecture": "llama",
    "general.file_type": 15,
    "llama.block_count": 32,
    "llama.context_length": 131_072,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14_336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.vocab_size": 128_256,
}
COMPONENTS = {
    "embedding", "lm_head", "attention", "mlp", "router", "routed_experts", "shared_experts", "norm", "ssm", "vision",
    "audio", "mtp", "other",
}  # fmt: skip


def card(
    engine: str = "vllm", gpu: str | None = "h100-sxm", placement: dict[str, Any] | None = None, **serving: Any
) -> Any:
    where = (placement or {}) | ({} if gpu is None else {"gpu": gpu})
    return {"model": LLAMA_8B, "serving": {"engine": engine, **serving}, "placement": where}


def served(engine: str = "vllm", **rest: Any) -> Estimate:
    return estimate(card(engine, **rest))


def size(answer: Estimate, component: str) -> int:
    return sum(item.bytes.expected for item in answer.gpus[0].items if item.component == component)


def refused(question: Any, kind: type[SizingError]) -> SizingError:
    with pytest.raises(kind) as caught:
        estimate(question)
    return caught.value


# ---- the parts of an answer ----


def test_an_answer_has_every_part_that_the_contract_names() -> None:
    named = {
        "model", "peak", "required", "claimed_bytes", "phases", "gpus", "kv_cache", "capacity", "headroom", "verdict", "host",
        "reserve_bytes", "rules_of_thumb", "assumptions", "unknowns", "invalidated_by", "measured", "diagnosis", "versions",
        "digest",
    }  # fmt: skip
    answer = msgspec.to_builtins(served(concurrency=1))

    assert named <= set(answer)
    assert {"id", "revision", "family", "parameters", "source"} <= set(answer["model"])
    assert {"total", "active", "trainable", "by_component"} == set(answer["model"]["parameters"])
    assert {"phase", "gpu_index", "allocated", "reserved", "device"} == set(answer["peak"])
    assert {"nominal_bytes", "usable_bytes", "source"} <= set(answer["capacity"])
    assert {"service", "catalog", "method"} == set(answer["versions"])
    assert answer["digest"].startswith("sha256:")
    cache = {
        "bytes_per_token",
        "state_bytes_per_sequence",
        "pool",
        "capacity_tokens",
        "max_concurrency",
        "max_model_len",
        "blocks",
    }
    assert cache <= set(answer["kv_cache"])


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3-VL-30B-A3B-Instruct", "deepseek-ai/DeepSeek-V3", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"]
)
def test_parameters_by_component_use_the_names_of_the_contract_and_add_up(model: str) -> None:
    found = estimate({"model": model}).model.parameters

    assert set(found.by_component) <= COMPONENTS
    assert found.total == sum(found.by_component.values())


def test_measured_terms_have_their_items_where_the_correspondence_says() -> None:
    phases = {
        phase.phase: {i.component for i in phase.items}
        for phase in served(placement={"tensor_parallel_size": 2}).phases
    }

    assert {"weights", "device_context"} <= phases["load"]
    assert {"activations", "framework", "communication"} <= phases["profile"]
    assert "kv_cache" in phases["kv_allocation"]
    assert "cuda_graphs" in phases["cuda_graph"]


def test_the_detail_of_graphs_says_whether_they_lie_inside_the_budget() -> None:
    for version in ("0.6.4", "0.11.0", "0.33.0"):
        items = [i for p in served(engine_version=version).phases for i in p.items if i.component == "cuda_graphs"]
        assert items
        assert all("side" in item.detail for item in items), version


def test_uneven_stages_show_as_loads_of_their_own() -> None:
    answer = served(placement={"pipeline_parallel_size": 3})

    assert [(0,), (1,), (2,)] == [load.ranks for load in answer.gpus]
    assert [0, 1, 2] == [load.stage for load in answer.gpus]
    assert 1 < len({load.peak.device.expected for load in answer.gpus})
    assert answer.peak == max((load.peak for load in answer.gpus), key=lambda peak: peak.device.expected)


def test_equal_loads_are_one_entry_with_all_ranks() -> None:
    answer = served(placement={"tensor_parallel_size": 2, "data_parallel_size": 2})

    assert [(0, 1, 2, 3)] == [load.ranks for load in answer.gpus]
    assert [(0, 1, 2, 3)] == [
        load.ranks for load in estimate({"model": LLAMA_8B, "placement": {"data_parallel_size": 4}}).gpus
    ]


# ---- how the totals relate ----


@pytest.mark.parametrize("engine", PRE_ALLOCATING)
def test_a_pool_is_in_the_peak_and_its_demand_in_what_is_required(engine: str) -> None:
    answer = served(engine, max_model_len=8192, concurrency=1)
    pool = next(i for p in answer.phases for i in p.items if i.component == "kv_cache")

    assert answer.claimed_bytes is not None
    assert answer.required.expected < answer.peak.device.expected
    assert answer.required.expected - 8192 * 131_072 + pool.bytes.expected <= answer.peak.device.expected + 3 * GiB


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama", "transformers", "mlx"])
def test_engines_that_allocate_as_needed_claim_nothing(engine: str) -> None:
    answer = served(engine, gpu="apple-m3-max-128", max_model_len=4096)

    assert answer.claimed_bytes is None
    assert answer.required.expected <= answer.peak.device.expected


def test_without_a_stated_demand_one_request_of_the_whole_length_is_it() -> None:
    assert served(max_model_len=8192).required == served(max_model_len=8192, concurrency=1).required


@pytest.mark.parametrize("engine", PRE_ALLOCATING)
def test_more_requests_need_their_cache(engine: str) -> None:
    one, nine = (served(engine, max_model_len=8192, concurrency=n).required.expected for n in (1, 9))

    assert 8 * 8192 * 131_072 == pytest.approx(nine - one, rel=0.02)


@pytest.mark.parametrize("engine", PRE_ALLOCATING)
def test_concurrency_is_the_total_over_replicas(engine: str) -> None:
    copies = served(engine, max_model_len=8192, concurrency=16, placement={"data_parallel_size": 2})
    alone = served(engine, max_model_len=8192, concurrency=8)

    assert alone.required == copies.required


def test_a_shared_prefix_is_kept_once() -> None:
    demand = {"max_model_len": 8192, "concurrency": 16, "input_tokens": 6000, "output_tokens": 500}
    apart, together = served(**demand), served(**demand, shared_prefix_tokens=4096)

    assert 15 * 4096 * 131_072 == apart.required.expected - together.required.expected


def test_the_callers_reserve_is_required_and_never_in_the_peak() -> None:
    without = served(max_model_len=8192)
    with_one = estimate(card(max_model_len=8192) | {"reserve": "6 GiB"})

    assert (6 * GiB, without.peak) == (with_one.reserve_bytes, with_one.peak)
    assert without.required.expected + 6 * GiB == with_one.required.expected
    assert 6 * GiB == size(with_one, "user_reserve")


def test_a_fraction_is_of_the_derived_expected_amount() -> None:
    without = served(max_model_len=8192)
    with_one = estimate(card(max_model_len=8192) | {"reserve": {"fraction": 0.25}})

    assert int(without.required.expected * 0.25) == with_one.reserve_bytes


def test_without_a_gpu_there_is_no_capacity_and_no_verdict() -> None:
    answer = served(gpu=None, max_model_len=4096)

    assert (None, None, None) == (answer.capacity, answer.headroom, answer.verdict)


def test_a_budget_that_is_too_small_excludes_a_card_that_is_large_enough() -> None:
    answer = served(gpu="h200-sxm", gpu_memory_utilization=0.15, max_model_len=32_768)

    assert answer.required.high < answer.capacity.usable_bytes
    assert "excluded" == answer.verdict
    assert any("gpu_memory_utilization" in r.reason for r in answer.reasons if r.status == "excluded")


def test_slots_count_as_well_as_bytes() -> None:
    answer = served(max_model_len=2048, max_num_seqs=4, concurrency=64)

    assert "met" != answer.verdict
    assert any("max_num_seqs 4" in r.reason for r in answer.reasons)


# ---- what a card may say ----


def test_a_gguf_header_is_a_model() -> None:
    answer = estimate({"model": {"gguf": GGUF}, "serving": {"engine": "llama.cpp", "max_model_len": 8192}})

    assert 8_030_261_248 == answer.model.parameters.total
    assert "gguf-q4-k-m" == next(a.value for a in answer.assumptions if a.field == "weights.format")


def test_a_header_or_config_without_a_required_key_is_refused_by_its_name() -> None:
    header = {key: value for key, value in GGUF.items() if key != "llama.block_count"}

    assert "llama.block_count" in refused({"model": {"gguf": header}}, MissingFact).detail
    assert (
        "vocab_size" in refused({"model": {"config": {"model_type": "llama", "hidden_size": 64}}}, MissingFact).detail
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_of_a_bare_count_only_weights_and_the_process_are_said(engine: str) -> None:
    answer = estimate(
        {"model": {"parameters": 7_000_000_000}, "serving": {"engine": engine}, "placement": {"gpu": "h200-sxm"}}
    )
    components = {i.component for load in answer.gpus for i in load.items}

    assert "needs_confirmation" == answer.verdict
    assert 14_000_000_000 == pytest.approx(size(answer, "weights"), rel=0.02)
    assert not components & {"activations", "logits", "sampler", "recurrent_state", "vision_encoder"}
    assert answer.kv_cache is None
    assert any("parameter count" in unknown for unknown in answer.unknowns)


def test_training_by_a_bare_count_names_the_shape_it_assumes() -> None:
    answer = estimate(
        {"model": {"parameters": 7_000_000_000}, "training": {"method": "lora"}, "placement": {"gpu": "h200-sxm"}}
    )

    assert "met" != answer.verdict
    assert "hidden_size" in next(a.value for a in answer.assumptions if a.field == "model.config")
    assert any("parameter count" in unknown for unknown in answer.unknowns)
    assert {"assumed"} == {i.basis for i in answer.gpus[0].items if i.component in ("activations", "logits")}


def test_a_stated_count_that_is_not_that_of_the_config_has_to_be_confirmed() -> None:
    config = {
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False,
    }  # fmt: skip
    answer = estimate({"model": {"config": config, "parameters": 9}})

    assert any("9" in r.reason and r.status == "needs_confirmation" for r in answer.reasons)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_known_file_size_overrides_the_computed_one(engine: str) -> None:
    question = card(engine, max_model_len=4096) | {"weights": {"format": "bf16", "bytes": 8 * GiB}}

    assert 8 * GiB == pytest.approx(size(estimate(question), "weights"), rel=0.08)


def test_a_known_file_size_overrides_the_base_of_a_training_run() -> None:
    question = {"model": LLAMA_8B, "weights": {"format": "bnb-nf4", "bytes": 5 * GiB}, "training": {"method": "qlora"}}

    assert 5 * GiB == pytest.approx(size(estimate(question), "weights"), rel=0.01)


def test_keys_and_values_may_be_kept_in_formats_of_their_own() -> None:
    both = {
        kind: served("llama.cpp", kv_cache_dtype=kind, max_model_len=4096).kv_cache.bytes_per_token
        for kind in ("q8_0", "q4_0")
    }
    apart = served("llama.cpp", kv_cache_dtype={"k": "q8_0", "v": "q4_0"}, max_model_len=4096).kv_cache.bytes_per_token

    assert (both["q8_0"] + both["q4_0"]) // 2 == apart


def test_a_mig_slice_is_a_gpu() -> None:
    whole, slice_ = (served(gpu=name, max_model_len=2048).capacity for name in ("h100-sxm", "h100-sxm:1g.10gb"))

    assert 10_000_000_000 == slice_.nominal_bytes
    assert slice_.usable_bytes < whole.usable_bytes // 7
    assert slice_ == served(gpu="h100-sxm-1g.10gb", max_model_len=2048).capacity


@pytest.mark.parametrize("engine", ENGINES)
def test_an_unknown_newer_version_is_answered_by_the_newest_and_has_to_be_confirmed(engine: str) -> None:
    answer = served(engine, engine_version="999.1")

    assert "met" != answer.verdict
    assert any(
        "version" in r.field or "version" in r.reason for r in answer.reasons if r.status == "needs_confirmation"
    )


def test_a_default_that_was_taken_is_an_assumption() -> None:
    taken = {a.field.rpartition(".")[2] for a in served().assumptions}

    assert {"max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "max_model_len"} <= taken


# ---- what cannot be ----


@pytest.mark.parametrize(
    ("engine", "kind"), [("vllm", "context"), ("tgi", "pipeline"), ("mlx", "tensor"), ("llama.cpp", "expert")]
)
def test_a_layout_the_engine_does_not_run_is_refused_with_those_it_does(engine: str, kind: str) -> None:
    error = refused(card(engine, placement={f"{kind}_parallel_size": 2}), Unsupported)

    assert f"/placement/{kind}_parallel_size" == error.pointer
    assert error.supported


def test_heads_that_do_not_divide_are_refused() -> None:
    assert (
        "/placement/tensor_parallel_size"
        == refused(card(placement={"tensor_parallel_size": 3}), ContradictoryWorkload).pointer
    )


@pytest.mark.parametrize(
    ("engine", "gpu", "verdict"),
    [
        ("vllm", "gtx-1080ti", "needs_confirmation"),
        ("mlx", "mi300x", "excluded"),
        ("tensorrt-llm", "mi300x", "excluded"),
        ("vllm", "gaudi3", "needs_confirmation"),
    ],
)
def test_an_engine_is_not_said_to_run_where_it_does_not(engine: str, gpu: str, verdict: str) -> None:
    small = card(engine, gpu=gpu, max_model_len=1024) | {"model": "Qwen/Qwen3-0.6B"}

    assert verdict == estimate(small).verdict


def test_a_format_the_engine_is_not_known_to_read_has_to_be_confirmed() -> None:
    answer = estimate(card(max_model_len=4096) | {"weights": {"format": "mlx-4bit-g64"}})

    assert "needs_confirmation" == answer.verdict
    assert ["/weights/format"] == [r.field for r in answer.reasons if r.status != "met"]


def test_an_eight_bit_float_cache_is_excluded_on_a_card_without_it() -> None:
    assert "excluded" == served(gpu="v100-32", kv_cache_dtype="fp8", max_model_len=4096).verdict


def test_a_request_longer_than_the_length_served_is_excluded() -> None:
    answer = served(max_model_len=1000, input_tokens=900, output_tokens=900)

    assert ("excluded", "/serving/max_model_len") == (answer.verdict, answer.reasons[-1].field)


@pytest.mark.parametrize(
    ("question", "pointer"),
    [
        ({"model": "meta-llama/Llama-3.1-8B-Instrukt"}, "/model"),
        ({"model": LLAMA_8B, "weights": {"format": "bf17"}}, "/weights/format"),
        ({"model": LLAMA_8B, "placement": {"gpu": "l40ss"}}, "/placement/gpu"),
        ({"model": LLAMA_8B, "training": {"optimizer": "adanw"}}, "/training/optimizer"),
        ({"model": LLAMA_8B, "serving": {"engine": "vllm", "kv_cache_dtype": "fp9"}}, "/serving/kv_cache_dtype"),
    ],
)
def test_an_unknown_id_says_what_was_meant(question: Any, pointer: str) -> None:
    error = refused(question, UnknownName)

    assert pointer == error.pointer
    assert error.did_you_mean


# ---- what the caller measured, and what failed ----


def test_a_measurement_stands_beside_ours_and_says_whether_it_agrees() -> None:
    peak = served(max_model_len=8192).peak.device.expected
    close, far = (
        estimate(card(max_model_len=8192) | {"measurements": [{"counter": "device", "peak_bytes": size}]}).measured[0]
        for size in (peak, 2 * peak)
    )

    assert (True, False) == (close.agrees, far.agrees)
    assert peak == close.estimated.expected


def test_a_measured_peak_replaces_what_is_required_and_one_of_another_phase_or_gpu_does_not() -> None:
    question = card("transformers", gpu="l40s", batch_size=1, input_tokens=1000, output_tokens=100)
    bare = estimate(question)

    def required(**measurement: Any) -> int:
        row = {"counter": "device", "peak_bytes": 20 * GiB, **measurement}
        return estimate(question | {"measurements": [row]}).required.expected

    assert 20 * GiB == required() == required(phase=bare.peak.phase) == required(gpu="l40s")
    assert bare.required.expected == required(phase="load") == required(gpu="a100-40-sxm")


def test_a_pasted_text_is_read_and_the_remedies_are_single_priced_changes() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.64 GiB of "
        "which 145.00 MiB is free. Of the allocated memory 22.80 GiB is allocated by PyTorch"
    )
    question = {
        "model": LLAMA_8B,
        "training": {"method": "lora", "micro_batch_size": 4, "sequence_length": 2048},
        "placement": {"gpu": "rtx-4090"},
        "failure": {"phase": "backward", "message": text},
    }
    answer = estimate(question)

    assert "backward" == answer.diagnosis.phase
    assert (224 << 20, 145 << 20) == (answer.diagnosis.read["requested_bytes"], answer.diagnosis.read["free_bytes"])
    assert answer.diagnosis.remedies
    assert all(
        r.saves_bytes == answer.required.expected - r.required.expected or r.saves_bytes >= 0
        for r in answer.diagnosis.remedies
    )
    assert {"/training/micro_batch_size", "/training/gradient_checkpointing"} <= {
        r.field for r in answer.diagnosis.remedies
    }


def test_a_text_that_no_layout_reads_is_said() -> None:
    answer = estimate(card(max_model_len=4096) | {"failure": {"message": "it broke"}})

    assert ({}, ("it broke",)) == (answer.diagnosis.read, answer.diagnosis.unread)


def test_the_same_question_has_the_same_bytes_and_digest() -> None:
    first, second = (msgspec.json.encode(served(max_model_len=8192)) for _ in range(2))

    assert first == second
    assert served(max_model_len=8192).digest != served(max_model_len=8193).digest
