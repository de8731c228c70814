"""What the allocator's pool holds beyond the tensors in it, phase by phase."""

from math import isqrt

from tonnage.estimate.training import counters
from tonnage.estimate.training.items import item
from tonnage.estimate.training.settings import FSDP, Settings
from tonnage.estimate.training.solve import Solved, Stage
from tonnage.estimate.training.step import Moment
from tonnage.laws.pool_regimes import Ratio
from tonnage.laws.reserved import transient_share
from tonnage.spec.report import MemoryItem


def fragmentation(job: Solved, stage: Stage, usable: int | None) -> list[MemoryItem]:
    """
    What the pool holds beyond its tensors.

    Args:
        job: The job.
        stage: One of its stages.
        usable: What the card leaves to the allocator; None: no card stated. [bytes]

    Returns:
        An item for each of the stage's moments.
    """
    gathers = job.settings.sharding == "zero3"
    law = "laws.reserved.gathered_pool" if gathers else "laws.reserved.transient_share"
    return [
        item(
            "fragmentation", expected, law, "measured: laws.reserved",
            detail=f"{ratio.why}; given back when the card is full, so `required` counts only what cannot be",
            basis="calibrated", counter="reserved", band=(expected - low, high - expected),
        )
        for ratio, (low, expected, high) in zip(
            stage.ratios, [_excess(job, stage, place, usable) for place in range(len(stage.ratios))], strict=True
        )
    ]  # fmt: skip


def _excess(job: Solved, stage: Stage, place: int, usable: int | None) -> tuple[int, int, int]:
    """Reserved less allocated at the moment of a place: low, expected, high. [bytes]"""
    moments, ratio, least = stage.moments, stage.ratios[place], job.reach.least
    low, expected, high = _pool(job.settings, stage, moments, place, usable)
    if stage.most is not moments:
        high = max(high, _at_the_cap(job, stage, place, expected, usable))
    if least < 1 and job.settings.sharding != "zero3":
        low = min(low, _of_short_samples(_moved(moments, moments[place], ratio), ratio, least, expected))
    return low, expected, high


def _moved(moments: tuple[Moment, ...], moment: Moment, regime: Ratio) -> Moment:
    """Whose blocks the pool holds: once all gradients are there, those of the loss remain beside them."""
    if regime.after:
        return moments[1]
    forward = moments[0]
    if moment.phase == "backward" and forward.moving > moment.moving:
        return forward
    return moment


def _together(alone: int, beside: int) -> int:
    """How wide a band must be for two of one cause to make up their sum, though bands add as independent ones do. [bytes]"""
    return isqrt(alone * alone + 2 * alone * beside) if alone > 0 else 0


def _of_short_samples(moved: Moment, regime: Ratio, least: float, expected: int) -> int:
    """Low end of the pool's excess where samples may be far shorter: the pool shrinks with what lies in it. [bytes]"""
    shorter = int((1 - least) * (moved.activations + moved.logits))
    transient = moved.moving - shorter
    fewer = max(0, expected - transient_share(transient=transient, ratio_percent=regime.low))
    return max(0, expected - _together(fewer, shorter))


def _at_the_cap(job: Solved, stage: Stage, place: int, expected: int, usable: int | None) -> int:
    """High end of the pool's excess if samples reach the stated length; with that of the tensors it makes up the band. [bytes]"""
    full = stage.most[place]
    _, there, most = _pool(job.settings, stage, stage.most, place, usable)
    longer = full.total - stage.moments[place].total
    tensors = int(job.band.above * (stage.share.resident_bytes + full.total))
    whole = longer + there - expected + isqrt(tensors * tensors + (most - there) ** 2)
    return expected + isqrt(max(0, whole * whole - longer * longer))


def _pool(
    job: Settings, stage: Stage, moments: tuple[Moment, ...], place: int, usable: int | None
) -> tuple[int, int, int]:
    """Reserved less allocated at a moment: low, expected, high. [bytes]"""
    moment, regime = moments[place], stage.ratios[place]
    allocated = stage.share.resident_bytes + moment.total
    moved = _moved(moments, moment, regime)
    if job.sharding == "zero3":
        return counters.gathered(
            regime,
            weights=stage.share.rank.sizes.weights,
            allocated=allocated,
            activations=moved.activations,
            logits=moved.logits,
            varying=job.varying,
            usable=usable,
        )
    sharded = job.sharding in FSDP and not job.in_backward
    waiting = max(0, moments[2].gradients - moment.gradients)
    return counters.fragmentation(
        regime,
        allocated=allocated,
        resident=allocated - moved.moving,
        idle=waiting if sharded else 0,
        live=moment.live,
        freed=0 if sharded or regime.after or job.varying else waiting,
        usable=usable,
    )
