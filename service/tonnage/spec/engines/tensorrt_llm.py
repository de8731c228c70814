"""Releases of TensorRT-LLM: default backend, batch limits and the part of free memory its cache takes."""

from typing import Literal

from tonnage.spec.engine import Release


class TensorRtLlm(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of TensorRT-LLM."""

    backend: Literal["pytorch", "tensorrt"]
    free_gpu_memory_fraction: float
    max_batch_size: int
    max_num_tokens: int | None = None
    """Tokens of one step; None: as many as max_batch_size longest prompts, nothing is packed. [tokens]"""
    tokens_per_block: int


RELEASE = TensorRtLlm
