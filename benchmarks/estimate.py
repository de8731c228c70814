"""
What an estimate costs in process, without HTTP: by engine and training method, a new card against the same card again.

New: the model and its formats are known, this combination of settings was never asked. CPU time of the process, since the
machine may be busy; of several rounds over the same cards, with everything forgotten in between, the fastest.

    python benchmarks/estimate.py [--cards 100] [--rounds 5] [--only REGEX] [--json FILE]
"""

import argparse
import gc
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# a script: what it imports from this repository is found only after this line, hence E402 below
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402
from benchmarks import streams  # noqa: E402

from tonnage import evidence, fit  # noqa: E402
from tonnage.catalog import load_catalog, resolve  # noqa: E402
from tonnage.estimate.assemble import account_of, assemble  # noqa: E402
from tonnage.estimate.support import support_findings  # noqa: E402
from tonnage.kept import forget  # noqa: E402
from tonnage.spec.card import SizingCard  # noqa: E402
from tonnage.spec.fit import FitRequest  # noqa: E402

WARM = 300
"""Cards asked before the first that is timed: the models, formats and releases are known then."""
CATALOG = load_catalog()
encode = msgspec.json.Encoder().encode


@dataclass
class Row:
    """CPU per estimate, and what part of a new one each stage takes. [us]"""

    name: str
    new: float
    again: float
    resolve: float
    account: float
    assemble: float
    encode: float


def timed(function: Callable[[Any], object], things: Iterable[Any]) -> float:
    """CPU per call; answers are dropped as they come, as a service drops them. [us]"""
    things = list(things)
    started = time.process_time_ns()
    for thing in things:
        function(thing)
    return (time.process_time_ns() - started) / len(things) / 1000


def whole(card: SizingCard) -> object:
    return evidence.estimate(CATALOG, card)


def settle() -> None:
    """As the service does once it is warm."""
    gc.collect()
    gc.freeze()


def measure(name: str, stream: Iterator[SizingCard], count: int, rounds: int) -> Row:
    """The same cards in every round, each time as if never asked: whole ones, and as many others stage by stage."""
    known, these, others = (list(islice(stream, n)) for n in (WARM, count, count))
    new, again, stages = [], [], [0.0] * 4
    for _ in range(rounds):
        forget()
        timed(whole, known)
        settle()
        new.append(timed(whole, these))
        again.append(min(timed(whole, these) for _ in range(3)))
        stages = [one + other for one, other in zip(stages, _stages(others), strict=True)]
    best, of_estimate = min(new), sum(stages[:3])
    return Row(name, best, min(again), *(best * stage / of_estimate for stage in stages))


def _stages(these: Iterable[SizingCard]) -> list[float]:
    """Elapsed time of each stage of new cards: shares of one another only. [ns]"""
    spent = [0.0] * 4
    for card in these:
        marks = [time.perf_counter_ns()]
        workload = resolve(CATALOG, card)
        marks.append(time.perf_counter_ns())
        support_findings(workload)
        account = account_of(workload)
        marks.append(time.perf_counter_ns())
        answer = assemble(workload, account)
        marks.append(time.perf_counter_ns())
        encode(answer)
        marks.append(time.perf_counter_ns())
        spent = [s + after - before for s, before, after in zip(spent, marks, marks[1:], strict=False)]
    return spent


def measure_fit(rounds: int) -> tuple[float, float]:
    """Whole catalogue in three formats: CPU of a new request and of the same again, the middle one of nine. [ms]"""

    def ask(request: FitRequest) -> object:
        return fit.fit(CATALOG, request)

    stream = streams.orders()
    known, these = (list(islice(stream, n)) for n in (8, 9))
    new, again = ([math.inf] * len(these) for _ in range(2))
    for _ in range(rounds):
        forget()
        timed(ask, known)
        settle()
        for number, request in enumerate(these):
            new[number] = min(new[number], timed(ask, [request]) / 1000)
            again[number] = min(again[number], timed(ask, [request]) / 1000)
    return sorted(new)[len(new) // 2], sorted(again)[len(again) // 2]


def table(rows: list[Row]) -> str:
    head = f"{'CPU us per estimate':<22}{'new':>8}{'again':>8}   new: {'resolve':>8}{'account':>9}{'assemble':>10}{'JSON':>8}"
    return "\n".join(
        [head]
        + [
            f"{r.name:<22}{r.new:>8.1f}{r.again:>8.1f}{r.resolve:>16.1f}{r.account:>9.1f}{r.assemble:>10.1f}{r.encode:>8.1f}"
            for r in rows
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--cards", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    all_streams = {f"serving {engine}": streams.serving(engine) for engine in streams.FORMATS}
    all_streams |= {f"training {method}": streams.training(method) for method in streams.METHODS}
    wanted = {name: stream for name, stream in all_streams.items() if re.search(chosen.only, name)}
    rows = [measure(name, stream, chosen.cards, chosen.rounds) for name, stream in wanted.items()]
    print(table(rows))
    fitted = measure_fit(chosen.rounds) if re.search(chosen.only, "fit") else None
    if fitted is not None:
        print(f"\n/fit, whole catalogue, three formats: {fitted[0]:.1f} ms new, {fitted[1]:.1f} ms again (<= 25)")
    if chosen.json:
        chosen.json.write_text(json.dumps({"us": [asdict(r) for r in rows], "fit_ms": fitted}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
