"""Which code turns logits into a loss, and how many of them exist at once."""

from typing import Protocol

from tonnage.estimate.training.settings import ZERO, Settings
from tonnage.laws import loss as laws
from tonnage.laws.loss import LogitBytes
from tonnage.spec.framework import LossPath
from tonnage.spec.model import Model

TUNE_CHUNKS = 8
"""CEWithChunkedOutputLoss.num_output_chunks, and torchtitan's."""
TRL_CHUNK = 256
"""Tokens of one chunk of TRL's chunked_nll. [tokens]"""


def path_name(settings: Settings) -> LossPath:
    """The code path of the card's cross entropy in this framework."""
    losses, kind = settings.release.losses, settings.cross_entropy
    if kind == "fused_linear":
        return losses.fused_linear
    if kind == "chunked":
        return losses.compiled_chunked if settings.compiled and losses.compiled_chunked else losses.chunked
    if settings.tensor_parallel_size > 1 and settings.release.code == "torchtitan":
        return "vocab_parallel_eager"
    if settings.compiled and losses.compiled and settings.context_parallel_size == 1:
        return losses.compiled
    return losses.full


def compiled_loss_open(settings: Settings) -> bool:
    """Whether it is open which kernels a compiled loss over all logits becomes: no field of the card says so."""
    return path_name(settings) == "full_compiled_online"


def logit_bytes(settings: Settings, name: LossPath, width: int, remote_code: bool) -> LogitBytes:
    """
    Bytes per logit of a code path.

    Args:
        settings: The job.
        name: Code path.
        width: Width of what the head computes. [bytes]
        remote_code: The checkpoint's own model code runs, whose loss stays in the model's dtype.

    Returns:
        As `laws.loss` has it, and fractions where chunks share fp32 copies. [bytes]
    """
    if remote_code and name in ("causal_shifted", "causal_upcast"):
        return _remote(settings, width)
    path = _path(settings, name, width)
    if settings.autocast and settings.release.code == "transformers" and settings.objective in ("sft", "pretrain"):
        outputs = name in ("causal_shifted", "causal_upcast", "causal_bf16") and not settings.libraries.at_least(
            "accelerate", "2.0"
        )
        return laws.mixed_precision_outputs(path=path) if outputs else path
    return path


def _remote(settings: Settings, width: int) -> LogitBytes:
    if settings.sharding in ZERO or not settings.autocast:
        return laws.half_precision(logit_bytes=width)
    copy = width if settings.micro_batch_size > 1 else 0
    return max(width + copy + 2 * laws.FLOAT, laws.FLOAT + width + laws.FLOAT), laws.FLOAT, 3 * laws.FLOAT, laws.FLOAT


def _path(job: Settings, name: LossPath, width: int) -> LogitBytes:
    if name == "causal_shifted":
        keeps = job.libraries.caller_keeps_logits
        return laws.causal_shifted(logit_bytes=width, sequences=job.micro_batch_size, caller_keeps=keeps)
    if name in ("full_compiled", "full_compiled_online"):
        return laws.full_compiled(logit_bytes=width, online=name == "full_compiled_online")
    if name == "chunked_compiled" and not job.trains_base:
        return laws.frozen_chunks(logit_bytes=width)
    law = _LAWS.get(name)
    return laws.chunked(logit_bytes=width, chunks=TUNE_CHUNKS, code=name) if law is None else law(logit_bytes=width)


class _Law(Protocol):
    def __call__(self, *, logit_bytes: int) -> LogitBytes: ...


_LAWS: dict[LossPath, _Law] = {
    "causal_upcast": laws.causal_upcast,
    "causal_held": laws.causal_held,
    "chunked_hidden": laws.causal_upcast,
    "causal_bf16": laws.in_place,
    "fused_linear": laws.in_place,
    "fused_by_free_memory": laws.in_place,
    "fabric": laws.fabric_outputs,
    "full_eager": laws.full_eager,
    "vocab_parallel": laws.vocab_parallel,
    "vocab_parallel_eager": laws.loss_parallel,
}


FUSED: frozenset[LossPath] = frozenset({"fused_linear", "fused_by_free_memory"})
"""Head and loss are one function."""


def scored_tokens(name: LossPath, model: Model, tokens: int, free: int | None) -> int:
    """Tokens whose logits exist at once, on a card that has so many bytes left; None: no card stated. [tokens]"""
    if name == "chunked_hidden":
        return laws.chunk_tokens(tokens=tokens, chunks=0, most=TRL_CHUNK)
    if name == "fused_linear":
        return laws.chunk_tokens(tokens=tokens, chunks=max(1, -(-model.vocab_size // max(1, model.hidden_size))))
    if name == "fused_by_free_memory":
        chunks = laws.chunks_by_free_memory(tokens=tokens, vocab_size=model.vocab_size, free=free)
        return laws.chunk_tokens(tokens=tokens, chunks=chunks)
    return tokens
