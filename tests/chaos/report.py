"""What the fault suite prints."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.load import ENOUGH, Load, Sample, milliseconds, percentile

HEADER = (
    "| fault | requests | failed | p50 / p99 before, ms | p50 / p99 under it, ms | recovered, s | seen |\n"
    "|---|---|---|---|---|---|---|"
)
SCHEDULER_MS = 5
"""
Two turns of the kernel's scheduler (about 3 ms each) for which a process that is ready may have to wait for others; beside
a p99 of a few milliseconds that is noise, not the fault. [ms]
"""
BEGIN, END = "<!-- chaos:begin -->", "<!-- chaos:end -->"


@dataclass
class Row:
    """One fault, and what did not go as it should."""

    fault: str
    requests: int = 0
    failed: int = 0
    before: str = "-"
    under: str = "-"
    recovered: str = "-"
    seen: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def expect(self, condition: object, words: str) -> None:
        """Note what was seen, or that it was not."""
        (self.seen if condition else self.wrong).append(words)

    def count(self, load: Load, allowed: tuple[int, ...] = (200,)) -> None:
        """Requests and failures of a load."""
        failures = load.failed(allowed)
        self.requests += len(load.samples)
        self.failed += len(failures)
        if failures:
            self.wrong.append(f"statuses {sorted({sample.status for sample in failures})}")

    def times(self, samples: Iterable[Sample], broken: float, mended: float, *, bounded: bool = False) -> None:
        """
        Before the fault, and from one second into it until it was mended.

        Args:
            samples: All of the row.
            broken: When the fault began, of the monotonic clock. [s]
            mended: When it ended. [s]
            bounded: Whether p99 under it must stay within twice that before.
        """
        samples = list(samples)
        before = [sample for sample in samples if sample.at < broken - 0.1]
        under = [sample for sample in samples if broken + 1 <= sample.at < mended]
        self.before, self.under = milliseconds(before), milliseconds(under)
        if bounded:
            self.bound(before, under)

    def bound(self, usual: Sequence[Sample], under: Sequence[Sample]) -> None:
        """Whether p99 under the fault is within twice the usual."""
        normal, now = percentile(usual, 99), percentile(under, 99)
        if normal is None or now is None or min(len(usual), len(under)) < ENOUGH:
            self.wrong.append(f"p99 of {len(usual)} and {len(under)} requests, {ENOUGH} are the least")
        elif now > 2 * normal + SCHEDULER_MS:
            self.wrong.append(f"p99 {now:.1f} ms, more than twice the {normal:.1f} ms without the fault")

    def recovers(self, seconds: float | None) -> None:
        if seconds is None:
            self.wrong.append("did not recover")
        else:
            self.recovered = f"{seconds:.1f}"

    def text(self) -> str:
        seen = "; ".join([*(f"NOT: {words}" for words in self.wrong), *self.seen])
        return f"| {self.fault} | {self.requests:,} | {self.failed} | {self.before} | {self.under} | {self.recovered} | {seen} |"


def write(path: Path, rows: list[Row], words: str) -> None:
    """Put the table between its marks in a document."""
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    table = "\n".join([HEADER, *(row.text() for row in rows)])
    path.write_text(f"{head}{BEGIN}\n{words}\n\n{table}\n{END}{tail}", encoding="utf-8")
