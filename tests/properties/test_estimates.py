"""
What must hold for any estimate.

More of what takes memory never takes less. The exceptions are the engines' own: vLLM before its V1 core switches chunked
prefill on above 32,768 tokens; a larger card gets larger default batches; llama.cpp and Ollama that are left to choose put
fewer layers on the GPU when the cache grows. Cards here state what those rules decide.
"""

from functools import cache
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.library import estimate
from tonnage.spec.report import VERDICT_ORDER, Estimate
from tonnage.units import GiB, KiB, MiB, TiB, format_size, parse_size

MODELS = [
    "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite", "google/gemma-3-12b-it", "openai/gpt-oss-20b",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "Qwen/Qwen3.5-9B", "Qwen/Qwen3-VL-8B-Instruct", "state-spaces/mamba-1.4b-hf",
    "openai-community/gpt2", "tiiuae/falcon-7b", "google/flan-t5-xl",
]  # fmt: skip
DECODERS = [
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V2-Lite",
    "google/gemma-2-9b",
    "openai-community/gpt2",
]
LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 32_000, "max_position_embeddings": 65_536, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "vllm": {"engine_version": "0.19.0", "max_num_batched_tokens": 8192, "max_num_seqs": 256},
    "sglang": {"engine_version": "0.5.8"},
    "llama.cpp": {"n_gpu_layers": 999, "n_parallel": 1, "flash_attn": True},
    "tensorrt-llm": {"max_num_tokens": 8192, "max_batch_size": 256},
    "transformers": {},
    "tgi": {},
    "mlx": {},
}
STATED = {engine: {"engine": engine} | stated for engine, stated in SETTINGS.items()}
LENGTHS = st.integers(64, 32_000)
FRAMEWORKS = ["transformers", "trl", "torchtune", "unsloth", "deepspeed", "axolotl", "megatron", "litgpt"]
COUNTERS = ("allocated", "reserved", "device")
LADDER = ["gptq-w2-g128", "awq-w4-g128", "fp8-per-tensor", "bf16", "fp32"]
KV_LADDER = ["q4_0", "q8_0", "f16", "f32"]
SLACK = MiB
"""An allocator's blocks: a few kilobytes more may fill a segment better. [bytes]"""


@cache
def answer(question: bytes) -> Estimate:
    return estimate(msgspec.json.decode(question))


def asked(**card: Any) -> Estimate:
    return answer(msgspec.json.encode(card))


def served(
    model: Any, engine: str, gpu: str | None = None, placement: dict[str, Any] | None = None, **serving: Any
) -> Estimate:
    where = (placement or {}) | ({} if gpu is None else {"gpu": gpu})
    return asked(model=model, serving=STATED[engine] | serving, placement=where)


def trained(model: Any, **training: Any) -> Estimate:
    return asked(model=model, training={"sequence_lengths": "fixed", "attn_implementation": "sdpa"} | training)


def weights(found: Estimate) -> int:
    return sum(item.bytes.expected for load in found.gpus for item in load.items if item.component == "weights")


def never_less(smaller: Estimate, larger: Estimate) -> None:
    assert smaller.required.expected <= larger.required.expected + SLACK


ENGINES = st.sampled_from(list(SETTINGS))


@given(st.sampled_from(MODELS), ENGINES, LENGTHS, LENGTHS)
@settings(max_examples=80, deadline=None)
def test_a_longer_context_never_takes_less(model: str, engine: str, one: int, other: int) -> None:
    short, long = sorted((one, other))
    never_less(*(served(model, engine, max_model_len=n, input_tokens=n - 16, output_tokens=16) for n in (short, long)))


@given(st.sampled_from(MODELS), ENGINES, st.integers(1, 200), st.integers(1, 200))
@settings(max_examples=80, deadline=None)
def test_more_requests_at_once_never_take_less(model: str, engine: str, one: int, other: int) -> None:
    few, many = sorted((one, other))
    never_less(*(served(model, engine, max_model_len=4096, concurrency=n) for n in (few, many)))


@given(st.sampled_from(DECODERS), st.integers(1, 32), st.integers(1, 32), LENGTHS)
@settings(max_examples=40, deadline=None)
def test_a_larger_batch_of_generate_never_takes_less(model: str, one: int, other: int, tokens: int) -> None:
    few, many = sorted((one, other))
    never_less(*(served(model, "transformers", batch_size=n, input_tokens=tokens % 2000) for n in (few, many)))


