"""The candidate points of a step: which of them is the peak, and what is alive there."""

from typing import NamedTuple

from tonnage.estimate.training.profile import Part, StepProfile
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.tape import ZERO, Form, plus, times, value


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


class Batch(NamedTuple):
    """Measures of a micro-batch."""

    tokens: int
    length: int
    padded: int
    """Tokens with the length rounded up to 128. [tokens]"""
    scored: int
    """Tokens whose logits exist at once. [tokens]"""
    in_flight: int = 1
    """Micro-batches whose activations are held. [unitless]"""

    @property
    def measures(self) -> Form:
        """As factors of a form."""
        return (1, self.tokens, self.tokens * self.length, self.padded, 1, self.scored)


def highest(profile: StepProfile, batch: Batch, held: Held, rank: Rank) -> tuple[Moment, Moment]:
    """
    The highest point of forward and that of backward.

    Args:
        profile: The model's step.
        batch: Measures of the micro-batch.
        held: What the rank holds and gathers.
        rank: Layers of the stage, and whether it begins or ends the pipeline.

    Returns:
        Two moments.
    """
    walk = _Walk(batch.measures, held)
    counts = counts_of(profile, rank)
    _forward(walk, profile, counts, rank, held)
    forward = walk.moment("forward", 0)
    if batch.in_flight > 1:
        kept = times(walk.level, batch.in_flight - 1)
        forward = forward._replace(activations=forward.activations + value(kept, batch.measures))
        walk.level = plus(walk.level, kept)
    walk.best = None
    _backward(walk, profile, counts, rank, held)
    return forward, walk.moment("backward", held.buckets)


def counts_of(profile: StepProfile, rank: Rank) -> tuple[int, ...]:
    """Layers of the stage by kind; the first layer of a frozen model is a kind of its own."""
    if len(rank.counts) == len(profile.counts):
        return rank.counts
    if sum(rank.counts) == sum(profile.counts):
        return profile.counts
    return (0, *rank.counts)[-len(profile.counts) :]


class _Walk:
    """Levels before and after the segments, and the highest point so far."""

    __slots__ = ("before", "best", "done", "level", "measures")

    def __init__(self, measures: Form, held: Held) -> None:
        self.measures = measures
        self.before = held.gradients_before
        self.done = held.gradients_done
        self.level: Form = ZERO
        self.best: tuple[int, str, Form, Form, int] | None = None

    def go(self, part: Part, count: int = 1) -> None:
        """Past `count` segments."""
        self.level = plus(self.level, part.net if count == 1 else times(part.net, count))

    def look(self, name: str, part: Part, live: int) -> None:
        """Whether a point of the segment ahead is the highest; `live`: gathered parameters and reductions. [bytes]"""
        level, measures = self.level, self.measures
        one, tokens, pairs, padded, _, scored = measures
        base = (
            level[0] * one + level[1] * tokens + level[2] * pairs + level[3] * padded + level[5] * scored
            + live + int(level[4] * self.done)
        )  # fmt: skip
        for point in part.points:
            total = base + value(point, measures)
            if self.best is None or total > self.best[0]:
                self.best = (total, name, level, point, live)

    def moment(self, phase: str, buckets: int) -> Moment:
        """The highest point by what it is made of."""
        if self.best is None:
            raise ValueError("a stage without layers")
        _, name, level, point, live = self.best
        _, tokens, pairs, padded, _, scored = self.measures
        return Moment(
            phase=phase,
            name=name,
            activations=max(
                0, (level[1] + point[1]) * tokens + (level[2] + point[2]) * pairs + (level[3] + point[3]) * padded
            ),
            logits=max(0, (level[5] + point[5]) * scored),
            scratch=max(0, level[0] + point[0]),
            gradients=max(0, self.before + point[4] + int(level[4] * self.done)),
            live=live,
            buckets=buckets,
            temporary=0,
        )


def _forward(walk: _Walk, profile: StepProfile, counts: tuple[int, ...], rank: Rank, held: Held) -> None:
    """Embedding, layers, tail; leaves the level where backward begins."""
    walk.go(profile.embedding)
    for part, count in zip(profile.forward, counts, strict=True):
        if count:
            walk.go(part, count - 1)
            walk.look("forward of the last layer", part, held.live_forward)
            walk.go(part)
    if rank.last:
        walk.look("loss, forward", profile.tail, held.live_tail)
        walk.go(profile.tail)
        walk.go(profile.leaving)
    for part, count in zip(profile.layer_leaving, counts, strict=True):
        walk.go(part, count)


def _backward(walk: _Walk, profile: StepProfile, counts: tuple[int, ...], rank: Rank, held: Held) -> None:
    """Loss, layers from the last to the first, embedding."""
    if rank.last:
        walk.look("loss, backward", profile.tail_backward, held.live_tail)
        walk.go(profile.tail_backward)
    for part, count in zip(reversed(profile.backward), reversed(counts), strict=True):
        if not count:
            continue
        walk.look("backward of the last layer", part, held.live_backward)
        walk.go(part, count - 1)
        if count > 1:
            walk.look("backward of the first layer", part, held.live_backward)
        walk.go(part)
    if rank.first:
        walk.look("gradient of the embedding", profile.embedding_backward, held.live_backward)
