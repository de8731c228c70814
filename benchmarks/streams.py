"""
Cards as callers send them, no two alike: what the estimate is timed on.

Every engine and every training method has its own stream, which draws at random from a fixed seed, so that two runs
time the same cards. Either everything is drawn for every card: model, format, GPU, layout, lengths, batch sizes. Or a
few jobs are drawn once, as a scheduler has them, and every card is one of them with new numbers: lengths, traffic,
batch sizes, ranks.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitRequest

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B",
    "google/gemma-3-12b-it", "mistralai/Mistral-Small-24B-Instruct-2501", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V2-Lite",
)  # fmt: skip
TRAINED = MODELS[:4] + MODELS[5:6]
GPUS = ("a10", "l40s", "rtx-4090", "a100-80-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "rtx-pro-6000-server")
FORMATS = {
    "vllm": (None, "bf16", "fp8-per-tensor", "awq-w4-g128"),
    "sglang": (None, "bf16", "fp8-per-tensor", "awq-w4-g128"),
    "llama.cpp": ("gguf-q4-k-m", "gguf-q5-k-m", "gguf-q8-0", "gguf-f16"),
    "ollama": ("gguf-q4-k-m", "gguf-q8-0"),
    "transformers": (None, "bf16", "bnb-nf4", "bnb-int8"),
    "tensorrt-llm": (None, "bf16", "fp8-per-tensor"),
    "tgi": (None, "bf16", "awq-w4-g128"),
    "mlx": ("mlx-4bit-g64", "mlx-8bit-g64"),
}
CACHES = {
    "vllm": ("auto", "kv-fp8-e4m3"),
    "sglang": ("auto", "kv-fp8-e5m2"),
    "llama.cpp": ("auto", "kv-q8_0"),
    "ollama": ("auto", "kv-q8_0"),
}
POOLING = frozenset({"vllm", "sglang", "tgi", "tensorrt-llm"})
"""Engines that run on several GPUs and claim a fraction of them."""
METHODS = ("full", "lora", "qlora")
FRAMEWORKS = ("transformers", "trl", "axolotl", "torchtune", "unsloth", "deepspeed")

JOBS = 8
"""Jobs of a stream of new numbers: what its cards have in common. [unitless]"""

Draw = random.Random
Wire = dict[str, Any]


def serving(engine: str, seed: int = 1, jobs: int = 0) -> Iterator[SizingCard]:
    """Endless distinct cards of one engine; of so many jobs, or all drawn anew."""
    return _distinct(lambda draw: _serving_job(engine, draw), lambda draw: _serving_numbers(engine, draw), seed, jobs)


def training(method: str, seed: int = 1, jobs: int = 0) -> Iterator[SizingCard]:
    """Endless distinct cards of one training method; of so many jobs, or all drawn anew."""
    return _distinct(lambda draw: _training_job(method, draw), lambda draw: _training_numbers(method, draw), seed, jobs)


def scheduler(seed: int = 1) -> Iterator[SizingCard]:
    """Endless cards as a scheduler sends them: mostly vLLM, some of other engines and some training, few jobs of each."""
    sources = [
        *[serving("vllm", seed, JOBS)] * 5,
        *[serving("sglang", seed, JOBS)] * 2,
        *(serving(engine, seed, 2) for engine in ("llama.cpp", "transformers")),
        training("lora", seed, 2),
    ]
    draw = Draw(seed)
    while True:
        yield next(draw.choice(sources))


def orders(seed: int = 1) -> Iterator[FitRequest]:
    """Endless distinct requests over the whole catalogue and three formats."""
    draw = Draw(seed)
    while True:
        yield msgspec.convert(_order(draw), FitRequest)


def trainings(seed: int = 1) -> Iterator[FitRequest]:
    """The same for LoRA jobs."""
    draw = Draw(seed)
    while True:
        yield msgspec.convert(_training_order(draw), FitRequest)


def _distinct(
    job: Callable[[Draw], Wire], numbers: Callable[[Draw], Wire], seed: int, jobs: int
) -> Iterator[SizingCard]:
    draw, seen = Draw(seed), set()
    drawn = [job(draw) for _ in range(jobs)]
    while True:
        card = _with_numbers(draw.choice(drawn) if drawn else job(draw), numbers(draw))
        wire = msgspec.json.encode(card)
        if wire not in seen:
            seen.add(wire)
            yield msgspec.convert(card, SizingCard)


def _with_numbers(job: Wire, numbers: Wire) -> Wire:
    part = "serving" if "serving" in job else "training"
    return {**job, part: {**job[part], **numbers}}


def _serving_job(engine: str, draw: Draw) -> Wire:
    own: Wire = {"engine": engine, "kv_cache_dtype": draw.choice(CACHES.get(engine, ("auto",)))}
    if engine in POOLING:
        own["gpu_memory_utilization"] = draw.choice((None, 0.8, 0.85, 0.9, 0.92, 0.95))
    elif engine not in {"transformers", "mlx"}:
        own["n_gpu_layers"] = draw.choice((None, 16, 24, 99))
        own["n_ubatch"] = draw.choice((None, 256, 512, 1024))
    parts = draw.choice((1, 1, 2, 4))
    gpu = draw.choice(GPUS) if engine != "mlx" else "apple-m3-max-128"
    return {
        "model": draw.choice(MODELS),
        "weights": {"format": draw.choice(FORMATS[engine])},
        "serving": own,
        "placement": {"gpu": gpu, **({"tensor_parallel_size": parts} if engine in POOLING else {})},
        "reserve": draw.choice((0, "1 GiB")),
    }


def _serving_numbers(engine: str, draw: Draw) -> Wire:
    numbers: Wire = {
        "max_model_len": 256 * draw.randint(8, 128),
        "concurrency": draw.randint(1, 64),
        "input_tokens": 100 * draw.randint(1, 15),
        "output_tokens": 50 * draw.randint(1, 10),
    }
    if engine in POOLING:
        numbers["max_num_seqs"] = draw.choice((None, 8, 16, 32, 64, 128, 256, 512))
    elif engine in {"transformers", "mlx"}:
        numbers["batch_size"] = draw.randint(1, 32)
    else:
        numbers["n_parallel"] = draw.choice((1, 2, 4, 8))
    return numbers


def _training_job(method: str, draw: Draw) -> Wire:
    framework = draw.choice(FRAMEWORKS)
    own: Wire = {
        "framework": framework,
        "method": method,
        "gradient_checkpointing": draw.choice((None, "none", "full")),
        "optimizer": draw.choice((None, "adamw", "adamw_8bit")),
        "attn_implementation": draw.choice((None, "sdpa", "flash_attention_2")),
    }
    copies = draw.choice((1, 1, 2, 8)) if framework != "unsloth" else 1
    if copies > 1:
        own["sharding"] = draw.choice(("ddp", "fsdp", "zero3"))
    return {
        "model": draw.choice(TRAINED),
        "training": own,
        "placement": {"gpu": draw.choice(GPUS), "data_parallel_size": copies},
    }


def _training_numbers(method: str, draw: Draw) -> Wire:
    numbers: Wire = {
        "micro_batch_size": draw.choice((1, 2, 3, 4, 6, 8, 12, 16)),
        "sequence_length": 64 * draw.randint(4, 128),
    }
    return numbers if method == "full" else {**numbers, "lora": {"rank": draw.choice((8, 16, 32, 64))}}


def _order(draw: Draw) -> Wire:
    return {
        "model": draw.choice(MODELS[:4]),
        "serving": {
            "engine": "vllm",
            "max_model_len": 256 * draw.randint(8, 64),
            "concurrency": draw.randint(1, 64),
            "max_num_seqs": draw.choice((32, 64, 128, 256)),
            "input_tokens": 100 * draw.randint(1, 15),
            "output_tokens": 50 * draw.randint(1, 10),
        },
        "offer": {"allow": {"weight_formats": ["bf16", "fp8-per-tensor", "awq-w4-g128"]}},
        "requirements": {"duration": "3 days"},
    }


def _training_order(draw: Draw) -> Wire:
    own = {"framework": draw.choice(FRAMEWORKS), "method": "lora", **_training_numbers("lora", draw)}
    return {
        "model": draw.choice(MODELS[:4]),
        "training": own,
        "offer": {"allow": {"weight_formats": ["bf16", "bnb-int8", "bnb-nf4"]}},
        "requirements": {"duration": "3 days"},
    }
