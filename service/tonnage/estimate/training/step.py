"""The candidate points of a step: which of them is the peak, and what is alive there."""

from typing import NamedTuple

from tonnage.estimate.training.profile import Part, StepProfile
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.tape import ZERO, Form, plus, times, value


class Candidate(NamedTuple):
    """One moment that may be the peak."""

    phase: str
    name: str
    form: Form
    """What is alive beside what is resident, with the gradients of the layer at hand."""
    live: int
    """Gathered parameters and reductions. [bytes]"""
    done: int
    """Gradients of finished layers before sharding. [bytes]"""


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


def candidates(profile: StepProfile, batch: Batch, held: Held, rank: Rank) -> list[Candidate]:
    """
    The highest point of every segment that can be the peak.

    Args:
        profile: The model's step.
        batch: Measures of the micro-batch.
        held: What the rank holds and gathers.
        rank: Layers of the stage, and whether it begins or ends the pipeline.

    Returns:
        Points of forward and backward.
    """
    walk = _Walk(profile, batch.measures, counts_of(profile, rank))
    found = walk.forward(held, rank)
    if batch.in_flight > 1:
        kept = times(walk.level, batch.in_flight - 1)
        found = [c._replace(form=plus(c.form, kept)) for c in found]
        walk.level = plus(walk.level, kept)
    return found + walk.backward(held, rank)


def counts_of(profile: StepProfile, rank: Rank) -> tuple[int, ...]:
    """Layers of the stage by kind; the first layer of a frozen model is a kind of its own."""
    if len(rank.counts) == len(profile.counts):
        return rank.counts
    if sum(rank.counts) == sum(profile.counts):
        return profile.counts
    return (0, *rank.counts)[-len(profile.counts) :]


class _Walk:
    """Levels before and after the segments, layers of one kind at once."""

    def __init__(self, profile: StepProfile, measures: Form, counts: tuple[int, ...]) -> None:
        self.profile = profile
        self.measures = measures
        self.counts = counts
        self.level: Form = ZERO

    def forward(self, held: Held, rank: Rank) -> list[Candidate]:
        """Embedding, layers, tail; leaves the level where backward begins."""
        profile = self.profile
        found: list[Candidate] = []
        self._pass(profile.embedding)
        for part, count in zip(profile.forward, self.counts, strict=True):
            if count:
                self._pass(part, count - 1)
                found.append(self._candidate("forward", "forward of the last layer", part, held.live_forward))
                self._pass(part)
        if rank.last:
            found.append(self._candidate("forward", "loss, forward", profile.tail, held.live_tail))
            self._pass(profile.tail)
            self._pass(profile.leaving)
        for part, count in zip(profile.layer_leaving, self.counts, strict=True):
            self._pass(part, count)
        return found

    def backward(self, held: Held, rank: Rank) -> list[Candidate]:
        """Loss, layers from the last to the first, embedding."""
        profile = self.profile
        found: list[Candidate] = []
        if rank.last:
            found.append(self._candidate("backward", "loss, backward", profile.tail_backward, held.live_tail))
            self._pass(profile.tail_backward)
        for part, count in zip(reversed(profile.backward), reversed(self.counts), strict=True):
            if not count:
                continue
            found.append(self._candidate("backward", "backward of the last layer", part, held.live_backward))
            self._pass(part, count - 1)
            if count > 1:
                found.append(self._candidate("backward", "backward of the first layer", part, held.live_backward))
            self._pass(part)
        if rank.first:
            part = profile.embedding_backward
            found.append(self._candidate("backward", "gradient of the embedding", part, held.live_backward))
        return found

    def _pass(self, part: Part, times_: int = 1) -> None:
        self.level = plus(self.level, part.net if times_ == 1 else times(part.net, times_))

    def _candidate(self, phase: str, name: str, part: Part, live: int) -> Candidate:
        measures, level = self.measures, self.level
        point = part.points[0]
        if len(part.points) > 1:
            point = max(part.points, key=lambda form: value(form, measures))
        form = (
            level[0] + point[0], level[1] + point[1], level[2] + point[2],
            level[3] + point[3], point[4], level[5] + point[5],
        )  # fmt: skip
        return Candidate(phase, name, form, live, level[4])
