"""What vLLM refuses before it allocates: classes that a version does not have, numbers a card lacks, lengths beyond a model's."""

from collections.abc import Iterator

from tonnage.estimate.serving.vllm_settings import Settings, traits
from tonnage.spec.engine import version_key
from tonnage.spec.engines.vllm import Vllm as Release
from tonnage.spec.model import Model
from tonnage.spec.report import Finding
from tonnage.spec.workload import Workload

_BFLOAT16_SINCE = 8
"""vllm/worker/worker.py _check_if_gpu_supports_dtype. [major number]"""
_RESTATED = 2
"""Repositories have corrected their longest position by as much since (Llama 2: 2,048 to 4,096). [unitless]"""


def refusals(workload: Workload, chosen: Settings) -> tuple[Finding, ...]:
    """
    Reasons not to start that have nothing to do with memory.

    Args:
        workload: Resolved card for vLLM.
        chosen: vLLM's settings.

    Returns:
        Findings that are not met.
    """
    return (*_model_class(workload, chosen.release), *_dtype(workload, chosen))


def _model_class(workload: Workload, release: Release) -> Iterator[Finding]:
    model = workload.model
    if model.model_type in release.unsupported_model_types:
        yield _no_class(f"vLLM has no class for {model.model_type} in any version that was checked")
    stated = getattr(workload.serving, "engine_version", None)
    if stated is None or model.model_type not in release.model_types_after.keys() | release.model_types_until.keys():
        return
    version = version_key(stated)
    last = release.model_types_until.get(model.model_type)
    if last is not None and version and version > version_key(last)[: len(version)]:
        yield _no_class(f"{model.model_type} was supported until vLLM {last}: use that version or an older one")
    before = release.model_types_after.get(model.model_type)
    if before is not None and version and _not_after(version, version_key(before)):
        yield _too_new(model, stated, before, release)


def _not_after(version: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """A version without its patch is the last of its line."""
    return version < last[: len(version)] if len(version) < len(last) else version <= last


def _no_class(reason: str) -> Finding:
    return Finding(status="excluded", reason=reason, field="/model")


def _too_new(model: Model, stated: str, before: str, release: Release) -> Finding:
    reason = f"vLLM {stated} has no class for {model.model_type}, which came after {before}"
    if not release.runs_transformers_classes:
        return Finding(status="excluded", reason=reason, field="/serving/engine_version")
    return Finding(
        status="needs_confirmation",
        reason=f"{reason}: it may fall back to the class of Transformers, whose memory is not modelled",
        field="/serving/engine_version",
    )


def _dtype(workload: Workload, chosen: Settings) -> Iterator[Finding]:
    """bfloat16 is refused on cards before compute capability 8.0; later releases fall back unless it is asked for."""
    asked = getattr(workload.serving, "dtype", None)
    if chosen.dtype != "bf16" or not 0 < chosen.major < _BFLOAT16_SINCE:
        return
    if asked is None and (chosen.release.replaces_bfloat16 or workload.weight_format.kind != "plain"):
        return
    told = f"dtype {asked}" if asked is not None else "the checkpoint's bfloat16"
    yield Finding(
        status="excluded",
        reason=f"{told} needs compute capability 8.0, the card has {chosen.major}.{chosen.minor}: use float16 (--dtype half)",
        field="/serving/dtype",
    )


def too_long(workload: Workload) -> tuple[Finding, ...]:
    """
    A longest request beyond what the model's config says.

    Args:
        workload: Resolved card for vLLM.

    Returns:
        A finding that needs confirmation, or nothing.
    """
    stated, native = getattr(workload.serving, "max_model_len", None), traits(workload.model).native_length
    if stated is None or not workload.model.max_position_embeddings or stated <= _RESTATED * native:
        return ()
    finding = Finding(
        status="needs_confirmation",
        reason=f"max_model_len {stated} is longer than the {native} tokens of the model's config: vLLM refuses it unless "
        "rope_scaling is overridden, or VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is set",
        field="/serving/max_model_len",
    )
    return (finding,)


__all__ = ["refusals", "too_long"]
