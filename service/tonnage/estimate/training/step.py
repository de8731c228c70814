"""The candidate points of a step: which of them is the peak, and what is alive there."""

from typing import NamedTuple

from tonnage.estimate.training.profile import Part, StepProfile
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.tape import ZERO, Form, per_token, plus, times, value
from tonnage.laws import activations, gradients, loss


class Moment(NamedTuple):
    """The highest point of one phase, by what it is made of. [bytes]"""

    phase: str
    name: str
    activations: int
    logits: int
    gradients: int
    scratch: int
    """Dequantized matrices, autocast copies, adapter temporaries."""
    live: int
    """Gathered parameters and reductions."""
    buckets: int
    cache: int
    """Keys and values of generated samples."""
    predictions: int
    """Logits that an evaluation keeps."""
    temporary: int
    """Copies that the optimizer step makes."""
    total: int
    """Everything that is not resident."""

    @property
    def moving(self) -> int:
        """What comes and goes within a step: all of it but gradients. [bytes]"""
        return self.total - self.gradients


def moment(
    phase: str, name: str, *,
    activations: int = 0, logits: int = 0, gradients: int = 0, scratch: int = 0, live: int = 0, buckets: int = 0,
    cache: int = 0, predictions: int = 0, temporary: int = 0,
) -> Moment:  # fmt: skip
    """A moment by its parts, with their sum. [bytes]"""
    total = activations + logits + gradients + scratch + live + buckets + cache + predictions + temporary
    return Moment(
        phase, name, activations, logits, gradients, scratch, live, buckets, cache, predictions, temporary, total
    )


class Batch(NamedTuple):
    """Measures of a micro-batch."""

    tokens: int
    length: int
    padded: int
    """Tokens with the length rounded up to 128. [tokens]"""
    scored: int
    """Tokens whose logits exist at once. [tokens]"""

    @property
    def measures(self) -> Form:
        """As factors of a form."""
        return (1, self.tokens, self.tokens * self.length, self.padded, 1, self.scored)


class Point(NamedTuple):
    """One point of a step that may be its highest: a form of the batch's measures, and what does not depend on them."""

    name: str
    fixed: int
    """Everything but what follows. [bytes]"""
    tokens: int
    """[bytes/token]"""
    pairs: int
    padded: int
    scored: int
    scratch: int
    gradients: int
    live: int
    """Gathered parameters and reductions. [bytes]"""


class Course(NamedTuple):
    """The points of a step of one rank."""

    forward: tuple[Point, ...]
    backward: tuple[Point, ...]
    kept: Form
    """Activations of further micro-batches under way."""


def highest(points: Course, batch: Batch, *, buckets: int = 0, more: int = 0) -> tuple[Moment, Moment]:
    """
    The highest point of forward and that of backward.

    Args:
        points: Those that may be it.
        batch: Measures of the micro-batch.
        buckets: Buffers of reduction and prefetch, which are there in backward. [bytes]
        more: Activations beside those of the layers. [bytes]

    Returns:
        Two moments.
    """
    measures = batch.measures
    under_way = value(points.kept, measures) if points.kept is not ZERO else 0
    return (
        _highest("forward", points.forward, measures, more=more + under_way),
        _highest("backward", points.backward, measures, buckets=buckets, more=more),
    )


def _highest(phase: str, points: tuple[Point, ...], measures: Form, *, buckets: int = 0, more: int = 0) -> Moment:
    """The highest of some points by what it is made of; of equally high ones the first."""
    if not points:
        raise ValueError("a stage without layers")
    _, tokens, pairs, padded, _, scored = measures
    totals = [
        fixed + of_token * tokens + of_pair * pairs + of_padded * padded + of_scored * scored
        for _, fixed, of_token, of_pair, of_padded, of_scored, _, _, _ in points
    ]
    best = points[totals.index(max(totals))]
    return moment(
        phase,
        best.name,
        activations=more
        + activations.at_moment(
            bytes_per_token=best.tokens,
            tokens=tokens,
            bytes_per_pair=best.pairs,
            pairs=pairs,
            bytes_per_padded_token=best.padded,
            padded_tokens=padded,
        ),
        logits=loss.at_moment(bytes_per_scored_token=best.scored, scored_tokens=scored),
        gradients=best.gradients,
        scratch=best.scratch,
        live=best.live,
        buckets=buckets,
    )


