"""
Mutation testing: `python -m tests.mutation laws --sample 500`.

Prints how many mutants the tests noticed, by module, and every one they did not.
"""

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.runner import Runner, replacement

import tonnage

SERVICE = Path(tonnage.__file__).parent
TESTS = {
    "laws": ["tests/laws", "tests/test_units.py"],
    "estimate": ["tests/estimate", "tests/golden"],
    "fit": ["tests/fit", "tests/golden"],
}

_UNUSED = ("terminal", "timeout", "cacheprovider", "xdist", "randomly")


def main() -> int:
    options = _options()
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),  # tracing slows examples: no fault of the test
    )
    settings.load_profile("mutants")
    found = [m for path in _files(options) for m in mutants_of(path)]
    chosen = _left(found, options.again) if options.again else _sample(found, options)
    sys.stdout.write(f"{options.package}: {len(chosen)} of {len(found)} mutants (seed {options.seed})\n")
    sys.stdout.flush()
    runner = Runner({str(path) for path in _files(options)}, lambda runner: _judge(runner, chosen, options))
    arguments = ["-o", "addopts=", "--import-mode=importlib", *(f"-pno:{name}" for name in _UNUSED)]
    return int(pytest.main([*arguments, *(options.tests or TESTS[options.package])], plugins=[runner]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=sorted(TESTS))
    parser.add_argument("--module", default="", help="only files whose path holds this")
    parser.add_argument("--tests", nargs="*", help="instead of the package's own")
    parser.add_argument("--sample", type=int, default=0, help="0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path, help="output of an earlier run: only what it left, by tests made since")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this long")
    return parser.parse_args()


def _files(options: argparse.Namespace) -> list[Path]:
    files = sorted((SERVICE / options.package).rglob("*.py"))
    return [path for path in files if options.module in str(path.relative_to(SERVICE))]


def _sample(found: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    drawn = (mutant for mutant in random.Random(options.seed).sample(found, len(found)) if replacement(mutant))
    return list(islice(drawn, options.sample or None))


def _left(found: list[Mutant], output: Path) -> list[Mutant]:
    """What an earlier run on the same code left, without those that stand twice."""
    lines = output.read_text(encoding="utf-8").splitlines()
    names = {line[12:].strip() for line in lines if line.startswith(("survived ", "not reached "))}
    return list({_name(mutant): mutant for mutant in found if _name(mutant) in names}.values())


def _name(mutant: Mutant) -> str:
    return f"{mutant.path.relative_to(SERVICE)}:{mutant.line} {'.'.join(mutant.function)}: {mutant.change}"


def _judge(runner: Runner, chosen: list[Mutant], options: argparse.Namespace) -> None:
    deadline = time.monotonic() + options.seconds
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    left = []
    for mutant in chosen:
        if time.monotonic() > deadline:
            break
        verdict = runner.verdict(mutant)
        module = str(mutant.path.relative_to(SERVICE))
        by_module[module]["killed" if verdict == "timed out" else verdict] += 1
        if verdict in ("survived", "not reached"):
            left.append(f"{verdict:12} {_name(mutant)}")
            sys.stderr.write(f"{left[-1]}\n")
    sys.stdout.write("\n".join([*sorted(left), *_table(by_module)]) + "\n")


def _table(by_module: dict[str, Counter[str]]) -> list[str]:
    rows = ["", "| module | mutants | killed | survived | not reached | killed % |", "|---|---|---|---|---|---|"]
    for module, counts in [*sorted(by_module.items()), ("all", sum(by_module.values(), Counter()))]:
        total = sum(counts.values())
        share = f"{100 * counts['killed'] / total:.1f}" if total else "-"
        rows.append(
            f"| {module} | {total} | {counts['killed']} | {counts['survived']} | {counts['not reached']} | {share} |"
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
