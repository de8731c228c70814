"""From allocated tensors to the allocator's pool and to what nvidia-smi shows."""

from typing import NamedTuple

from tonnage.estimate.training.bands import cap_class
from tonnage.estimate.training.settings import FSDP, TRAINERS, Settings
from tonnage.laws import device_context
from tonnage.laws import reserved as laws
from tonnage.spec.facts import Gpu
from tonnage.units import GiB, MiB

DEFAULT_MULTIPROCESSORS = 108
"""An A100's, where no GPU is stated. [unitless]"""


FREED = 2 / 5
"""
Part of the last step's gradients that activations may have cut, at most. [fraction]

Source: replays of tests/oracles/training_runs.json: 95 % of them lie below
"""
UNIFORM = 106
"""
Reserved over allocated of inputs of layers that all have one size. [percent]

Source: tests/measured/heldout_training.json#arctic-8b-h200-300k-liger (1.05), #stas-8b-z3-256k (1.085)
"""


class Ratio(NamedTuple):
    """Reserved over allocated of a regime, with its spread. [percent]"""

    expected: int
    low: int
    high: int
    whole: bool
    """Of everything that is allocated, not only of what comes and goes."""
    why: str
    gathered: int = 0
    """Gathered parameters that the pool holds once more, on a stream of their own. [percent]"""
    after: bool = False
    """Of what came and went before: the step finds those blocks cut too small for gradients and copies."""


def ratio(settings: Settings, *, checkpointed: bool, step_wins: bool) -> Ratio:
    """
    The regime's ratio.

    Source: TRAINING figures of `laws.reserved`; replays of tests/oracles/training_runs.json.
    """
    sharded = _sharded_ratio(settings, step_wins)
    if sharded is not None:
        return sharded
    if step_wins:
        return _BEFORE_STEP
    if not settings.varying:
        return _fixed(checkpointed)
    return _varying(settings, checkpointed)


def _sharded_ratio(settings: Settings, step_wins: bool) -> Ratio | None:
    offloaded = settings.offload_parameters or settings.offload_optimizer
    if settings.sharding == "zero3":
        return Ratio(120, 105, 135, True, "ZeRO-3 gathers and frees parameters")
    if settings.sharding in FSDP:
        if settings.release.fsdp == "fsdp1" and settings.card.framework in TRAINERS and not offloaded:
            return (_AFTER_UNITS if step_wins else _STREAMS) if settings.trains_base else _HOOKED
        if offloaded or settings.shards <= 2:
            return (
                _STREAMS if settings.release.fsdp != "fsdp2" else Ratio(120, 103, 140, True, "few ranks, or the host")
            )
        measured = round(100 * settings.release.reserved_ratio) or 110
        return Ratio(measured, max(100, measured - 5), measured + 8, True, "measured on this framework's sharded runs")
    if settings.sharding == "distributed_optimizer":
        return Ratio(108, 102, 125, True, "flat buffers stay, activations come and go")
    return None


_BEFORE_STEP = Ratio(130, 102, 160, False, "blocks of forward and backward remain beside the step's", after=True)
_AFTER_UNITS = Ratio(220, 140, 300, False, "blocks of forward and backward remain beside the step's", after=True)
_HOOKED = Ratio(125, 105, 165, False, "inputs of one size, units gathered on streams of their own", 50)
"""
What is left of forward and backward at the step, and of units under FSDP1.

Source: pytorch/pytorch@v2.2.0 c10/cuda/CUDACachingAllocator.cpp (a segment that was cut serves no larger request); measured:
tests/measured/heldout_training.json#fms-mistral-7b-full-2g-b2, #fms-llama-3-8b-lora-4g-b8-liger, #fms-powerlm-3b-full-1g-b4-t445
"""
_STREAMS = Ratio(140, 100, 185, False, "units are gathered on streams of their own", 100)
"""
FSDP1 on few ranks or with offload: blocks of one stream serve no other.

Source: pytorch/pytorch@v2.2.0 c10/cuda/CUDACachingAllocator.cpp get_free_block (same stream only), torch/distributed/fsdp/
_runtime_utils.py (unshard stream); measured: tests/measured/heldout_training.json#fsdpqlora-llama-2-7b-lora-b4-s2048
"""


def _fixed(checkpointed: bool) -> Ratio:
    if checkpointed:
        return Ratio(123, 104, 165, False, "fixed length, checkpointed")
    return Ratio(115, 102, 148, False, "fixed length")


def _varying(settings: Settings, checkpointed: bool) -> Ratio:
    if settings.release.lengths == "bucketed":
        return Ratio(103, 95, 125, False, "batches of similar length: the longest stay below the cap")
    if settings.release.lengths == "longest_first":
        return Ratio(125, 110, 165, False, "longest sample first")
    if settings.attention == "eager" and not checkpointed:
        return Ratio(125, 105, 180, False, "attention matrices: many blocks of one size")
    if checkpointed:
        return _RECOMPUTED[cap_class(settings)]
    return Ratio(165, 120, 230, False, "lengths vary")


_NEW_LONGEST = "lengths vary: every new longest sample asks for blocks no cached one serves"
_RECOMPUTED = {
    1: Ratio(380, 140, 620, False, _NEW_LONGEST),
    2: Ratio(330, 110, 620, False, _NEW_LONGEST),
    3: Ratio(250, 110, 720, False, "lengths vary; few samples reach the cap"),
}
"""
Checkpointed batches of any length, by `cap_class`: the higher the cap, the fewer samples come near it.

Source: replays of recorded steps with drawn lengths in random order (1.7 to 6.2); measured: the swift rows of
tests/measured/training.json and heldout_training.json
"""


def fragmentation(
    ratio_of: Ratio,
    *,
    allocated: int,
    resident: int,
    idle: int,
    live: int,
    uniform: int,
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
        uniform: Activations whose blocks serve each other: all samples are of one length. [bytes]
        usable: What the card leaves to the allocator; None: no card stated. [bytes]

    Returns:
        Three amounts. [bytes]
    """
    amounts = []
    for percent in (ratio_of.low, ratio_of.expected, ratio_of.high):
        if ratio_of.whole:
            # the blocks of sharded gradients serve nothing that is gathered
            extra = laws.whole_share(allocated=allocated + idle - uniform, ratio_percent=percent)
            extra += laws.whole_share(allocated=uniform, ratio_percent=UNIFORM) + idle + laws.CUBLAS_SEGMENT
        else:
            extra = laws.transient_share(transient=max(0, allocated - resident), ratio_percent=percent)
            extra += idle + live * ratio_of.gathered // 100
            extra += int(freed * FREED) if percent == ratio_of.high else 0
        pool = allocated + extra
        if usable is not None and not ratio_of.whole:
            pool = laws.capped(reserved=pool, allocated=allocated, usable=usable)
        amounts.append(pool - allocated)
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

NCCL = GiB
"""Communicators of one process; measured 0.5 to 1.9 GiB. [bytes]"""
