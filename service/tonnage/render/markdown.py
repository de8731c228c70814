"""Markdown for the job summary of a pipeline."""

import re
from collections.abc import Sequence

from tonnage.render.table import model_rows
from tonnage.render.words import (
    MARKS,
    clean,
    largest_first,
    layout,
    model_line,
    package,
    price,
    small_ones,
    worst_phase,
)
from tonnage.spec.fit import FitAnswer
from tonnage.spec.fit_models import ModelsAnswer
from tonnage.spec.report import Amount, Estimate
from tonnage.units import format_size

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def estimate(answer: Estimate) -> str:
    """The answer of /estimate as a summary."""
    lines = [f"## GPU memory: {MARKS[answer.verdict]}", "", _escaped(model_line(answer)), ""]
    facts = [_fact("required", answer.required)]
    if answer.capacity is not None and answer.headroom is not None:
        facts += [("usable", format_size(answer.capacity.usable_bytes), ""), _fact("headroom", answer.headroom)]
    facts.append(_fact(f"peak ({answer.peak.phase})", answer.peak.device))
    lines += [*_table(("", "expected", "95 % band"), facts, numbers=(1,)), ""]
    lines += [f"- {_escaped(f.reason)}" for f in answer.reasons]
    lines += [f"- unknown: {_escaped(u)}" for u in answer.unknowns]
    if (phase := worst_phase(answer)) is not None:
        rows: list[tuple[str, ...]] = [
            (*_fact(i.component, i.bytes), i.basis, i.law) for i in largest_first(phase.items)
        ]
        if (small := small_ones(phase.items)) is not None:
            rows.append((*_fact(*small), "", ""))
        heading = ("item", "expected", "95 % band", "known", "law")
        folded = f"<details><summary>{len(phase.items)} items of {phase.phase}</summary>"
        lines += ["", folded, "", *_table(heading, rows, numbers=(1,)), "", "</details>"]
    return "\n".join([*lines, "", f"`{answer.digest}`"]) + "\n"


def fit(answer: FitAnswer) -> str:
    """The answer of /fit as a summary."""
    chosen = answer.selected
    title = f"## Package: {_escaped(chosen.sku)}" if chosen else "## Package: nothing selected"
    rows = [
        (
            str(c.rank), c.sku, package(c), layout(c.placement), c.weights_format, price(c.price),
            "" if c.memory is None else format_size(c.memory.headroom.expected), MARKS[c.status], ", ".join(c.missing),
        )
        for c in answer.candidates
    ]  # fmt: skip
    lines = [title, ""]
    if chosen is not None and chosen.sku not in [c.sku for c in answer.candidates]:
        what = (
            package(chosen),
            layout(chosen.placement),
            chosen.weights_format,
            price(chosen.price),
            MARKS[chosen.status],
        )
        lines += [_escaped(", ".join(what)), ""]
    heading = ("rank", "package", "GPUs", "layout", "weights", "price", "headroom", "status", "to confirm")
    lines += [*_table(heading, rows, numbers=(0, 5, 6)), ""] if rows else []
    lines += [f"- to confirm: {_escaped(line)}" for line in answer.confirmations]
    lines += [f"- {g.count} excluded by {g.requirement}: {_escaped(g.reason)}" for g in answer.excluded]
    lines += [
        f"- {_escaped(f'{a.field} from {a.from_} to {a.to}')} saves {format_size(a.saves_bytes)}: {MARKS[a.verdict]}"
        for a in answer.alternatives
    ]
    return "\n".join([*lines, "", f"`{answer.digest}`"]) + "\n"


def models(answer: ModelsAnswer) -> str:
    """The answer of /fit/models as a summary."""
    found = answer.considered
    lines = [f"## Models on {answer.gpu_count} x {_escaped(answer.gpu)}: {found.met} of {found.models} met", ""]
    heading, *rows = model_rows(answer)
    lines += [*_table(heading, rows, numbers=(0, 5, 6)), ""] if rows else []
    lines += [
        f"- {n.count} not estimated, such as {_escaped(n.example)}: {_escaped(n.reason)}" for n in answer.not_estimated
    ]
    return "\n".join([*lines, "", f"`{answer.digest}`"]) + "\n"


def _escaped(text: object) -> str:
    return _SPECIAL.sub(r"\\\1", clean(text))


def _fact(name: str, amount: Amount) -> tuple[str, str, str]:
    spread = "" if amount.low == amount.high else f"{format_size(amount.low)} to {format_size(amount.high)}"
    return name, format_size(amount.expected), spread


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> list[str]:
    rule = (" ---: |" if column in numbers else " --- |" for column in range(len(heading)))
    lines = ["| " + " | ".join(heading) + " |", "|" + "".join(rule)]
    return lines + ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
