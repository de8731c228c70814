"""
How far measured peaks lie from ours, by regime: 95 % bands of allocated memory, as fractions of the total.

Taken from the residuals of tests/measured/training.json and, for eager single-GPU runs, of tests/oracles/training_runs.json;
wider than seen where few rows stand behind a regime.
"""

from math import sqrt
from typing import NamedTuple

from tonnage.estimate.training.losses import compiled_loss_open
from tonnage.estimate.training.settings import FSDP, Settings


class Band(NamedTuple):
    """How much smaller and larger the truth may be. [fraction of the total]"""

    below: float
    above: float


def allocated_band(settings: Settings, *, known: bool, generic: bool, routed: bool) -> Band:
    """
    Band of the allocated peak.

    Args:
        settings: The job.
        known: The architecture is known, not only a count.
        generic: It is read by generic laws.
        routed: It has routed experts.

    Returns:
        The regime's band.
    """
    if not known:
        return Band(0.5, 1.0)
    band = _regime(settings)
    if generic or (routed and settings.trains_base):
        band = Band(max(band.below, 0.15), max(band.above, 0.20))
    elif routed:  # most of it is weights, which are exact
        band = Band(max(band.below, 0.12), max(band.above, 0.12))
    if settings.objective not in ("sft", "pretrain"):
        band = Band(max(band.below, 0.20), max(band.above, 0.35))
    if (settings.varying and settings.release.lengths == "bucketed") or may_fall_short(settings):
        band = Band(max(band.below, 0.12), band.above)
    return band


TYPICAL_CAP = 2048
"""Caps above it exceed the mean length of most instruction data: the longest batch may stay below. [tokens]"""


SHORT_CAP = 1024
"""Caps that most samples of instruction data reach. [tokens]"""


def cap_class(job: Settings) -> int:
    """0: lengths are alike; 1, 2, 3: they vary up to a cap that most, many or few samples reach."""
    if not job.varying:
        return 0
    return 1 + (job.sequence_length > SHORT_CAP) + (job.sequence_length > TYPICAL_CAP)


SHORT_SAMPLES = 512
"""
Longest sample of a run over short instruction data: what the longest batch surely reaches under a cap. [tokens]

Source: tatsu-lab/stanford_alpaca README (model_max_length 512 holds its samples); tests/measured/heldout_training.json
(unsloth-*, swift2-*, swift3-*: such data under caps of 2048 to 32768)
"""


class Reach(NamedTuple):
    """How long the longest batch is, where the stated length is only a cap."""

    expected: float
    """Of the stated length. [fraction]"""
    least: float
    """Of the expected one. [fraction]"""


TO_THE_END = Reach(1.0, 1.0)


def reach_of(job: Settings) -> Reach:
    """
    What the longest batch reaches: the middle of what it may, on a logarithmic scale, and what it surely does.

    Source: tests/measured/heldout_training.json (unsloth-*, h2-un-*, swift3-*, h2-sw-*: at the cap nearly all would be too high)
    """
    if not job.varying or job.packed or job.release.lengths == "bucketed" or job.sequence_length <= SHORT_CAP:
        return TO_THE_END
    least = SHORT_SAMPLES / job.sequence_length
    if job.release.fills_caps or job.release.lengths == "longest_first":
        return Reach(1.0, least)
    expected = sqrt(least)
    return Reach(expected, least / expected)


def may_fall_short(job: Settings) -> bool:
    """Whether the stated length is a cap that the data may not reach."""
    return job.varying and job.sequence_length > TYPICAL_CAP


OPEN_KERNELS = Band(0.26, 0.06)
"""
A compiled loss of torch 2.8 on: by its kernels fewer bytes per logit, and freed pages may serve again (expandable segments).

Source: tests/measured/training.json#titan-trainy-h200-32 and heldout_training.json#titan-ao-8b-8h100-bf16,
#h2-tt-llama3-8b-b200, -mi300x (one recipe)
"""


def _regime(job: Settings) -> Band:
    offloaded = job.offload_parameters or job.offload_optimizer
    rules = (
        (job.release.code == "megatron", Band(0.30, 0.12)),
        (job.sharding != "none" and offloaded, Band(0.08, 0.18)),
        (job.sharding == "zero3", Band(0.07, 0.07)),
        (compiled_loss_open(job), OPEN_KERNELS),
        (job.sharding in FSDP and job.release.code == "torchtitan", Band(0.06, 0.06)),
        (job.sharding in FSDP, Band(0.08, 0.12)),
        (job.sharding in ("zero1", "zero2", "ddp"), Band(0.08, 0.10)),
        (offloaded or job.offload_activations, Band(0.10, 0.12)),
        (job.release.code == "torchtune" and not job.trains_base, Band(0.16, 0.10)),
        (job.compiled or job.release.code == "torchtune", Band(0.08, 0.10)),
        (job.card.framework == "axolotl", Band(0.08, 0.20)),
        (job.quantized, Band(0.05, 0.05)),
    )
    return next((band for holds, band in rules if holds), Band(0.04, 0.05))
