"""Which accelerators an engine or framework runs on: established, possible with a plugin, or not at all."""

from functools import lru_cache
from typing import NamedTuple


class Runs(NamedTuple):
    """Vendors and the oldest NVIDIA generation."""

    established: frozenset[str]
    possible: frozenset[str] = frozenset()
    minimum_compute_capability: str | None = None
    source: str = ""


def _runs(established: str, possible: str = "", minimum: str | None = None, source: str = "") -> Runs:
    return Runs(frozenset(established.split()), frozenset(possible.split()), minimum, source)


ENGINES: dict[str, Runs] = {
    "vllm": _runs(
        "nvidia amd",
        "intel google aws apple",
        "7.0",
        "docs.vllm.ai installation: compute capability 7.0 or higher; ROCm",
    ),
    "sglang": _runs("nvidia amd", "intel google aws", "7.5", "docs.sglang.ai install: sm75 and above; ROCm"),
    "tensorrt-llm": _runs("nvidia", "", "7.0", "nvidia.github.io/TensorRT-LLM support matrix"),
    "tgi": _runs(
        "nvidia amd", "intel aws google", "7.0", "huggingface.co/docs/text-generation-inference supported hardware"
    ),
    "transformers": _runs("nvidia amd", "intel google aws apple", "5.0", "pytorch.org supported back ends"),
    "llama.cpp": _runs("nvidia amd apple intel", "", "5.0", "ggml-org/llama.cpp README supported back ends"),
    "ollama": _runs("nvidia amd apple", "intel", "5.0", "ollama/ollama docs/gpu.md"),
    "mlx": _runs("apple", "nvidia", None, "ml-explore/mlx README"),
}
FRAMEWORKS: dict[str, Runs] = {
    "unsloth": _runs("nvidia", "amd intel", "7.0", "docs.unsloth.ai requirements: CUDA capability 7.0"),
    "megatron": _runs("nvidia", "amd", "7.0", "NVIDIA/Megatron-LM README"),
}
ANY_FRAMEWORK = _runs("nvidia amd", "intel google aws apple", "5.0", "pytorch.org supported back ends")
ANY = _runs("nvidia amd", "intel google aws apple", None, "no engine stated")


def runs(engine: str | None, framework: str | None) -> Runs:
    """Where the card's engine or framework runs."""
    if engine is not None:
        return ENGINES.get(engine, ANY)
    return ANY if framework is None else FRAMEWORKS.get(framework, ANY_FRAMEWORK)


@lru_cache(maxsize=256)
def capability(text: str | None) -> tuple[int, int] | None:
    """NVIDIA compute capability as numbers, None for other vendors' names. [unitless]"""
    if text is None:
        return None
    major, dot, minor = text.partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None
