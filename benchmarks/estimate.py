"""
What an estimate costs in process, without HTTP: by engine and training method, of cards never asked and of the same again.

Everything new: models and formats are known, but each card draws its own, and its GPU, layout and settings beside. New
numbers: a few jobs (model, format, engine, GPU, layout) are known, each card is one of them with its own lengths, traffic,
batch size or rank, as a scheduler asks. Of several rounds over the same cards, with everything forgotten in between, each
card counts with its fastest: the machine may be busy.

`/fit` is asked of the catalogue as it is and of one with every package 4 and 16 times over: what a further package costs.

    python benchmarks/estimate.py [--cards 100] [--rounds 7] [--only REGEX, "fit" and "growth" among them] [--json FILE]
"""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# a script: what it imports from this repository is found only after this line, hence E402 below
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402
from benchmarks import streams  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from tonnage import evidence, fit  # noqa: E402
from tonnage.catalog import Catalog, load_catalog, resolve  # noqa: E402
from tonnage.catalog.lookup import Index, model_fold  # noqa: E402
from tonnage.estimate.assemble import account_of, assemble  # noqa: E402
from tonnage.estimate.support import support_findings  # noqa: E402
from tonnage.kept import forget, settle  # noqa: E402
from tonnage.spec.card import SizingCard  # noqa: E402
from tonnage.spec.fit import FitRequest  # noqa: E402

WARM = 300
"""Cards asked before the first that is timed: the models, formats and releases are known then."""
FIELDS = ("required", "headroom", "verdict", "reasons", "kv_cache")
"""What a scheduler decides by, as in `benchmarks/speed.py`."""
CATALOG = load_catalog()
encode = msgspec.json.Encoder().encode


@dataclass
class Row:
    """Time per estimate, of new numbers whole and for a few fields, and what part of the whole each stage takes. [us]"""

    name: str
    everything: float
    numbers: float
    fields: float
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


def some(card: SizingCard) -> object:
    return evidence.fields_of(CATALOG, card, FIELDS)


class Stream(NamedTuple):
    """Cards asked before, cards timed whole, and as many others timed stage by stage."""

    known: list[SizingCard]
    these: list[SizingCard]
    others: list[SizingCard]


def drawn(cards: Iterator[SizingCard], count: int) -> Stream:
    return Stream(*(list(islice(cards, n)) for n in (WARM, count, count)))


class Fastest:
    """Of every thing that is timed round by round the shortest time. [ns]"""

    def __init__(self, count: int) -> None:
        self.spent = [sys.maxsize] * count

    def ask(self, these: list[SizingCard], question: Callable[[SizingCard], object] = whole) -> None:
        for place, card in enumerate(these):
            started = time.perf_counter_ns()
            question(card)
            self.spent[place] = min(self.spent[place], time.perf_counter_ns() - started)

    @property
    def mean(self) -> float:
        """[us]"""
        return sum(self.spent) / len(self.spent) / 1000


def measure(name: str, everything: Stream, numbers: Stream, rounds: int) -> Row:
    """The same cards in every round, each time as if never asked."""
    new, renumbered, fields, again = (Fastest(len(numbers.these)) for _ in range(4))
    stages = [0.0] * 4
    for _ in range(rounds):
        _known(everything)
        new.ask(everything.these)
        _known(numbers)
        renumbered.ask(numbers.these)
        again.ask(numbers.these)
        _known(numbers)
        fields.ask(numbers.these, some)
        stages = [one + other for one, other in zip(stages, _stages(numbers.others), strict=True)]
    of_estimate = sum(stages[:3])
    shares = [renumbered.mean * s / of_estimate for s in stages]
    return Row(name, new.mean, renumbered.mean, fields.mean, again.mean, *shares)


def _known(stream: Stream) -> None:
    forget()
    timed(whole, stream.known)
    settle()


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