@given(ENGINES, st.integers(1, 40), st.sampled_from(["num_hidden_layers", "vocab_size", "intermediate_size"]))
@settings(max_examples=60, deadline=None)
def test_a_larger_model_never_takes_less(engine: str, steps: int, key: str) -> None:
    step = {"num_hidden_layers": 1, "vocab_size": 256, "intermediate_size": 256}[key]
    larger = LLAMA | {key: LLAMA[key] + steps * step}  # type: ignore[operator]  # the keys stepped through are numbers
    never_less(*(served({"config": config}, engine, max_model_len=2048) for config in (LLAMA, larger)))


@given(st.sampled_from(MODELS), ENGINES)
@settings(max_examples=40, deadline=None)
def test_more_bits_of_weights_never_take_less(model: str, engine: str) -> None:
    card = {"model": model, "serving": STATED[engine] | {"max_model_len": 2048}}
    sizes = [weights(asked(**card, weights={"format": name})) for name in LADDER]

    assert sorted(sizes) == sizes


@given(st.sampled_from(DECODERS), ENGINES)
@settings(max_examples=40, deadline=None)
def test_more_bits_of_cache_never_take_less(model: str, engine: str) -> None:
    reports = [served(model, engine, max_model_len=8192, kv_cache_dtype=name).kv_cache for name in KV_LADDER]
    sizes = [0 if report is None else report.bytes_per_token for report in reports]

    assert sorted(sizes) == sizes


@given(
    st.sampled_from(DECODERS),
    st.sampled_from(FRAMEWORKS),
    st.sampled_from(["full", "lora"]),
    st.sampled_from(["none", "full"]),
    st.integers(16, 4000),
    st.integers(16, 4000),
)
@settings(max_examples=50, deadline=None)
def test_longer_sequences_never_take_less(
    model: str, framework: str, method: str, checkpointing: str, one: int, other: int
) -> None:
    run = {"framework": framework, "method": method, "gradient_checkpointing": checkpointing, "micro_batch_size": 2}
    never_less(*(trained(model, **run, sequence_length=n) for n in sorted((one, other))))


@given(
    st.sampled_from(DECODERS),
    st.sampled_from(FRAMEWORKS),
    st.sampled_from(["full", "lora"]),
    st.integers(1, 16),
    st.integers(1, 16),
)
@settings(max_examples=50, deadline=None)
def test_a_larger_micro_batch_never_takes_less(model: str, framework: str, method: str, one: int, other: int) -> None:
    run = {"framework": framework, "method": method, "gradient_checkpointing": "full", "sequence_length": 512}
    never_less(*(trained(model, **run, micro_batch_size=n) for n in sorted((one, other))))


@given(st.sampled_from(DECODERS), st.integers(1, 64), st.integers(1, 64))
@settings(max_examples=30, deadline=None)
def test_adapters_of_a_higher_rank_never_take_less(model: str, one: int, other: int) -> None:
    run = {"method": "lora", "micro_batch_size": 1, "sequence_length": 256}
    never_less(*(trained(model, **run, lora={"rank": n}) for n in sorted((one, other))))


@given(
    st.sampled_from(DECODERS), st.sampled_from(["zero1", "zero2", "zero3", "fsdp"]), st.sampled_from([1, 2, 4, 8, 16])
)
@settings(max_examples=30, deadline=None)
def test_more_shards_never_hold_more_each(model: str, sharding: str, ranks: int) -> None:
    training = {
        "framework": "deepspeed" if "zero" in sharding else "torchtitan",
        "method": "full",
        "sharding": sharding,
    }
    training |= {
        "micro_batch_size": 1,
        "sequence_length": 512,
        "gradient_checkpointing": "full",
        "sequence_lengths": "fixed",
    }

    def held(shards: int) -> int:
        found = asked(model=model, training=training, placement={"data_parallel_size": shards})
        states = ("weights", "gradients", "master_weights", "optimizer_states")
        return sum(item.bytes.expected for item in found.gpus[0].items if item.component in states)

    assert held(2 * ranks) <= held(ranks)


