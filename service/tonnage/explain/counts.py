"""What a card counts: layers, requests, parameters. An item is often one law so many times."""

from collections.abc import Iterator
from typing import NamedTuple

from tonnage.spec.report import Estimate
from tonnage.spec.workload import Workload


class Count(NamedTuple):
    """A number of things, by name."""

    name: str
    value: int
    plain: bool = True
    """Whether it multiplies a law; False: parameters, which only a width multiplies."""


def counts_of(workload: Workload, answer: Estimate) -> tuple[Count, ...]:
    """
    Counts of a card.

    Args:
        workload: Resolved card.
        answer: Its estimate.

    Returns:
        Each value once, under its first name.
    """
    found: dict[tuple[int, bool], Count] = {}
    for count in _counts(workload, answer):
        if count.value > 0:
            found.setdefault((count.value, count.plain), count)
    return tuple(found.values())


def _counts(workload: Workload, answer: Estimate) -> Iterator[Count]:
    parameters = answer.model.parameters
    stages = workload.placement.pipeline_parallel_size
    if parameters.trainable:
        yield Count("trainable parameters", parameters.trainable, plain=False)
        yield Count("frozen parameters", parameters.total - parameters.trainable, plain=False)
    yield Count("parameters", parameters.total, plain=False)
    layers = sum(group.count for group in workload.model.layers)
    yield Count("layers", layers)
    if stages > 1 and layers % stages == 0:
        yield Count("layers of a stage", layers // stages)
    serving = workload.serving
    if serving is not None and serving.concurrency:
        yield Count("requests", serving.concurrency)
        yield Count("layers × requests", layers * serving.concurrency)