def course(profile: StepProfile, held: Held, rank: Rank, in_flight: int) -> Course:
    """
    The points of a step that are the highest for some batch.

    Args:
        profile: The model's step.
        held: What the rank holds and gathers.
        rank: Layers of the stage, and whether it begins or ends the pipeline.
        in_flight: Micro-batches whose activations are held. [unitless]

    Returns:
        Of forward and of backward; which batch it is decides between them.
    """
    whole = _course(profile, held, rank, in_flight)
    return Course(_candidates(whole.forward), _candidates(whole.backward), whole.kept)


def _course(profile: StepProfile, held: Held, rank: Rank, in_flight: int) -> Course:
    """The points of a step; the batch is not known yet."""
    walk = _Walk(held)
    counts = counts_of(profile, rank)
    _forward(walk, profile, counts, rank, held)
    forward, walk.points = walk.points, []
    kept = times(walk.level, in_flight - 1) if in_flight > 1 else ZERO
    walk.level = plus(walk.level, kept)
    _backward(walk, profile, counts, rank, held)
    return Course(tuple(forward), tuple(walk.points), kept)


def _candidates(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Points that are the highest for some batch: of two that are equally high the earlier is taken."""
    return tuple(
        [
            point
            for place, point in enumerate(points)
            if not any(_never_above(point, other) for other in points[:place])
            and not any(_never_above(point, other) and point.fixed < other.fixed for other in points[place + 1 :])
        ]
    )


def _never_above(point: Point, other: Point) -> bool:
    """Whether no batch makes a point higher than the other."""
    return (
        point.fixed <= other.fixed
        and point.tokens <= other.tokens
        and point.pairs <= other.pairs
        and point.padded <= other.padded
        and point.scored <= other.scored
    )


def counts_of(profile: StepProfile, rank: Rank) -> tuple[int, ...]:
    """Layers of the stage by kind; the first layer of a frozen model is a kind of its own."""
    if len(rank.counts) == len(profile.counts):
        return rank.counts
    if sum(rank.counts) == sum(profile.counts):
        return profile.counts
    return (0, *rank.counts)[-len(profile.counts) :]


class _Walk:
    """Levels before and after the segments, and the points passed so far."""

    __slots__ = ("before", "done", "level", "points")

    def __init__(self, held: Held) -> None:
        self.before = held.gradients_before
        self.done = held.gradients_done
        self.level: Form = ZERO
        self.points: list[Point] = []

    def go(self, part: Part, count: int = 1) -> None:
        """Past `count` segments."""
        self.level = plus(self.level, part.net if count == 1 else times(part.net, count))

    def look(self, name: str, part: Part, live: int) -> None:
        """The points of the segment ahead; `live`: gathered parameters and reductions. [bytes]"""
        level, finished = self.level, int(self.level[4] * self.done)
        for point in part.points:
            self.points.append(
                Point(
                    name=name,
                    fixed=level[0] + point[0] + point[4] + finished + live,
                    tokens=level[1] + point[1],
                    pairs=level[2] + point[2],
                    padded=level[3] + point[3],
                    scored=level[5] + point[5],
                    scratch=activations.unvarying(before=level[0], here=point[0]),
                    gradients=gradients.at_point(before=self.before, finished=finished, here=point[4]),
                    live=live,
                )
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
        if held.held_inputs and count > 1:
            # nothing that the layers kept is freed, and the gradient of each one's input stays beside it
            walk.level = plus(walk.level, per_token(held.held_inputs * (count - 2) - part.net[1] * (count - 1)))
        if count > 1:
            walk.look("backward of the first layer", part, held.live_backward + held.held_units * (count - 1))
        walk.go(part)
    if rank.first:
        walk.look("gradient of the embedding", profile.embedding_backward, held.live_backward)
