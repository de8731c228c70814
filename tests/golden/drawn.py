"""
Kept figures of cards drawn by lot, which reach what nobody thought of writing a case for.

Every model type of the catalogue is drawn with settings of every engine and framework; the seed of a card is its name.
Only a fingerprint of the figures is kept beside the two that people read.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.golden.predictions import figures

from tonnage.catalog import load_catalog
from tonnage.errors import SizingError
from tonnage.library import estimate

KEPT = Path(__file__).resolve().parent / "drawn.json"
SERVED, TRAINED = 4, 3
"""Cards per model type. [unitless]"""

Card = dict[str, Any]

_ENGINES = ("vllm", "vllm", "vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "transformers", "tgi", "mlx")
_VERSIONS = {
    "vllm": ("0.5.4", "0.6.6", "0.8.5", "0.10.2", "0.14.1", "0.19.0", "0.25.0", "0.33.0"),
    "sglang": ("0.4.5", "0.5.1", "0.5.10", "0.5.23"),
    "llama.cpp": ("b4000", "b5434", "b6325", "b9420"),
    "ollama": ("0.2.0", "0.7.0", "0.11.5", "0.30.0"),
}
_GPUS = ("h100-sxm", "h100-sxm", "a100-80-sxm", "l40s", "rtx-4090", "b200-sxm", "h200-sxm", "mi300x", "v100-32")
_APPLE = ("apple-m1-max-64", "apple-m2-24", "apple-m3-ultra-512", "apple-m4-pro-64")
_FORMATS = (
    "bf16", "fp8-per-tensor", "fp8-block-128x128", "awq-w4-g128", "gptq-w4-g128-sym", "bnb-nf4-dq", "int8-w8a8", "nvfp4",
    "mxfp4", "ct-w4a16-g128",
)  # fmt: skip
_FILES = ("gguf-q4_k_m", "gguf-q8_0", "gguf-q6_k", "gguf-f16", "gguf-iq2_xxs")
_FRAMEWORKS = (
    "transformers", "trl", "trl", "torchtune", "torchtitan", "litgpt", "axolotl", "llama-factory", "ms-swift", "unsloth",
    "deepspeed", "megatron", "peft",
)  # fmt: skip
_METHODS = ("full", "full", "lora", "lora", "qlora", "dora", "galore", "lisa", "badam", "ia3", "prompt-tuning")
_OPTIMIZERS = (
    "adamw",
    "adamw_8bit",
    "paged_adamw_8bit",
    "adafactor",
    "lion",
    "sgd_momentum",
    "muon",
    "came",
    "adamw_4bit",
)
_SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp", "distributed_optimizer")


class Lot:
    """Draws of one card."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def one(self, *values: Any) -> Any:
        return self._random.choice(values)

    def some(self, share: float, **fields: tuple[Any, ...]) -> Card:
        """Each field with this probability, with one of its values."""
        drawn = {name: (self._random.random() < share, self.one(*values)) for name, values in fields.items()}
        return {name: value for name, (taken, value) in drawn.items() if taken}


def models() -> dict[str, str]:
    """The first model of each type of the catalogue, by type."""
    found: dict[str, str] = {}
    for model in load_catalog().models:
        found.setdefault(str(model.config.get("model_type")), model.id)
    return dict(sorted(found.items()))


def cards(kind: str, model: str) -> Iterator[tuple[str, Card]]:
    """Cards of a model type by name."""
    for number in range(SERVED):
        yield f"{kind} served {number}", _served(Lot(f"{kind} served {number}"), model)
    for number in range(TRAINED):
        yield f"{kind} trained {number}", _trained(Lot(f"{kind} trained {number}"), model)


