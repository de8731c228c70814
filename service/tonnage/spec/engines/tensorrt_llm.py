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
    max_input_len: int
    """Longest prompt an engine is built for where nothing is said. [tokens]"""
    context_feed_forward_rows: float
    context_stream_rows: float
    """Half-precision rows of a built engine's activations. [rows]"""
    decoder_rows: float
    runtime_rows: float
    """fp32 rows over the vocabulary that a built engine's decoder and runtime print for every slot. [rows]"""
    unprinted_rows: float
    """Most that stands in no line of theirs. [rows]"""
    tokens_per_block: int


RELEASE = TensorRtLlm
