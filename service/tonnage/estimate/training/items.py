"""The items of a phase: what is resident, and what is alive at its highest point."""

from math import isqrt

from tonnage.estimate.training.bands import Band
from tonnage.estimate.training.step import Moment
from tonnage.spec.report import Amount, Basis, Counter, MemoryItem, exactly

OPTIMIZER_SOURCE = "catalogue: optimizers"
GATHER_SOURCE = "torch fully_shard, DeepSpeed stage3"
TAPE_SOURCE = "tests/oracles/training_runs.json"


def item(
    component: str, amount: int, law: str, source: str, *,
    detail: str = "", basis: Basis = "derived", counter: Counter = "allocated",
    band: tuple[int, int] | None = None,
) -> MemoryItem:  # fmt: skip
    """One term; `band`: how much smaller and larger it may be. [bytes]"""
    amounts = exactly(amount) if band is None else Amount(max(0, amount - band[0]), amount, amount + band[1])
    return MemoryItem(
        component=component, bytes=amounts, basis=basis, law=law, source=source, detail=detail, counter=counter
    )


_MOVING = (
    ("activations", "laws.activations.at_moment", TAPE_SOURCE),
    ("logits", "laws.loss.at_moment", TAPE_SOURCE),
    ("gradients", "laws.gradients.at_point", TAPE_SOURCE),
    ("workspace", "laws.activations.unvarying", TAPE_SOURCE),
    ("unsharded_parameters", "laws.training_sharding.gathered_unit", GATHER_SOURCE),
    ("gradient_buckets", "laws.gradients.ddp_buckets", "torch DDP, DeepSpeed ZeRO"),
    ("kv_cache", "laws.kv_cache.full_attention", "transformers DynamicCache"),
    ("predictions", "laws.evaluation.joining", "transformers Trainer.evaluation_loop"),
    ("vision_encoder", "laws.vision_encoder.patches", "tests/oracles/tower_runs.json"),
    ("optimizer_temporary", "laws.optimizer.foreach_step", "pytorch/pytorch@v2.9.0 torch/optim"),
)
"""Component, law and source of everything that comes and goes."""
_MOVING_QUANTIZED = tuple((name.replace("workspace", "dequantization"), law, source) for name, law, source in _MOVING)


def _beside(below: int, amount: int) -> int:
    """What another item must be able to lack so that both together lack `below`, where one is too small for it. [bytes]"""
    return isqrt(below * below - amount * amount) if below > amount else 0


def phase_items(
    moment: Moment,
    resident: tuple[MemoryItem, ...],
    resident_bytes: int,
    band: Band,
    *,
    quantized: bool,
    least: float = 1.0,
    most: int = 0,
) -> tuple[MemoryItem, ...]:
    """
    Items alive at a moment, resident ones first; the band of the whole stands on the largest that moves.

    `least`: part of what moves that the longest batch surely reaches; `most`: what moves if it reaches the stated length. [bytes]
    """
    amounts = moment[2:12]
    total, widest = resident_bytes + moment.total, amounts.index(max(amounts))
    below = max(int(band.below * total), int((1 - least) * (moment.activations + moment.logits)))
    above = max(int(band.above * total), most - moment.total)
    beside = _beside(below, amounts[widest])
    items = list(resident)
    for place, (component, law, source) in enumerate(_MOVING_QUANTIZED if quantized else _MOVING):
        amount = amounts[place]
        if amount:
            spread = (below, above) if place == widest else (beside, 0) if place < 2 and beside else None
            items.append(item(component, amount, law, source, detail=moment.name, band=spread))
    return tuple(items)
