"""What the fault suite prints."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.load import Load, Sample, milliseconds, percentile

HEADER = (
    "| fault | requests | failed | p50 / p99 before, ms | p50 / p99 under it, ms | recovered, s | seen |\n"
    "|---|---|---|---|---|---|---|"
)
MACHINE_MS = 250
"""What another program on the same cores may add to a p99. [ms]"""
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
            bounded: Whether p99 under it must stay within twice that before, and what a busy machine adds to either.
        """
        samples = list(samples)
        before = [sample for sample in samples if sample.at < broken - 0.1]
        under = [sample for sample in samples if broken + 1 <= sample.at < mended]
        self.before, self.under = milliseconds(before), milliseconds(under)
        usual, now = percentile(before, 99), percentile(under, 99)
        if bounded and usual is not None and now is not None and now > 2 * usual + MACHINE_MS:
            self.wrong.append(f"p99 {now:.0f} ms, twice the {usual:.0f} ms before and {MACHINE_MS} ms more")

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
