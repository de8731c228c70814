"""Counters and histograms for one thread: a dictionary entry instead of a lock, turned into metrics when somebody reads."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

Labels = tuple[str, ...]


class Counts:
    """A counter by labels."""

    def __init__(self, name: str, words: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._words, self._labels = name, words, labels
        self._counts: dict[Labels, int] = {}
        registry.register(self)

    def add(self, *labels: str) -> None:
        """Count one."""
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        family = CounterMetricFamily(self._name, self._words, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class Timings:
    """A histogram by labels. [s]"""

    def __init__(
        self, name: str, words: str, labels: Sequence[str], bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._words, self._labels = name, words, labels
        self._bounds = bounds
        self._seen: dict[Labels, list[float]] = {}
        """Per labels: how many fell into each bucket, and last the sum."""
        if not labels:
            self._of(())
        registry.register(self)

    def _of(self, labels: Labels) -> list[float]:
        return self._seen.setdefault(labels, [0.0] * (len(self._bounds) + 2))

    def observe(self, seconds: float, *labels: str) -> None:
        """Take one duration."""
        seen = self._seen.get(labels) or self._of(labels)
        seen[bisect_left(self._bounds, seconds)] += 1
        seen[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        family = HistogramMetricFamily(self._name, self._words, labels=self._labels)
        for labels, seen in self._seen.items():
            family.add_metric(labels, self._buckets(seen), seen[-1])
        yield family

    def _buckets(self, seen: list[float]) -> list[tuple[str, float]]:
        total, buckets = 0.0, []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], seen, strict=False):
            total += count
            buckets.append((bound, total))
        return buckets