def _served(lot: Lot, model: str) -> Card:
    engine = lot.one(*_ENGINES)
    serving = {"engine": engine, "max_model_len": lot.one(512, 2048, 4096, 8192, 20_000, 32_768)} | lot.some(
        0.3,
        max_num_seqs=(1, 8, 64, 300),
        max_num_batched_tokens=(1024, 2048, 8192, 16_384),
        gpu_memory_utilization=(0.5, 0.85, 0.95),
        block_size=(16, 32),
        enforce_eager=(True, False),
        concurrency=(1, 4, 33, 200),
        input_tokens=(100, 3000),
        output_tokens=(50, 900),
        shared_prefix_tokens=(64, 500),
        dtype=("float16", "bfloat16", "float32"),
        kv_cache_memory_bytes=("4 GiB", "9 GB"),
        lora=({"max_loras": 4, "max_lora_rank": 32}, {"max_loras": 1, "target_modules": ["q_proj", "v_proj"]}),
        speculative=(
            {"method": "ngram", "num_speculative_tokens": 4},
            {"method": "eagle3", "num_speculative_tokens": 3},
            {"method": "mtp", "num_speculative_tokens": 1},
            {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5},
        ),
        multimodal=({"images_per_prompt": 2}, {"language_model_only": True}, {"videos_per_prompt": 1}),
    )
    if engine in _VERSIONS:
        serving |= lot.some(0.6, engine_version=_VERSIONS[engine])
    serving |= _OWN.get(engine, lambda _: {})(lot)
    weights = _FILES if engine in ("llama.cpp", "ollama") else ("mlx-4bit-g64",) if engine == "mlx" else _FORMATS
    gpus = _APPLE if engine == "mlx" else _GPUS
    placement = {"gpu": lot.one(*gpus)} | lot.some(
        0.25, tensor_parallel_size=(2, 4, 8), pipeline_parallel_size=(2, 3), data_parallel_size=(2,)
    )
    if placement.get("tensor_parallel_size") == 4:
        placement |= lot.some(0.5, expert_parallel_size=(4,))
    return (
        {"model": model, "serving": serving, "placement": placement}
        | lot.some(0.4, weights=tuple({"format": name} for name in weights))
        | _around(lot, ("load", "prefill", "kv_allocation", "cuda_graph", "decode"))
    )


def _vllm(lot: Lot) -> Card:
    return lot.some(
        0.2,
        kv_cache_dtype=("fp8", "fp8_e4m3", "auto"),
        cudagraph_max_capture_size=(0, 64, 256),
        enable_prefix_caching=(True, False),
        cudagraph_capture_sizes=([1, 2, 4, 8], [16, 1, 128]),
        enable_expert_parallel=(True,),
        swap_space=(0.0, 8.0),
        cpu_offload_gb=(4.0,),
    )


def _sglang(lot: Lot) -> Card:
    return lot.some(
        0.3,
        cuda_graph_max_bs=(8, 200),
        disable_cuda_graph=(True,),
        chunked_prefill_size=(2048, 8192),
        page_size=(1, 64),
        kv_cache_dtype=("fp8_e5m2", "auto"),
    )


def _llama_cpp(lot: Lot) -> Card:
    return lot.some(
        0.3,
        n_gpu_layers=(0, 10, 99),
        n_batch=(512, 2048),
        n_ubatch=(128, 512, 1024),
        n_parallel=(1, 4),
        kv_unified=(True, False),
        flash_attn=(True, False),
        cpu_moe_layers=(4, 99),
        tensor_split=([1.0], [3.0, 1.0]),
        swa_full=(True,),
        no_kv_offload=(True,),
        kv_cache_dtype=("q8_0", {"k": "q8_0", "v": "f16"}),
    )


_OWN = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
    "ollama": lambda lot: lot.some(
        0.3, n_gpu_layers=(5, 99), n_parallel=(1, 2), flash_attn=(True, False), kv_cache_dtype=("q8_0",)
    ),
    "tensorrt-llm": lambda lot: lot.some(
        0.4,
        max_batch_size=(8, 256),
        max_num_tokens=(4096,),
        free_gpu_memory_fraction=(0.7, 0.95),
        backend=("pytorch", "tensorrt"),
    ),
    "transformers": lambda lot: lot.some(
        0.5,
        batch_size=(2, 8),
        attn_implementation=("eager", "sdpa", "flash_attention_2"),
        cache_implementation=("static", "quantized", "offloaded", "hybrid"),
    ),
    "tgi": lambda lot: lot.some(0.4, max_batch_total_tokens=(16_000, 64_000)),
    "mlx": lambda lot: lot.some(0.5, batch_size=(1, 4), prefill_step_size=(512, 2048)),
}


