"""
How far our answers are from what engines and training frameworks printed, by engine and term, framework and method.

    python benchmarks/accuracy.py                      # table
    python benchmarks/accuracy.py --cases              # every row
    python benchmarks/accuracy.py --url http://127.0.0.1:8000   # through the service
    python benchmarks/accuracy.py --write docs/accuracy.md
    python benchmarks/accuracy.py --limits             # limits for tests/measured/limits.toml
    python benchmarks/accuracy.py --heldout-training-limits     # limits for tests/measured/heldout_training_limits.toml
    python benchmarks/accuracy.py --heldout-limits     # limits for tests/measured/heldout_serving_limits.toml
    python benchmarks/accuracy.py --first-score COMMIT # record the answers to held-out cases that have none
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "measured"))

import comparison  # noqa: E402

Asked = Callable[[dict[str, Any]], dict[str, Any]]


def through_library() -> Asked:
    """Answers computed here."""
    from tonnage.catalog import load_catalog, resolve
    from tonnage.estimate import estimate
    from tonnage.spec.card import SizingCard

    catalog = load_catalog()

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(estimate(resolve(catalog, msgspec.convert(request, SizingCard))))
        return found

    return ask


def through_service(url: str) -> Asked:
    """Answers of a running service."""
    import httpx

    client = httpx.Client(base_url=url, timeout=30)

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        reply = client.post("/estimate", json=request)
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    return ask


def rows(ask: Asked, engine: str | None) -> Iterator[comparison.Row]:
    """Rows of every measured serving case."""
    for name, case in comparison.cases(engine):
        try:
            yield from comparison.compare(name, case, ask(case["request"]))
        except Exception as error:  # (a case that fails is a row of the report)
            print(f"{case['id']}: {type(error).__name__}: {error}", file=sys.stderr)


def table(found: list[comparison.Row]) -> list[str]:
    """Markdown lines, one per engine and term."""
    lines = [
        "| engine | term | n | signed median | median | p90 | in band | half-width |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (engine, term), some in comparison.by_term(found).items():
        s = comparison.summary(some)
        lines.append(
            f"| {engine} | {term} | {s.cases} | {s.signed_median:+.2%} | {s.median:.2%} | {s.p90:.2%} "
            f"| {s.coverage:.0%} | {s.half_width:.2%} |"
        )
    return lines


Trained = list[tuple[dict[str, Any], comparison.Row]]


def training_rows(ask: Asked, cases: Iterator[tuple[str, dict[str, Any]]] | None = None) -> Trained:
    """Fine-tuning runs with their rows: those the laws were written with, or others of the same form."""
    found = []
    for framework, case in cases or comparison.training_cases():
        try:
            found += [(case, row) for row in comparison.compare(framework, case, ask(case["request"]))]
        except Exception as error:  # (a case that fails is a row of the report)
            print(f"{case['id']}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def training_table(found: list[tuple[dict[str, Any], comparison.Row]]) -> list[str]:
    """Markdown lines: all runs, then by framework, method, sharding and counter."""
    lines = [
        "| training runs | n | signed median | median | p90 | too low by 5 % | in band | half-width |",
        "|---|---|---|---|---|---|---|---|",
        _training_line("all", [row for _, row in found]),
    ]
    for group, of in comparison.TRAINING_GROUPS.items():
        names = sorted({of(case) for case, _ in found})
        lines += [
            _training_line(f"{group}: {name}", [row for case, row in found if of(case) == name]) for name in names
        ]
    return lines


def _training_line(name: str, some: list[comparison.Row]) -> str:
    s = comparison.summary(some)
    return (
        f"| {name} | {s.cases} | {s.signed_median:+.2%} | {s.median:.2%} | {s.p90:.2%} | {s.too_low:.0%} "
        f"| {s.coverage:.0%} | {s.half_width:.2%} |"
    )


def heldout_rows(ask: Asked) -> list[comparison.Row]:
    """Rows of every held-out start-up log."""
    return [
        row
        for engine, case in comparison.heldout_serving_cases()
        for row in comparison.compare(engine, case, ask(case["request"]))
    ]


def heldout_table(now: list[comparison.Row]) -> list[str]:
    """Markdown lines: the first score of each term beside today's, of the cases that are asked for."""
    cases = {row.case for row in now}
    lines = [
        "| held out | term | n | first: signed | median | p90 | in band | now: signed | median | p90 | in band |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    first = comparison.by_term(row for row in comparison.heldout_serving_first_score() if row.case in cases)
    for (engine, term), some in comparison.by_term(now).items():
        columns = [
            f"{s.signed_median:+.2%} | {s.median:.2%} | {s.p90:.2%} | {s.coverage:.0%}"
            for s in (comparison.summary(first[engine, term]), comparison.summary(some))
        ]
        lines.append(f"| {engine} | {term} | {len(some)} | {' | '.join(columns)} |")
    return lines


def heldout_training_table(now: Trained) -> list[str]:
    """Markdown lines by group: the first score of held-out fine-tuning runs beside today's."""
    columns = "signed | median | p90 | under | in band"
    lines = [
        f"| held-out training | n | first: {columns} | now: {columns} | half-width |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    cases = {case["id"] for case, _ in now}
    seen_first = [(case, row) for case, row in comparison.heldout_training_first_score() if case["id"] in cases]
    first = comparison.training_groups(seen_first)
    for group, some in comparison.training_groups(now).items():
        seen, today = comparison.summary(first[group]), comparison.summary(some)
        figures = [
            f"{s.signed_median:+.2%} | {s.median:.2%} | {s.p90:.2%} | {s.too_low:.0%} | {s.coverage:.0%}"
            for s in (seen, today)
        ]
        lines.append(f"| {group} | {len(some)} | {' | '.join(figures)} | {today.half_width:.2%} |")
    return lines


def verdict_table(ask: Asked, reports: list[dict[str, Any]], first: dict[str, str]) -> list[str]:
    """Markdown lines: held-out reports by outcome and verdict, first and now."""
    now = {r["id"]: ask(r["request"])["verdict"] for r in reports}
    lines = [
        "| held-out reports | n | first: met | needs confirmation | excluded | now: met | needs confirmation | excluded |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for outcome in ("fits", "oom"):
        some = [r["id"] for r in reports if r["outcome"] == outcome]
        counts = [
            str(sum(verdicts[name] == verdict for name in some))
            for verdicts in (first, now)
            for verdict in ("met", "needs_confirmation", "excluded")
        ]
        lines.append(f"| {outcome} | {len(some)} | {' | '.join(counts)} |")
    return lines


def heldout_training_limits(ask: Asked, found: Trained) -> list[str]:
    """Tables for heldout_training_limits.toml, a tenth above today's errors and a run's worth below today's coverage."""
    reports = comparison.heldout_training_decisions()
    verdicts = {r["id"]: ask(r["request"])["verdict"] for r in reports}
    right = {"fits": "met", "oom": "excluded"}
    lines = [
        f"misjudged = {json.dumps([r['id'] for r in reports if verdicts[r['id']] not in r['accept']])}",
        f"decided = {sum(verdicts[r['id']] == right[r['outcome']] for r in reports)}",
        "outside = [",
        *(f'  "{row.case}",' for _, row in found if not row.inside),
        "]",
        "",
        "[groups]",
    ]
    for name, some in comparison.training_groups(found).items():
        s = comparison.summary(some)
        lines.append(
            f'"{name}" = {{ cases = {s.cases}, median = {s.median * 1.1 + 1e-3:.4f}, p90 = {s.p90 * 1.1 + 1e-3:.4f}, '
            f"coverage = {int(max(0, s.coverage - 1 / s.cases) * 1000) / 1000:.3f} }}"
        )
    return lines


FIRST_SCORE = comparison.HERE / "heldout_serving_first_score.json"


def first_score(ask: Asked, commit: str) -> None:
    """Add the answers to held-out cases that have none on record, as a batch of that commit."""
    book = json.loads(FIRST_SCORE.read_text())
    scored = {name for batch in book["batches"] for name in (*batch["answers"], *batch["verdicts"])}
    answers: dict[str, dict[str, list[float]]] = {}
    for row in heldout_rows(ask):
        if row.case not in scored:
            answers.setdefault(row.case, {})[row.term] = [
                _short(x) for x in (row.low, row.expected, row.high, row.total)
            ]
    reports = [r for r in comparison.heldout_decisions() if r["id"] not in scored]
    verdicts = {r["id"]: ask(r["request"])["verdict"] for r in reports}
    book["batches"].append({"commit": commit, "answers": answers, "verdicts": verdicts})
    batches = ",\n".join(
        f'{{"commit":{json.dumps(b["commit"])},{_name(b)}\n"answers":{_one_a_line(b["answers"])},\n"verdicts":{_one_a_line(b["verdicts"])}}}'
        for b in book["batches"]
    )
    FIRST_SCORE.write_text(f'{{"about":{json.dumps(book["about"])},\n"batches":[\n{batches}\n]}}\n')


def _name(batch: dict[str, Any]) -> str:
    return f'"name":{json.dumps(batch["name"])},' if "name" in batch else ""


def _short(value: float) -> float:
    return int(value) if float(value).is_integer() else round(value, 4)


def _one_a_line(found: dict[str, Any]) -> str:
    entries = (f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in found.items())
    return "{\n" + ",\n".join(entries) + "\n}"


def heldout_limits(ask: Asked, found: list[comparison.Row]) -> list[str]:
    """Tables for heldout_serving_limits.toml, a tenth above today's errors."""
    reports = comparison.heldout_decisions()
    verdicts = {r["id"]: ask(r["request"])["verdict"] for r in reports}
    right = {"fits": "met", "oom": "excluded"}
    lines = [
        f"misjudged = {json.dumps([r['id'] for r in reports if verdicts[r['id']] not in r['accept']])}",
        f"decided = {sum(verdicts[r['id']] == right[r['outcome']] for r in reports)}",
        "",
        "[serving]",
    ]
    for (engine, term), some in comparison.by_term(found).items():
        s = comparison.summary(some)
        lines.append(
            f'"{engine}".{term} = {{ cases = {s.cases}, median = {s.median * 1.1 + 1e-4:.4f}, p90 = {s.p90 * 1.1 + 1e-4:.4f}, '
            f"coverage = {int(s.coverage * 1000) / 1000:.3f} }}"
        )
    outside: dict[str, list[str]] = {}
    for row in found:
        if not row.inside:
            outside.setdefault(row.case, []).append(row.term)
    return [*lines, "", "[outside]", *(f"{case} = {json.dumps(terms)}" for case, terms in outside.items())]


def every_row(found: list[comparison.Row]) -> list[str]:
    """Lines, one per measured figure."""
    return [
        f"{r.case:40s} {r.term:24s} {r.measured:>16,.2f} {r.expected:>16,.2f} {r.error:+8.2%} {'' if r.inside else 'OUT'}"
        for r in found
    ]


def limits(found: list[comparison.Row]) -> list[str]:
    """Tables for limits.toml, a twentieth above today's errors."""
    lines = []
    for (engine, term), some in comparison.by_term(found).items():
        s = comparison.summary(some)
        lines.append(
            f"{engine}.{term} = {{ cases = {s.cases}, median = {s.median * 1.05 + 1e-4:.4f}, p90 = {s.p90 * 1.05 + 1e-4:.4f}, "
            f"coverage = {int(s.coverage * 1000) / 1000:.3f} }}"
        )
    outside: dict[str, dict[str, list[str]]] = {}
    for row in found:
        if not row.inside:
            outside.setdefault(row.engine, {}).setdefault(row.case, []).append(row.term)
    lines += [f"outside.{e}.{json.dumps(c)} = {json.dumps(t)}" for e, some in outside.items() for c, t in some.items()]
    return lines


PREFACE = """# How accurate the answers are

Every row compares this version's answers with what engines printed in public start-up logs and tables (`tests/measured/`,
each case with its source). Errors are relative to the printed figure; the half-width of the band is relative to the run's peak
(counts: to the figure). "in band" is the share of printed figures inside our 95 % band. Training runs compare one peak each, by
the counter that was printed (unstated: with the allocator's pool).
Written by `python benchmarks/accuracy.py --write docs/accuracy.md`.
"""

HELDOUT = """
## Held out: serving

Start-up logs and reports collected after the laws were settled (`tests/measured/heldout_serving.json`, `heldout_decisions.json`).
"first" is the answer of the version that first saw a case, kept as it was in `heldout_serving_first_score.json`; laws that a
case has since led to show in "now" only.
"""

HELDOUT_TRAINING = """
## Held out: training

Fine-tuning runs and reports collected after the laws were written (`tests/measured/heldout_training.json`,
`heldout_training_decisions.json`), first answer and today's as above (`heldout_training_first_score.json`). They keep rows whose
length is only a cap of short data, and figures written by hand beside a script, which no law can meet. Laws were corrected where
these runs showed what a framework does and its source agrees, so "first" is what a run never seen may expect. "under": more than
a twentieth too low.
"""


LATER = {
    "held out 2": """
### The second batch

Held out 2: other runs, collected the day after (some from repositories that the first used, none of its runs), and scored before
any law, fact or band was mended by them. Its first score is what a run never seen may expect of that version.
""",
    "held out 3": """
### The third batch

Held out 3: runs and reports of repositories that no file named before, scored blind by a later version still.
""",
}


def _among(reports: list[dict[str, Any]], names: frozenset[str]) -> list[dict[str, Any]]:
    return [r for r in reports if r["id"] in names]


def later_serving(ask: Asked, held: list[comparison.Row]) -> list[str]:
    """Markdown lines of the start-up logs and reports of each later batch."""
    lines: list[str] = []
    for batch, words in LATER.items():
        names = comparison.serving_batch(batch)
        rows, reports = [row for row in held if row.case in names], _among(comparison.heldout_decisions(), names)
        lines += [words, *([*heldout_table(rows), ""] if rows else [])]
        lines += verdict_table(ask, reports, comparison.heldout_first_verdicts()) if reports else []
    return lines


def later_training(ask: Asked, held: Trained) -> list[str]:
    """Markdown lines of the fine-tuning runs and reports of each later batch."""
    lines: list[str] = []
    for batch, words in LATER.items():
        names = comparison.training_batch(batch)
        runs, reports = (
            [run for run in held if run[0]["id"] in names],
            _among(comparison.heldout_training_decisions(), names),
        )
        lines += [words, *([*heldout_training_table(runs), ""] if runs else [])]
        lines += verdict_table(ask, reports, comparison.heldout_training_first_verdicts()) if reports else []
    return lines


def _serving_verdicts(ask: Asked) -> list[str]:
    return verdict_table(ask, comparison.heldout_decisions(), comparison.heldout_first_verdicts())


def _training_verdicts(ask: Asked) -> list[str]:
    return verdict_table(ask, comparison.heldout_training_decisions(), comparison.heldout_training_first_verdicts())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", help="only this engine")
    parser.add_argument("--url", help="ask a running service instead of the library")
    parser.add_argument("--cases", action="store_true", help="print every row")
    parser.add_argument("--limits", action="store_true", help="print limits for the tests")
    parser.add_argument(
        "--heldout-training-limits", action="store_true", help="print limits for held-out fine-tuning runs"
    )
    parser.add_argument("--heldout-limits", action="store_true", help="print limits for held-out cases")
    parser.add_argument(
        "--first-score", metavar="COMMIT", help="record first answers to held-out cases, by this commit"
    )
    parser.add_argument("--write", type=Path, help="write the table to a Markdown file")
    arguments = parser.parse_args()
    ask = through_service(arguments.url) if arguments.url else through_library()
    if arguments.first_score:
        first_score(ask, arguments.first_score)
        return
    if arguments.heldout_training_limits:
        print("\n".join(heldout_training_limits(ask, training_rows(ask, comparison.heldout_training_cases()))))
        return
    if arguments.heldout_limits:
        print("\n".join(heldout_limits(ask, heldout_rows(ask))))
        return
    found = list(rows(ask, arguments.engine))
    trained = [] if arguments.engine else training_rows(ask)
    tables = [*table(found), *(["", *training_table(trained)] if trained else [])]
    held = [] if arguments.engine else heldout_rows(ask)
    if held:
        tables += [HELDOUT, *heldout_table(held), "", *_serving_verdicts(ask), *later_serving(ask, held)]
        held_out = training_rows(ask, comparison.heldout_training_cases())
        tables += [HELDOUT_TRAINING, *heldout_training_table(held_out), "", *_training_verdicts(ask)]
        tables += later_training(ask, held_out)
    every = [*every_row(found), *every_row([row for _, row in trained]), *every_row(held)]
    lines = limits(found) if arguments.limits else every if arguments.cases else tables
    if arguments.write:
        arguments.write.write_text(PREFACE + "\n" + "\n".join(tables) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
