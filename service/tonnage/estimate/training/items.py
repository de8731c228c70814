"""The items of a phase: what is resident, and what is alive at its highest point."""

from typing import NamedTuple

from tonnage.estimate.training.bands import Band
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.step import Batch, Candidate
from tonnage.spec.report import Amount, Basis, Counter, MemoryItem, exactly

OPTIMIZER_SOURCE = "catalogue: optimizers"
GATHER_SOURCE = "torch fully_shard, DeepSpeed stage3"
TAPE_SOURCE = "tests/oracles/training_runs.json"


class Fixed(NamedTuple):
    """Items of one rank that are the same in every phase."""

    resident: tuple[MemoryItem, ...]
    """Weights, adapters, master weights, optimizer states, permanent buffers, reference models."""
    resident_bytes: int
    outside: tuple[MemoryItem, ...]
    """Context and communicators."""


class Moment(NamedTuple):
    """The highest point of one phase, by what it is made of. [bytes]"""

    phase: str
    name: str
    activations: int
    logits: int
    scratch: int
    """Dequantized matrices, autocast copies, adapter temporaries."""
    gradients: int
    live: int
    buckets: int
    temporary: int

    @property
    def total(self) -> int:
        """Everything that is not resident. [bytes]"""
        return (
            self.activations + self.logits + self.scratch + self.gradients + self.live + self.buckets + self.temporary
        )


def moment_of(candidate: Candidate, batch: Batch, held: Held, stale: int) -> Moment:
    """A candidate point by what it is made of; `stale`: what the previous micro-batch still holds. [bytes]"""
    form, measures = candidate.form, batch.measures
    tokens = form[1] * measures[1] + form[2] * measures[2] + form[3] * measures[3]
    backward = candidate.phase == "backward"
    gradients = max(0, held.gradients_before + form[4] + int(candidate.done * held.gradients_done))
    return Moment(
        phase=candidate.phase,
        name=candidate.name,
        activations=max(0, tokens) + stale,
        logits=max(0, form[5] * measures[5]),
        scratch=max(0, form[0]),
        gradients=gradients,
        live=candidate.live,
        buckets=held.buckets if backward else 0,
        temporary=0,
    )


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


def phase_items(moment: Moment, fixed: Fixed, band: Band, *, quantized: bool) -> list[MemoryItem]:
    """Items alive at a moment, resident ones first; the band of the whole stands on the largest that moves."""
    total = fixed.resident_bytes + moment.total
    parts = [part for part in _parts(moment, quantized) if part[1]]
    widest = max(parts, key=lambda part: part[1], default=None)
    spread = (int(band.below * total), int(band.above * total))
    return [
        *fixed.resident,
        *(
            item(component, amount, law, source, detail=moment.name, band=spread if part is widest else None)
            for part in parts
            for component, amount, law, source in (part,)
        ),
    ]


def _parts(moment: Moment, quantized: bool) -> tuple[tuple[str, int, str, str], ...]:
    """Component, bytes, law and source of everything that comes and goes."""
    scratch = "dequantization" if quantized else "workspace"
    return (
        ("activations", moment.activations, "estimate.training.profile.step_profile", TAPE_SOURCE),
        ("logits", moment.logits, "laws.loss", TAPE_SOURCE),
        ("gradients", moment.gradients, "laws.gradients.accumulated", TAPE_SOURCE),
        (scratch, moment.scratch, "estimate.training.operators", TAPE_SOURCE),
        ("unsharded_parameters", moment.live, "laws.training_sharding.gathered_unit", GATHER_SOURCE),
        ("gradient_buckets", moment.buckets, "laws.gradients.ddp_buckets", "torch DDP, DeepSpeed ZeRO"),
        ("optimizer_temporary", moment.temporary, "laws.optimizer.foreach_step", "pytorch/pytorch@v2.9.0 torch/optim"),
    )