def _trained(lot: Lot, model: str) -> Card:
    method = lot.one(*_METHODS)
    training = {"framework": lot.one(*_FRAMEWORKS), "method": method, "sequence_length": lot.one(256, 1024, 2048, 5000)}
    training |= lot.some(
        0.35,
        objective=("pretrain", "dpo", "orpo", "kto", "reward", "ppo", "grpo"),
        optimizer=_OPTIMIZERS,
        optimizer_implementation=("fused", "foreach", "for_loop"),
        optimizer_in_backward=(True,),
        micro_batch_size=(1, 2, 5, 16),
        sequence_lengths=("fixed", "varying"),
        packed=(True, False),
        gradient_accumulation_steps=(1, 4),
        gradient_checkpointing=("none", "selective", "full"),
        attn_implementation=("eager", "sdpa", "flash_attention_2"),
        cross_entropy=("full", "chunked", "fused_linear"),
        weight_dtype=("bfloat16", "float32"),
        compute_dtype=("bfloat16", "float16"),
        gradient_dtype=("float32", "bfloat16"),
        master_weights=(True, False),
        sequence_parallel=(True,),
        compile=(True,),
        sharding=_SHARDINGS,
        offload=({"optimizer": True}, {"parameters": True, "optimizer": True}, {"activations": True}),
        library_versions=({"torch": "2.4.0"}, {"torch": "2.8.0", "transformers": "4.46.0"}, {"peft": "0.10.0"}),
    )
    if method in ("lora", "qlora", "dora"):
        lora = {"rank": lot.one(4, 16, 64, 256)} | lot.some(
            0.3,
            target_modules=(["all-linear"], ["q_proj", "v_proj"]),
            dropout=(0.0, 0.05),
            modules_to_save=(["lm_head"],),
        )
        training |= {"lora": lora}
    placement = {"gpu": lot.one(*_GPUS)} | lot.some(
        0.25,
        tensor_parallel_size=(2, 4),
        pipeline_parallel_size=(2, 4),
        data_parallel_size=(2, 8),
        context_parallel_size=(2,),
    )
    phases = ("load", "forward", "backward", "optimizer_step", "evaluation", "export", "merge", "generation")
    return {"model": model, "training": training, "placement": placement} | _around(lot, phases)


def _around(lot: Lot, phases: tuple[str, ...]) -> Card:
    return lot.some(
        0.25,
        reserve=("2 GiB", {"fraction": 0.1}),
        failure=tuple({"phase": phase, "requested_bytes": 2**29, "free_bytes": 2**27} for phase in phases),
        measurements=tuple(
            [{"counter": counter, "peak_bytes": "9 GiB", "phase": phases[1]}]
            for counter in ("allocated", "reserved", "device")
        ),
    )


def kept_of(card: Card) -> str:
    """
    What is kept of a card's answer.

    Args:
        card: As drawn.

    Returns:
        What is required, the verdict and a fingerprint of all figures; of a refusal its kind and its field.
    """
    try:
        answer = estimate(card)
    except SizingError as error:
        return f"{type(error).__name__} {error.pointer}"
    found = figures(answer) | {"findings": sorted(f"{f.status} {f.field}" for f in answer.reasons)}
    found["assumptions"] = [[a.field, str(a.value)] for a in answer.assumptions]
    found["rules of thumb"] = answer.rules_of_thumb
    if answer.diagnosis is not None:
        found["remedies"] = [[r.field, str(r.to), r.saves_bytes, r.verdict] for r in answer.diagnosis.remedies]
    found["measured"] = [[m.agrees, m.estimated.expected] for m in answer.measured]
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]
    return f"{answer.required.expected} {answer.verdict} {digest}"


def kept() -> dict[str, str]:
    """The kept lines by card."""
    found: dict[str, str] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def write() -> None:
    """Write drawn.json anew."""
    found = {name: kept_of(card) for kind in models().items() for name, card in cards(*kind)}
    KEPT.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
