"""From allocated tensors to the allocator's pool and to what nvidia-smi shows."""

from tonnage.estimate.training.bands import cap_class
from tonnage.estimate.training.settings import FSDP, TRAINERS, Settings
from tonnage.laws import device_context
from tonnage.laws import pool_regimes as regimes
from tonnage.laws import reserved as laws
from tonnage.laws.pool_regimes import Ratio
from tonnage.spec.facts import Gpu
from tonnage.units import MiB

DEFAULT_MULTIPROCESSORS = 108
"""An A100's, where no GPU is stated. [unitless]"""


def ratio(settings: Settings, *, checkpointed: bool, step_wins: bool) -> Ratio:
    """
    The regime's ratio.

    Source: TRAINING figures of `laws.reserved`; replays of tests/oracles/training_runs.json.
    """
    sharded = _sharded_ratio(settings, step_wins)
    if sharded is not None:
        return sharded
    if step_wins:
        return regimes.BEFORE_STEP
    if not settings.varying:
        return regimes.FIXED_RECOMPUTED if checkpointed else regimes.FIXED
    return _varying(settings, checkpointed)


def _sharded_ratio(settings: Settings, step_wins: bool) -> Ratio | None:
    offloaded = settings.offload_parameters or settings.offload_optimizer
    if settings.sharding == "zero3":
        return regimes.ZERO3
    if settings.sharding in FSDP:
        if settings.release.fsdp == "fsdp1" and settings.card.framework in TRAINERS and not offloaded:
            return (regimes.AFTER_UNITS if step_wins else regimes.STREAMS) if settings.trains_base else regimes.HOOKED
        if offloaded or settings.shards <= 2:
            return regimes.STREAMS if settings.release.fsdp != "fsdp2" else regimes.FEW_RANKS
        return regimes.measured(ratio=settings.release.reserved_ratio)
    if settings.sharding == "distributed_optimizer":
        return regimes.FLAT_BUFFERS
    return None


def _varying(settings: Settings, checkpointed: bool) -> Ratio:
    if settings.release.lengths == "bucketed":
        return regimes.BUCKETED
    if settings.release.lengths == "longest_first":
        return regimes.LONGEST_FIRST
    if settings.attention == "eager" and not checkpointed:
        return regimes.ATTENTION_MATRICES
    return regimes.RECOMPUTED[cap_class(settings)] if checkpointed else regimes.VARYING


def fragmentation(
    ratio_of: Ratio,
    *,
    allocated: int,
    resident: int,
    idle: int,
    live: int,
    freed: int,
    usable: int | None,
) -> tuple[int, int, int]:
    """
    Reserved less allocated: low, expected, high.

    Args:
        ratio_of: The regime's ratio.
        allocated: Tensors at this moment. [bytes]
        resident: Those of them that stay from step to step, gradients included: their blocks are served again. [bytes]
        idle: Gradient shards that are freed but whose blocks stay. [bytes]
        live: Gathered parameters among them. [bytes]
        freed: Gradients of the last step, whose blocks may have been cut for what came after. [bytes]
        usable: What the card leaves to the allocator; None: no card stated. [bytes]

    Returns:
        Three amounts. [bytes]
    """
    percents = ratio_of.low, ratio_of.expected, ratio_of.high
    if ratio_of.whole:
        # the blocks of sharded gradients serve nothing that is gathered
        beside = idle + laws.CUBLAS_SEGMENT
        shares = [laws.whole_share(allocated=allocated + idle, ratio_percent=percent) for percent in percents]
        return shares[0] + beside, shares[1] + beside, shares[2] + beside
    transient, beside = max(0, allocated - resident), idle + live * ratio_of.gathered // 100
    low, expected, high = [
        beside + laws.transient_share(transient=transient, ratio_percent=percent) for percent in percents
    ]
    high += int(freed * regimes.FREED)
    if usable is None:
        return low, expected, high
    low, expected, high = [
        laws.capped(reserved=allocated + extra, allocated=allocated, usable=usable) - allocated
        for extra in (low, expected, high)
    ]
    return low, expected, high


def gathered(
    ratio_of: Ratio, *, weights: int, allocated: int, activations: int, logits: int, varying: bool, usable: int | None
) -> tuple[int, int, int]:
    """
    Reserved less allocated where parameters are gathered one by one: low, expected, high.

    Args:
        ratio_of: The regime's ratio, of what may be gathered.
        weights: Weights of the model before they are partitioned. [bytes]
        allocated: Tensors at this moment. [bytes]
        activations: Activations among them. [bytes]
        logits: Logits among them. [bytes]
        varying: Lengths vary, so that the high end holds blocks of shorter batches too.
        usable: What the card leaves to the allocator; None: no card stated. [bytes]

    Returns:
        Three amounts. [bytes]
    """
    amounts = []
    for percent in (ratio_of.low, ratio_of.expected, ratio_of.high):
        extra = laws.gathered_pool(weights=weights, activations=activations, logits=logits, ratio_percent=percent)
        if varying and percent == ratio_of.high:
            extra += laws.transient_share(transient=activations + logits, ratio_percent=regimes.RECOMPUTED[2].expected)
        if usable is not None:
            extra = laws.capped(reserved=allocated + extra, allocated=allocated, usable=usable) - allocated
        amounts.append(extra)
    return amounts[0], amounts[1], amounts[2]


def context(gpu: Gpu | None, *, eager: bool) -> int:
    """
    Context of a training process with its kernels loaded; all of them at once before CUDA 11.7's lazy loading.

    Source: 0.45 GiB on A100 lazy, 1.1 GiB eager, 0.62 GiB on H100: tests/measured/training.json (device rows).
    """
    if gpu is not None and gpu.vendor.lower() == "amd":
        return device_context.rocm()
    multiprocessors = (gpu.multiprocessors if gpu is not None else None) or DEFAULT_MULTIPROCESSORS
    libraries = device_context.torch_libraries_most() + EXTENSIONS if eager else device_context.torch_libraries()
    return device_context.cuda(multiprocessors=multiprocessors) + libraries


EXTENSIONS = 200 * MiB
"""Kernels of flash-attn, bitsandbytes and others, loaded whole with the process before CUDA 11.7: by the 28 device rows of
tests/measured/training.json from torch 2.0. [bytes]"""
