"""The items of a phase: what is resident, and what is alive at its highest point."""

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


def phase_items(
    moment: Moment, resident: tuple[MemoryItem, ...], resident_bytes: int, band: Band, *, quantized: bool
) -> tuple[MemoryItem, ...]:
    """Items alive at a moment, resident ones first; the band of the whole stands on the largest that moves."""
    total = resident_bytes + moment.total
    parts = [part for part in _parts(moment, quantized) if part[1]]
    widest = max(parts, key=lambda part: part[1], default=None)
    spread = (int(band.below * total), int(band.above * total))
    return (
        *resident,
        *(
            item(component, amount, law, source, detail=moment.name, band=spread if part is widest else None)
            for part in parts
            for component, amount, law, source in (part,)
        ),
    )


def _parts(moment: Moment, quantized: bool) -> tuple[tuple[str, int, str, str], ...]:
    """Component, bytes, law and source of everything that comes and goes."""
    scratch = "dequantization" if quantized else "workspace"
    return (
        ("activations", moment.activations, "laws.activations", TAPE_SOURCE),
        ("logits", moment.logits, "laws.loss", TAPE_SOURCE),
        ("gradients", moment.gradients, "laws.gradients.accumulated", TAPE_SOURCE),
        (scratch, moment.scratch, "laws.activations", TAPE_SOURCE),
        ("unsharded_parameters", moment.live, "laws.training_sharding.gathered_unit", GATHER_SOURCE),
        ("gradient_buckets", moment.buckets, "laws.gradients.ddp_buckets", "torch DDP, DeepSpeed ZeRO"),
        ("kv_cache", moment.cache, "laws.kv_cache.full_attention", "transformers DynamicCache"),
        ("optimizer_temporary", moment.temporary, "laws.optimizer.foreach_step", "pytorch/pytorch@v2.9.0 torch/optim"),
    )
