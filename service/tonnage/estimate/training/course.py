"""The way through a step: the points that may be its highest, whatever the batch and however states are sharded."""

from operator import le
from typing import NamedTuple

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.training.profile import Part, StepProfile
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.tape import ZERO, Form, per_token, plus, times

FORWARD, TAIL, BACKWARD = range(3)
"""Which parameters are gathered at a point: those of a layer, of head and loss, of a layer with its gradients. [unitless]"""


class Point(NamedTuple):
    """One point of a step: a form of the batch's measures, and what depends on how states are sharded."""

    name: str
    fixed: int
    """Everything but what follows. [bytes]"""
    passed: int
    """Gradients of layers behind it, of which a part may stay. [bytes]"""
    tokens: int
    """[bytes/token]"""
    pairs: int
    padded: int
    scored: int
    live: int
    """Which parameters are gathered."""
    layers: int
    """Layers behind it whose parameters may stay gathered. [layers]"""
    before: int
    """Of what is fixed: scratch when its segment begins, that taken since, gradients of its segment. [bytes]"""
    here: int
    gradient: int


class Way(NamedTuple):
    """What a stage passes of a step."""

    counts: tuple[int, ...]
    """Layers by kind. [unitless]"""
    first: bool
    last: bool
    hooks: int = 0
    """Per layer that backward has passed: gradient of its input, where hooks keep both. [bytes/token]"""
    done: float = 1.0
    """Part of a finished layer's gradients that stays. [fraction]"""


class Course(NamedTuple):
    """The points of a step of one stage."""

    forward: tuple[Point, ...]
    backward: tuple[Point, ...]
    kept: Form
    """What a micro-batch holds when its backward begins."""


def course_of(profile: StepProfile, rank: Rank, held: Held) -> Course:
    """
    The points of a step that are the highest for some batch.

    Args:
        profile: The model's step.
        rank: Layers of the stage, and whether it begins or ends the pipeline.
        held: What it keeps of gradients.

    Returns:
        Of forward and of backward; which batch it is decides between them.
    """
    return _contenders(
        profile, Way(counts_of(profile, rank), rank.first, rank.last, held.held_inputs, held.gradients_done)
    )


@remembered(4096)
def _contenders(profile: StepProfile, way: Way) -> Course:
    whole = _course(profile, way)
    return Course(_candidates(whole.forward, way.done), _candidates(whole.backward, way.done), whole.kept)


def _course(profile: StepProfile, way: Way) -> Course:
    """All points of a step."""
    walk = _Walk()
    _forward(walk, profile, way)
    forward, kept, walk.points = walk.points, walk.level, []
    _backward(walk, profile, way)
    return Course(tuple(forward), tuple(walk.points), kept)


# ---- which of them may be the highest ----

Measured = tuple[int, ...]
"""
A point's height by measures that are all free: at a batch of one token, per scored token, per token that is not scored, per
pair beyond one of each token, per padded token, per gathered layer.
"""


def _measured(point: Point, done: float) -> Measured:
    of_token = point.tokens + point.pairs
    of_scored = of_token + point.scored
    least = point.fixed + of_scored + int(point.passed * done)
    return least, of_scored, of_token, point.pairs, point.padded, point.layers


def _candidates(points: tuple[Point, ...], done: float) -> tuple[Point, ...]:
    """Points that are the highest for some batch: of two that are equally high the earlier is taken."""
    measured = [(_measured(point, done), point.live) for point in points]
    alone = [
        (point, one)
        for place, (point, (one, live)) in enumerate(zip(points, measured, strict=True))
        if not any(live == where and _never_above(one, other) for other, where in measured[:place])
        and not any(
            live == where and one[0] + 1 < other[0] and _never_above(one, other)
            for other, where in measured[place + 1 :]
        )
    ]
    kept: list[tuple[Point, Measured]] = []
    for point, one in alone:
        while len(kept) > 1 and _between(kept[-2], kept[-1], (point, one)):
            kept.pop()
        kept.append((point, one))
    return tuple([point for point, _ in kept])


def _never_above(one: Measured, other: Measured) -> bool:
    """Whether no batch makes a point higher than the other."""
    return all(map(le, one, other))


def _between(first: tuple[Point, Measured], middle: tuple[Point, Measured], last: tuple[Point, Measured]) -> bool:
    """Whether a point lies below the line between two others, so that one of them is as high for every batch."""
    if not first[0].live == middle[0].live == last[0].live:
        return False
    low, here, high = first[1], middle[1], last[1]
    if not low[0] < here[0] < high[0]:
        return False
    whole, near, far = high[0] - low[0], high[0] - here[0], here[0] - low[0]
    return all(h * whole <= a * near + b * far for a, h, b in zip(low, here, high, strict=True))


# ---- the way ----


def counts_of(profile: StepProfile, rank: Rank) -> tuple[int, ...]:
    """Layers of the stage by kind; the first layer of a frozen model is a kind of its own."""
    if len(rank.counts) == len(profile.counts):
        return rank.counts
    if sum(rank.counts) == sum(profile.counts):
        return profile.counts
    return (0, *rank.counts)[-len(profile.counts) :]


class _Walk:
    """The level so far, and the points passed."""

    __slots__ = ("level", "points")

    def __init__(self) -> None:
        self.level: Form = ZERO
        self.points: list[Point] = []

    def go(self, part: Part, count: int = 1) -> None:
        """Past `count` segments."""
        self.level = plus(self.level, part.net if count == 1 else times(part.net, count))

    def look(self, name: str, part: Part, live: int, layers: int = 0) -> None:
        """The points of the segment ahead."""
        before, of_token, of_pair, of_padded, passed, of_scored = self.level
        self.points += [
            Point(
                name,
                before + here + gradient,
                passed,
                of_token + tokens,
                of_pair + pairs,
                of_padded + padded,
                of_scored + scored,
                live,
                layers,
                before,
                here,
                gradient,
            )
            for here, tokens, pairs, padded, gradient, scored in part.points
        ]


def _forward(walk: _Walk, profile: StepProfile, way: Way) -> None:
    """Embedding, layers, tail; leaves the level where backward begins."""
    walk.go(profile.embedding)
    for part, count in zip(profile.forward, way.counts, strict=True):
        if count:
            walk.go(part, count - 1)
            walk.look("forward of the last layer", part, FORWARD)
            walk.go(part)
    if way.last:
        walk.look("loss, forward", profile.tail, TAIL)
        walk.go(profile.tail)
        walk.go(profile.leaving)
    for part, count in zip(profile.layer_leaving, way.counts, strict=True):
        walk.go(part, count)


def _backward(walk: _Walk, profile: StepProfile, way: Way) -> None:
    """Loss, layers from the last to the first, embedding."""
    if way.last:
        walk.look("loss, backward", profile.tail_backward, TAIL)
        walk.go(profile.tail_backward)
    for part, count in zip(reversed(profile.backward), reversed(way.counts), strict=True):
        if not count:
            continue
        walk.look("backward of the last layer", part, BACKWARD)
        walk.go(part, count - 1)
        if way.hooks and count > 1:
            # nothing that the layers kept is freed, and the gradient of each one's input stays beside it
            walk.level = plus(walk.level, per_token(way.hooks * (count - 2) - part.net[1] * (count - 1)))
        if count > 1:
            walk.look("backward of the first layer", part, BACKWARD, count - 1)
        walk.go(part)
    if way.first:
        walk.look("gradient of the embedding", profile.embedding_backward, BACKWARD)
