"""Plain tables that a person can read in a terminal and in the log of a pipeline."""

from collections.abc import Sequence

from tonnage.render.words import (
    MARKS,
    band,
    clean,
    largest_first,
    layout,
    model_line,
    package,
    price,
    small_ones,
    worst_phase,
)
from tonnage.spec.fit import Candidate, CandidateMemory, FitAnswer
from tonnage.spec.fit_models import ModelsAnswer
from tonnage.spec.report import Diagnosis, Estimate, Remedy
from tonnage.units import format_size

Row = Sequence[str]


def estimate(answer: Estimate) -> str:
    """The answer of /estimate as text."""
    blocks = [_head(answer), _items(answer), _phases(answer), _cache(answer)]
    if answer.diagnosis is not None:
        blocks.append(_diagnosis(answer.diagnosis))
    blocks += [_measured(answer), _notes(answer)]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def fit(answer: FitAnswer) -> str:
    """The answer of /fit as text."""
    blocks = [
        _fit_head(answer),
        _candidates(answer),
        _missing(answer),
        _excluded(answer),
        _alternatives(answer),
        _current(answer),
    ]
    if answer.diagnosis is not None:
        blocks.append(_diagnosis(answer.diagnosis))
    versions = f"catalogue {answer.versions.catalog}   method {answer.versions.method}   {answer.digest}"
    blocks.append([*_hours(answer), versions])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def models(answer: ModelsAnswer) -> str:
    """The answer of /fit/models as text."""
    found = answer.considered
    counts = f"{found.met} met, {found.needs_confirmation} to confirm, {found.excluded} excluded"
    head = [
        f"{answer.gpu_count} x {clean(answer.gpu)}: {format_size(answer.usable_bytes)} usable on each",
        f"looked at  {found.models} models: {counts}, {found.not_estimated} not estimated",
    ]
    others = [f"not done   {n.count} such as {clean(n.example)}: {clean(n.reason)}" for n in answer.not_estimated]
    versions = f"catalogue {answer.versions.catalog}   method {answer.versions.method}   {answer.digest}"
    blocks = [head, columns(model_rows(answer), right=(0, 2, 4, 5, 7)) if answer.models else [], [*others, versions]]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def model_rows(answer: ModelsAnswer) -> list[Row]:
    """Heading and models, one row each."""
    rows: list[Row] = [("rank", "model", "parameters", "weights", "required", "headroom", "verdict", "at once", "why")]
    for m in answer.models:
        at_once = "" if m.max_concurrency is None else f"{m.max_concurrency:.1f}"
        sizes = (format_size(m.required.expected), format_size(m.headroom.expected))
        why = "" if m.verdict == "met" else m.reason
        names = (str(m.rank), m.model, f"{m.parameters:,}", m.weights_format)
        rows.append((*names, *sizes, MARKS[m.verdict], at_once, why))
    return rows


def _hours(answer: FitAnswer) -> list[str]:
    """What time the prices are for."""
    priced = next((c.price for c in answer.candidates if c.price is not None), None)
    return [] if priced is None else [f"prices     for {priced.duration_hours:g} h of use"]


