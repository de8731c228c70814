"""
Every parser under random input: `python -m tests.fuzz --seconds 120`.

Prints inputs, answers, refusals and findings by target. With `--coverage TARGET` (needs atheris) the choice of inputs
is led by coverage instead.
"""

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable

from tests.fuzz.watch import HangError, answered

_FEW = 5
_NAMES = ("log", "config", "gguf", "size", "duration", "price", "prices", "card", "request", "query", "accept")

Target = Callable[[bytes], None]


def main() -> int:
    options = _options()
    if options.coverage:
        return _by_coverage(options)
    names = options.only or list(_NAMES)
    rows, findings = [], 0
    for name in names:
        counts, seconds, slowest = _at_random(name, options.seconds / len(names), options.seed)
        findings += counts["findings"]
        total = counts["answered"] + counts["refused"] + counts["findings"]
        rows.append(
            f"| {name} | {total:,} | {counts['answered']:,} | {counts['refused']:,} | {counts['findings']} "
            f"| {slowest * 1000:.0f} | {seconds:.0f} |"
        )
    sys.stdout.write(
        "| target | inputs | answered | refused | findings | slowest, ms | s |\n|---|---|---|---|---|---|---|\n"
    )
    sys.stdout.write("\n".join(rows) + "\n")
    return int(findings > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=_NAMES)
    parser.add_argument("--coverage", choices=_NAMES)
    return parser.parse_args()


def _at_random(name: str, seconds: float, seed: int) -> tuple[Counter[str], float, float]:
    target, chance, counts = _targets()[name], random.Random(f"{name} {seed}"), Counter[str]()
    seen: set[str] = set()
    _outcome(target, b"", name, seen)  # what is loaded once does not count
    started = now = time.monotonic()
    slowest = 0.0
    while now - started < seconds:
        data = chance.randbytes(chance.choice((8, 32, 128)))
        counts[_outcome(target, data, name, seen)] += 1
        before, now = now, time.monotonic()
        slowest = max(slowest, now - before)
    return counts, now - started, slowest


def _outcome(target: Target, data: bytes, name: str, seen: set[str]) -> str:
    try:
        return "answered" if answered(target, data) else "refused"
    except (Exception, HangError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} {last.filename}:{last.lineno}"
        if where not in seen:
            seen.add(where)
            sys.stderr.write(f"{name} {data.hex()}\n{''.join(traceback.format_exception(error)[-_FEW:])}\n")
        return "findings"


def _targets() -> dict[str, Target]:
    from tests.fuzz.targets import TARGETS

    return TARGETS


def _by_coverage(options: argparse.Namespace) -> int:
    import atheris

    with atheris.instrument_imports(include=["tonnage"]):
        target = _targets()[options.coverage]
        _outcome(target, b"", options.coverage, set())

    def one(data: bytes) -> None:
        answered(target, data)

    flags = [
        "fuzz",
        f"-max_total_time={options.seconds:.0f}",
        "-max_len=256",
        f"-seed={options.seed}",
        "-print_final_stats=1",
    ]
    atheris.Setup(flags, one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