@given(
    st.sampled_from(DECODERS[:-1]),
    st.sampled_from(["vllm", "sglang", "tensorrt-llm", "tgi"]),
    st.sampled_from([2, 4, 8]),
)
@settings(max_examples=40, deadline=None)
def test_ranks_hold_together_at_least_the_whole(model: str, engine: str, ranks: int) -> None:
    whole = served(model, engine, max_model_len=2048)
    part = served(model, engine, max_model_len=2048, placement={"tensor_parallel_size": ranks})

    assert ranks * weights(part) >= weights(whole) - SLACK
    assert ranks * part.kv_cache.bytes_per_token >= whole.kv_cache.bytes_per_token


@given(st.sampled_from(MODELS), ENGINES, LENGTHS, st.sampled_from(["a100-40-sxm", "l4", "mi300x"]))
@settings(max_examples=60, deadline=None)
def test_phases_add_up_and_the_peak_is_the_largest_by_counter(model: str, engine: str, length: int, gpu: str) -> None:
    found = served(model, engine, gpu, max_model_len=length)
    for load in found.gpus:
        for counter in COUNTERS:
            totals = [getattr(phase.total, counter).expected for phase in load.phases]
            assert max(totals) == getattr(load.peak, counter).expected
        for phase in load.phases:
            assert sum(item.bytes.expected for item in phase.items) == phase.total.device.expected
            assert phase.total.allocated.expected <= phase.total.reserved.expected <= phase.total.device.expected


@given(st.sampled_from(MODELS), ENGINES, LENGTHS, st.integers(0, 8), st.sampled_from(["a100-40-sxm", "l4", "rtx-4090"]))
@settings(max_examples=40, deadline=None)
def test_headroom_is_what_is_usable_less_what_is_required(
    model: str, engine: str, length: int, reserve: int, gpu: str
) -> None:
    card = {"model": model, "serving": STATED[engine] | {"max_model_len": length}, "placement": {"gpu": gpu}}
    found, kept = asked(**card, reserve=f"{reserve} GiB"), asked(**card)
    usable = found.capacity.usable_bytes

    assert usable - found.required.high == found.headroom.low
    assert usable - found.required.expected == found.headroom.expected
    assert usable - found.required.low == found.headroom.high
    assert kept.required.expected + reserve * GiB == found.required.expected
    assert kept.peak == found.peak


@given(
    st.sampled_from(MODELS),
    ENGINES,
    LENGTHS,
    st.sampled_from([("a100-40-sxm", "a100-80-sxm"), ("h100-sxm", "h200-sxm")]),
)
@settings(max_examples=60, deadline=None)
def test_a_larger_card_never_worsens_the_verdict(model: str, engine: str, length: int, cards: tuple[str, str]) -> None:
    small, large = (served(model, engine, gpu, max_model_len=length, concurrency=4) for gpu in cards)

    assert VERDICT_ORDER[large.verdict] <= VERDICT_ORDER[small.verdict]


@given(st.sampled_from(MODELS), ENGINES, LENGTHS)
@settings(max_examples=20, deadline=None)
def test_the_same_question_has_the_same_bytes(model: str, engine: str, length: int) -> None:
    card = {"model": model, "serving": STATED[engine] | {"max_model_len": length}}
    first, second = estimate(card), estimate(msgspec.json.decode(msgspec.json.encode(card)))

    assert msgspec.json.encode(first) == msgspec.json.encode(second)


@given(st.integers(0, 10**15), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB"]))
def test_a_whole_number_of_a_unit_is_read_exactly(number: int, unit: str) -> None:
    prefix, base = unit.removesuffix("B").removesuffix("i"), 1024 if "i" in unit else 1000

    assert number % 10**6 * base ** " KMGT".index(prefix or " ") == parse_size(f"{number % 10**6} {unit}")


@given(st.integers(0, 1023), st.sampled_from([1, KiB, MiB, GiB, TiB]))
def test_what_is_written_is_read_back(number: int, unit: int) -> None:
    assert number * unit == parse_size(format_size(number * unit))


@given(st.integers(0, 900 * TiB))
def test_what_is_written_is_read_back_to_its_last_digit(amount: int) -> None:
    read = parse_size(format_size(amount))
    unit = next(u for u in (TiB, GiB, MiB, KiB, 1) if amount >= u or u == 1)

    assert abs(read - amount) <= max(unit // 100, 0)