def columns(rows: Sequence[Row], *, right: Sequence[int] = ()) -> list[str]:
    """
    Rows as aligned lines.

    Args:
        rows: Cells; the first row is the heading.
        right: Columns aligned to the right.

    Returns:
        One line per row, without trailing blanks.
    """
    cells = [[clean(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))] if cells else []
    return [
        "  ".join(
            c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _head(answer: Estimate) -> list[str]:
    lines = [model_line(answer), f"required   {band(answer.required)}"]
    if answer.capacity is not None and answer.headroom is not None:
        lines.append(f"usable     {format_size(answer.capacity.usable_bytes)} ({answer.capacity.confidence})")
        lines.append(f"headroom   {band(answer.headroom)}")
    if answer.claimed_bytes is not None:
        lines.append(f"claimed    {format_size(answer.claimed_bytes)} (what the engine takes by its fraction)")
    lines.append(f"peak       {answer.peak.phase} on GPU {answer.peak.gpu_index}, device {band(answer.peak.device)}")
    lines.append(f"verdict    {MARKS[answer.verdict]}")
    return lines + [f"           {clean(finding.reason)}" for finding in answer.reasons]


def _items(answer: Estimate) -> list[str]:
    phase = worst_phase(answer)
    if phase is None:
        return []
    rows: list[Row] = [("item", "expected", "low", "high", "known", "law")]
    rows += [
        (i.component, *(format_size(b) for b in (i.bytes.expected, i.bytes.low, i.bytes.high)), i.basis, i.law)
        for i in largest_first(phase.items)
    ]
    small = small_ones(phase.items)
    if small is not None:
        words, sum_of = small
        rows.append((words, *(format_size(b) for b in (sum_of.expected, sum_of.low, sum_of.high)), "", ""))
    return columns(rows, right=(1, 2, 3))


def _phases(answer: Estimate) -> list[str]:
    rows: list[Row] = [("phase", "allocated", "reserved", "device")]
    rows += [
        (p.phase, *(format_size(c.expected) for c in (p.total.allocated, p.total.reserved, p.total.device)))
        for p in answer.phases
    ]
    return columns(rows, right=(1, 2, 3)) if answer.phases else []


def _cache(answer: Estimate) -> list[str]:
    cache = answer.kv_cache
    if cache is None:
        return []
    lines = [f"cache      {cache.bytes_per_token:,} bytes per token and GPU"]
    if cache.state_bytes_per_sequence:
        lines.append(f"state      {format_size(cache.state_bytes_per_sequence)} per sequence")
    if cache.capacity_tokens is not None:
        lines.append(f"capacity   {cache.capacity_tokens.expected:,} tokens")
    if cache.max_concurrency is not None:
        lines.append(f"requests   {cache.max_concurrency:.2f} of {cache.max_model_len or 0:,} tokens at once")
    return lines


def _measured(answer: Estimate) -> list[str]:
    rows: list[Row] = [("measured", "counter", "phase", "estimated", "agrees", "note")]
    rows += [
        (
            format_size(m.measured_bytes),
            m.counter,
            m.phase or "any",
            band(m.estimated),
            "yes" if m.agrees else "no",
            m.note,
        )
        for m in answer.measured
    ]
    return columns(rows) if answer.measured else []


def _notes(answer: Estimate) -> list[str]:
    lines = [f"assumed    {clean(a.field)} = {clean(a.value)} ({clean(a.why)})" for a in answer.assumptions]
    lines += [f"unknown    {clean(u)}" for u in answer.unknowns]
    lines += [f"void if    {clean(u)}" for u in answer.invalidated_by]
    lines.append(f"catalogue {answer.versions.catalog}   method {answer.versions.method}   {answer.digest}")
    return lines


def _diagnosis(diagnosis: Diagnosis) -> list[str]:
    lines = [f"failed in  {diagnosis.phase}: {clean(diagnosis.explanation)}"]
    lines += _remedies(diagnosis.remedies)
    return lines + [f"not read   {clean(line)}" for line in diagnosis.unread]


def _remedies(remedies: Sequence[Remedy]) -> list[str]:
    rows: list[Row] = [("one change", "from", "to", "saves", "then", "cost")]
    rows += [(r.field, str(r.from_), str(r.to), format_size(r.saves_bytes), MARKS[r.verdict], r.cost) for r in remedies]
    return columns(rows, right=(3,)) if remedies else []


def _current(answer: FitAnswer) -> list[str]:
    if answer.current is None:
        return []
    today = answer.current.candidate
    judged = [f"{r.name}: {clean(r.reason)}" for r in today.requirements if r.status != "met"]
    head = f"today      {package(today)}, {layout(today.placement)}: {MARKS[today.status]}"
    return [head, *(f"           {line}" for line in judged), *_remedies(answer.current.remedies)]


def _fit_head(answer: FitAnswer) -> list[str]:
    found, chosen = answer.considered, answer.selected
    counts = f"{found.met} met, {found.needs_confirmation} to confirm, {found.excluded} excluded, {found.dominated} dominated"
    aside = f"; {found.apart} packages left aside (spot or marketplace only)" if found.apart else ""
    return [
        f"{clean(answer.model.id or answer.model.family)}: {answer.model.parameters.total:,} parameters",
        f"selected   {_one_line(chosen) if chosen else 'nothing: no candidate has every requirement met'}",
        f"looked at  {found.candidates} candidates of {found.skus} packages: {counts}{aside}",
    ]


def _one_line(candidate: Candidate) -> str:
    place = f"{package(candidate)}, {layout(candidate.placement)}"
    return f"{clean(candidate.sku)}: {place}, {price(candidate.price)} (rank {candidate.rank})"


def _candidates(answer: FitAnswer) -> list[str]:
    rows: list[Row] = [
        ("rank", "package", "GPUs", "layout", "weights", "price", "required", "headroom", "status", "to confirm")
    ]
    rows += [_candidate(c) for c in answer.candidates]
    return columns(rows, right=(0, 5, 6, 7)) if answer.candidates else []


def _candidate(c: Candidate) -> Row:
    required, headroom = ("", "") if c.memory is None else _sizes(c.memory)
    order = (str(c.rank), c.sku, package(c), layout(c.placement), c.weights_format, price(c.price))
    return (*order, required, headroom, MARKS[c.status], ", ".join(c.missing))


def _sizes(memory: CandidateMemory) -> tuple[str, str]:
    return format_size(memory.required.expected), format_size(memory.headroom.expected)


def _missing(answer: FitAnswer) -> list[str]:
    return [f"confirm    {clean(line)}" for line in answer.confirmations]


def _excluded(answer: FitAnswer) -> list[str]:
    rows: list[Row] = [("excluded by", "count", "for example", "why")]
    rows += [(g.requirement, str(g.count), g.example.sku, g.reason) for g in answer.excluded]
    return columns(rows, right=(1,)) if answer.excluded else []


def _alternatives(answer: FitAnswer) -> list[str]:
    rows: list[Row] = [("one change", "from", "to", "saves", "then", "price", "risk")]
    rows += [
        (
            a.field,
            str(a.from_),
            str(a.to),
            format_size(a.saves_bytes),
            MARKS[a.verdict],
            price(a.price) if a.price else "",
            a.risk,
        )
        for a in answer.alternatives
    ]
    return columns(rows, right=(3, 5)) if answer.alternatives else []
