"""The candidate points of a step: which of them is the peak, and what is alive there."""

from typing import NamedTuple

from tonnage.estimate.training.course import Course, Point
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.tape import ZERO, Form, times, value
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
    vision: int
    """Of the vision tower: pixels, activations, features."""
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
    cache: int = 0, predictions: int = 0, vision: int = 0, temporary: int = 0,
) -> Moment:  # fmt: skip
    """A moment by its parts, with their sum. [bytes]"""
    total = activations + logits + gradients + scratch + live + buckets + cache + predictions + vision + temporary
    return Moment(
        phase,
        name,
        activations,
        logits,
        gradients,
        scratch,
        live,
        buckets,
        cache,
        predictions,
        vision,
        temporary,
        total,
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


def highest(course: Course, batch: Batch, held: Held, *, further: int = 0, more: int = 0) -> tuple[Moment, Moment]:
    """
    The highest point of forward and that of backward.

    Args:
        course: Points of the step that may be it.
        batch: Measures of the micro-batch.
        held: What the rank holds and gathers.
        further: Other micro-batches whose activations are held. [unitless]
        more: Activations beside those of the layers. [bytes]

    Returns:
        Two moments.
    """
    measures = batch.measures
    under_way = times(course.kept, further) if further else ZERO
    waiting = value(under_way, measures) if further else 0
    return (
        _highest("forward", course.forward, measures, held, more=more + waiting),
        _highest("backward", course.backward, measures, held, under_way=under_way, buckets=held.buckets, more=more),
    )


def _highest(
    phase: str,
    points: tuple[Point, ...],
    measures: Form,
    held: Held,
    *,
    under_way: Form = ZERO,
    buckets: int = 0,
    more: int = 0,
) -> Moment:
    """The highest of some points by what it is made of; of equally high ones the first."""
    if not points:
        raise ValueError("a stage without layers")
    _, tokens, pairs, padded, _, scored = measures
    lives, units, done = (held.live_forward, held.live_tail, held.live_backward), held.held_units, held.gradients_done
    earlier = under_way[4]
    totals = [
        fixed + int((earlier + passed) * done) + lives[live] + layers * units
        + of_token * tokens + of_pair * pairs + of_padded * padded + of_scored * scored
        for _, fixed, passed, of_token, of_pair, of_padded, of_scored, live, layers, _, _, _ in points
    ]  # fmt: skip
    best = points[totals.index(max(totals))]
    return moment(
        phase,
        best.name,
        activations=more
        + activations.at_moment(
            bytes_per_token=best.tokens + under_way[1],
            tokens=tokens,
            bytes_per_pair=best.pairs + under_way[2],
            pairs=pairs,
            bytes_per_padded_token=best.padded + under_way[3],
            padded_tokens=padded,
        ),
        logits=loss.at_moment(bytes_per_scored_token=best.scored + under_way[5], scored_tokens=scored),
        gradients=gradients.at_point(
            before=held.gradients_before, finished=int((earlier + best.passed) * done), here=best.gradient
        ),
        scratch=activations.unvarying(before=best.before + under_way[0], here=best.here),
        live=lives[best.live] + best.layers * units,
        buckets=buckets,
    )