def measure_fit(rounds: int, stream: Iterator[FitRequest]) -> tuple[float, float]:
    """Whole catalogue in three formats: CPU of a new request and of the same again, the middle one of nine. [ms]"""

    def ask(request: FitRequest) -> object:
        return fit.fit(CATALOG, request)

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


MULTIPLES = (1, 4, 16)


def more_packages(times: int) -> Catalog:
    """The catalogue with each package so many times over, under names of their own: other offers of the same machines."""
    packages = [replace(p, id=f"{p.id}#{n}") for n in range(times) for p in CATALOG.packages]
    fields = {
        name: getattr(CATALOG, name) for name in Catalog.__dataclass_fields__ if name not in {"resolved", "named"}
    }
    index = Index("package", packages, fold=model_fold)
    return Catalog(**{**fields, "version": f"{CATALOG.version}x{times}", "packages": index})


def measure_growth(rounds: int) -> list[tuple[int, float, float]]:
    """Packages, CPU of a request never seen and of the same again, as the catalogue grows. [packages, ms, ms]"""
    stream = streams.orders()
    known, these = (list(islice(stream, n)) for n in (8, 5))
    found = []
    for times in MULTIPLES:
        catalog = more_packages(times)
        new, again = ([math.inf] * len(these) for _ in range(2))
        for _ in range(rounds):
            forget()
            timed(partial(fit.fit, catalog), known)
            settle()
            for number, request in enumerate(these):
                new[number] = min(new[number], timed(partial(fit.fit, catalog), [request]) / 1000)
                again[number] = min(again[number], timed(partial(fit.fit, catalog), [request]) / 1000)
        found.append((len(tuple(catalog.packages)), sorted(new)[len(new) // 2], sorted(again)[len(again) // 2]))
    return found


def growth_table(grown: list[tuple[int, float, float]]) -> str:
    head = f"{'/fit, three formats':<22}{'packages':>9}{'ms new':>9}{'ms again':>10}{'us new per package':>21}"
    return "\n".join(
        [head] + [f"{'':<22}{n:>9}{new:>9.1f}{again:>10.1f}{new / n * 1000:>21.1f}" for n, new, again in grown]
    )


def table(rows: list[Row]) -> str:
    head = f"{'us per estimate':<22}{'all new':>9}{'numbers':>9}{'fields':>8}{'again':>7}"
    head += f"   numbers: {'resolve':>8}{'account':>9}{'assemble':>10}{'JSON':>8}"
    return "\n".join(
        [head]
        + [
            f"{r.name:<22}{r.everything:>9.1f}{r.numbers:>9.1f}{r.fields:>8.1f}{r.again:>7.1f}"
            f"{r.resolve:>20.1f}{r.account:>9.1f}{r.assemble:>10.1f}{r.encode:>8.1f}"
            for r in rows
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--cards", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    kinds = {f"serving {engine}": partial(streams.serving, engine) for engine in streams.FORMATS}
    kinds |= {f"training {method}": partial(streams.training, method) for method in streams.METHODS}
    rows = [
        measure(name, drawn(cards(), chosen.cards), drawn(cards(jobs=streams.JOBS), chosen.cards), chosen.rounds)
        for name, cards in kinds.items()
        if re.search(chosen.only, name)
    ]
    print(table(rows))
    requests = {"fit serving": streams.orders, "fit training": streams.trainings}
    fitted = {
        name: measure_fit(chosen.rounds, stream()) for name, stream in requests.items() if re.search(chosen.only, name)
    }
    for name, (new, again) in fitted.items():
        print(f"\n/{name}, whole catalogue, three formats: {new:.1f} ms new, {again:.1f} ms again (<= 25)")
    grown = measure_growth(chosen.rounds) if re.search(chosen.only, "growth") else []
    if grown:
        print("\n" + growth_table(grown))
    if chosen.json:
        chosen.json.write_text(
            json.dumps({"us": [asdict(r) for r in rows], "fit_ms": fitted, "growth": grown}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
