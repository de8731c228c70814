"""
What an estimate costs in process, without HTTP: by engine and training method, a new card against the same card again.

New: the model and its formats are known, this combination of settings was never asked. CPU time of the process, since the
machine may be busy; of several rounds of distinct cards the fastest.

    python benchmarks/estimate.py [--cards 200] [--rounds 5] [--only REGEX] [--json FILE]
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402

from benchmarks import cards  # noqa: E402
from tonnage import evidence, fit  # noqa: E402
from tonnage.catalog import load_catalog, resolve  # noqa: E402
from tonnage.estimate.assemble import account_of, assemble  # noqa: E402
from tonnage.estimate.support import support_findings  # noqa: E402
from tonnage.spec.card import SizingCard  # noqa: E402

WARM = 300
"""Cards asked before the first that is timed: the models, formats and releases are known then."""
CATALOG = load_catalog()
encode = msgspec.json.Encoder().encode


@dataclass
class Row:
    """CPU per estimate. [us]"""

    name: str
    new: float
    again: float
    resolve: float
    account: float
    assemble: float
    encode: float


def timed(function: Callable[[Any], object], things: Iterable[Any]) -> tuple[float, list[Any]]:
    """CPU per call and the results. [us]"""
    things = list(things)
    started = time.process_time_ns()
    results = [function(thing) for thing in things]
    return (time.process_time_ns() - started) / len(things) / 1000, results


def whole(card: SizingCard) -> object:
    return evidence.estimate(CATALOG, card)


def measure(name: str, stream: Iterator[SizingCard], count: int, rounds: int) -> Row:
    timed(whole, islice(stream, WARM))
    found = [Row(name, *_round(list(islice(stream, count)), list(islice(stream, count)))) for _ in range(rounds)]
    return Row(name, *(min(column) for column in zip(*(list(asdict(row).values())[1:] for row in found), strict=True)))


def _round(these: list[SizingCard], others: list[SizingCard]) -> tuple[float, ...]:
    """Whole estimates of some cards, and stage by stage of as many others."""
    new, answers = timed(whole, these)
    again, _ = timed(whole, these)
    encoding, _ = timed(encode, answers)
    resolving, workloads = timed(lambda card: resolve(CATALOG, card), others)
    accounting, accounts = timed(lambda w: (support_findings(w), account_of(w))[1], workloads)
    assembling, _ = timed(lambda pair: assemble(*pair), zip(workloads, accounts, strict=True))
    return new, again, resolving, accounting, assembling, encoding


def measure_fit(rounds: int) -> tuple[float, float]:
    """Whole catalogue in three formats: CPU of a new request and of the same again, the median of the rounds. [ms]"""
    stream = cards.orders()
    ask = lambda request: fit.fit(CATALOG, request)  # noqa: E731
    timed(ask, islice(stream, 8))
    new, again = [], []
    for request in islice(stream, 3 * rounds):
        new.append(timed(ask, [request])[0] / 1000)
        again.append(min(timed(ask, [request])[0] for _ in range(2)) / 1000)
    return sorted(new)[len(new) // 2], sorted(again)[len(again) // 2]


def table(rows: list[Row]) -> str:
    lines = [f"{'CPU us per estimate':<22}{'new':>8}{'again':>8}  of new: {'resolve':>8}{'account':>9}{'assemble':>10}"]
    lines[0] += f"{'  JSON beside it':>10}"
    for r in rows:
        lines.append(
            f"{r.name:<22}{r.new:>8.1f}{r.again:>8.1f}{r.resolve:>18.1f}{r.account:>9.1f}{r.assemble:>10.1f}{r.encode:>16.1f}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--cards", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    streams = {f"serving {engine}": cards.serving(engine) for engine in cards.FORMATS}
    streams |= {f"training {method}": cards.training(method) for method in cards.METHODS}
    wanted = {name: stream for name, stream in streams.items() if re.search(chosen.only, name)}
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
