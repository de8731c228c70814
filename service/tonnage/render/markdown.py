"""Markdown for the job summary of a pipeline."""

import re
from collections.abc import Sequence

from tonnage.render.table import model_rows
from tonnage.render.words import MARKS, band, clean, largest_first, layout, model_line, package, price, worst_phase
from tonnage.spec.fit import FitAnswer
from tonnage.spec.fit_models import ModelsAnswer
from tonnage.spec.report import Estimate
from tonnage.units import format_size

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def estimate(answer: Estimate) -> str:
    """The answer of /estimate as a summary."""
    lines = [f"## GPU memory: {MARKS[answer.verdict]}", "", _escaped(model_line(answer)), ""]
    facts = [("required", band(answer.required))]
    if answer.capacity is not None and answer.headroom is not None:
        facts += [("usable", format_size(answer.capacity.usable_bytes)), ("headroom", band(answer.headroom))]
    facts.append((f"peak ({answer.peak.phase})", band(answer.peak.device)))
    lines += [*_table(("", "bytes"), facts), ""]
    if (phase := worst_phase(answer)) is not None:
        rows = [(i.component, band(i.bytes), i.basis, i.law) for i in largest_first(phase.items)]
        lines += [*_table(("item", "bytes", "known", "law"), rows), ""]
    lines += [f"- {_escaped(f.reason)}" for f in answer.reasons]
    lines += [f"- unknown: {_escaped(u)}" for u in answer.unknowns]
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
    heading = ("rank", "package", "GPUs", "layout", "weights", "price", "headroom", "status", "to confirm")
    lines += [*_table(heading, rows), ""] if rows else []
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
    lines += [*_table(heading, rows), ""] if rows else []
    lines += [
        f"- {n.count} not estimated, such as {_escaped(n.example)}: {_escaped(n.reason)}" for n in answer.not_estimated
    ]
    return "\n".join([*lines, "", f"`{answer.digest}`"]) + "\n"


def _escaped(text: object) -> str:
    return _SPECIAL.sub(r"\\\1", clean(text))


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    return lines + ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
