"""How well the weights of a stage are known: by format, by what a checkpoint says of itself, by a known file size."""

from tonnage.estimate.serving.vllm_settings import traits
from tonnage.estimate.weights import disk_bytes, stage_weights
from tonnage.spec.report import Amount
from tonnage.spec.workload import Workload
from tonnage.units import GiB, MiB

_WEIGHT_SLACK = 32 * MiB
"""A rotary table more or less: checkpoints of one architecture differ in their longest position. [bytes]"""
_WEIGHT_BANDS = {"plain": 0.003, "fp8": 0.006, "int8": 0.006, "mxfp4": 0.01}
_WEIGHT_BAND = 0.02
_UNLISTED_BITSANDBYTES = 0.15
"""Upwards, where the checkpoint's list of matrices left in 16 bit is not stated: "dynamic" checkpoints name some and are
5 to 14 % larger (tests/measured/serving_vllm.json: Llama-3.1-8B in both, 5.35 and 5.60 GiB; Qwen2.5-3B)."""
_UNLISTED_TOWER = 0.1
"""More of a multimodal model's, whose tower such a list may name."""
_UNLISTED_MIXTURE = {"fp8": 0.03}
_UNLISTED_RECURRENT = {"gptq": 0.12, "awq": 0.12}
"""Upwards, of other formats: lists name attention beside experts (Llama-4-Maverick in fp8, 2.8 %) and recurrent layers
(Qwen3.5-35B-A3B in GPTQ, 11 %)."""
_OPTIONAL_KERNELS = 0.03
"""Upwards, where the MXFP4 kernel is Marlin unless Triton's kernels are installed as well: it pads to 256 and 128
(65.9 GiB of gpt-oss-120b instead of 64.3)."""
_COUNT_BAND = 0.1


def held_weights(workload: Workload, size: int, *, optional_kernels: bool) -> tuple[Amount, int]:
    """
    Weights of a stage on the GPU, and what of them is offloaded to the host.

    Args:
        workload: Resolved card for vLLM.
        size: Weights as computed from the architecture. [bytes]
        optional_kernels: What the format is padded to depends on what is installed.

    Returns:
        Weights with their band, and offloaded bytes.
    """
    if workload.weight_bytes is not None:
        size = size * workload.weight_bytes // max(_whole(workload), 1)
    offload = getattr(workload.serving, "cpu_offload_gb", None) or 0
    offloaded = min(size, int(offload * GiB))
    family = "plain" if workload.weight_format.kind == "plain" else workload.weight_format.family
    part = _WEIGHT_BANDS.get(family, _WEIGHT_BAND) if workload.model.known else _COUNT_BAND
    held = size - offloaded
    listed = workload.weight_bytes is not None or workload.model.weight_format == workload.weight_format.id
    more = part if listed else max(part, _unlisted(workload, family))
    if optional_kernels:
        more = max(more, _OPTIONAL_KERNELS)
    half = int(size * part) + _WEIGHT_SLACK
    return Amount(max(0, held - half), held, held + int(size * more) + _WEIGHT_SLACK), offloaded


def _unlisted(workload: Workload, family: str) -> float:
    """How much more a checkpoint may leave in 16 bit than its format says, where its own list is not stated."""
    model, kind = workload.model, traits(workload.model)
    if family == "plain" or not model.known:
        return 0.0
    if family == "bitsandbytes":
        return _UNLISTED_BITSANDBYTES + (_UNLISTED_TOWER if model.vision is not None else 0.0)
    if kind.recurrent and family in _UNLISTED_RECURRENT:
        return _UNLISTED_RECURRENT[family]
    return _UNLISTED_MIXTURE.get(family, 0.0) if kind.experts else 0.0


def _whole(workload: Workload) -> int:
    """The computed checkpoint, which a known file size is compared with. [bytes]"""
    if workload.model.known:
        return disk_bytes(workload.model, workload.weight_format, workload.formats)
    return sum(s.total for s in stage_weights(workload.model, workload.weight_format, workload.formats))


__all__ = ["held_weights"]
