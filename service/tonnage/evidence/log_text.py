"""
Numbers in pasted out-of-memory texts and start-up lines.

Each layout is a phrase that a line must hold and a pattern with bounded repeats, so reading is linear in
the text. Engines print binary amounts whatever they call them ("GB" of vLLM V0, SGLang and DeepSpeed is GiB);
the few that divide by 10^9 say so in their layout.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from msgspec import Struct

from tonnage.evidence.log_layouts import FAILURE_PHASES, LAYOUTS, MEMORY_HINT, Layout
from tonnage.units import GB, GiB, KiB, MiB

MAX_CHARACTERS = 20_000
MAX_LINES = 400
MAX_LINE = 4_000
MAX_UNREAD = 20

_BINARY = {"b": 1, "bytes": 1, "kb": KiB, "kib": KiB, "mb": MiB, "mib": MiB, "gb": GiB, "gib": GiB, "g": GiB, "m": MiB}
_AMOUNT = re.compile(r"(-?\d[\d,]{0,19}(?:\.\d{1,9})?) ?([A-Za-z]{1,5})?")


class Reading(Struct, frozen=True, kw_only=True):
    """What a pasted text says."""

    engine: str | None
    phase: str | None
    numbers: dict[str, Any]
    """Bytes by name, and counts; `other_process_bytes` is a list. [bytes]"""
    unread: tuple[str, ...]
    """Lines that speak of memory and no layout knows."""


class Fact(NamedTuple):
    """One number of one line."""

    name: str
    value: Any


def read(text: str) -> Reading:
    """
    Numbers, phase and engine of a pasted text.

    Args:
        text: Out-of-memory message, start-up log or both; only the first 20,000 characters are looked at.

    Returns:
        What was read and which lines were not.
    """
    numbers: dict[str, Any] = {}
    engines: list[str] = []
    phases: list[str] = []
    unread: list[str] = []
    for line in _lines(text):
        known = False
        for layout, match in _matches(line):
            known = True
            engines.append(layout.engine)
            phases.extend([layout.phase] if layout.phase else [])
            for fact in _facts(layout, match):
                _keep(numbers, fact, layout)
        if not known and MEMORY_HINT.search(line) and len(unread) < MAX_UNREAD:
            unread.append(line[:300])
    if not engines and not unread and text.strip():
        unread.append(text.strip().splitlines()[0][:300])
    numbers = {name: _whole(value) for name, value in numbers.items()}
    _own_process(numbers)
    return Reading(engine=_engine(engines), phase=_phase(text, phases), numbers=numbers, unread=tuple(unread))


def amount(number: str, unit: str | None, *, decimal: bool = False, default_unit: str = "b") -> Decimal:
    """
    Bytes of a number as printed by an engine.

    Args:
        number: Digits, with or without thousands separators; may be negative.
        unit: As printed; None: `default_unit`.
        decimal: The engine divides by powers of ten.
        default_unit: Unit of the column the number stands in.

    Returns:
        Size, not yet rounded: several lines may add up. [bytes]
    """
    factor = _BINARY[(unit or default_unit).lower()]
    if decimal and factor == GiB:
        factor = GB
    return Decimal(number.replace(",", "")) * factor


def _lines(text: str) -> Iterator[str]:
    for line in text[:MAX_CHARACTERS].splitlines()[:MAX_LINES]:
        if stripped := line[:MAX_LINE].strip():
            yield stripped


def _matches(line: str) -> Iterator[tuple[Layout, re.Match[str]]]:
    for layout in LAYOUTS:
        if layout.phrase in line:
            for match in layout.pattern.finditer(line):
                yield layout, match


def _facts(layout: Layout, match: re.Match[str]) -> Iterator[Fact]:
    for name, value in match.groupdict().items():
        if value is None:
            continue
        if name.endswith("_bytes"):
            parsed = _AMOUNT.match(value)
            if parsed is not None and (parsed[2] or "b").lower() in _BINARY:
                yield Fact(name, amount(parsed[1], parsed[2], decimal=layout.decimal, default_unit=layout.unit))
        elif name.endswith(("_utilization", "_concurrency")):
            yield Fact(name, float(value))
        else:
            yield Fact(name, int(value.replace(",", "")))


def _keep(numbers: dict[str, Any], fact: Fact, layout: Layout) -> None:
    if fact.name == "other_process_bytes":
        numbers.setdefault(fact.name, []).append(fact.value)
    elif layout.adds and fact.name in numbers:
        numbers[fact.name] += fact.value
    elif layout.largest and fact.name in numbers:
        numbers[fact.name] = max(numbers[fact.name], fact.value)
    else:
        numbers[fact.name] = fact.value


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(v) for v in value]
    return int(value.to_integral_value()) if isinstance(value, Decimal) else value


def _own_process(numbers: dict[str, Any]) -> None:
    """A text that names one process and never "this process" speaks of the failing one."""
    others = numbers.get("other_process_bytes", [])
    if "process_bytes" not in numbers and len(others) == 1 and "allocated_bytes" in numbers:
        numbers["process_bytes"] = others[0]
        del numbers["other_process_bytes"]


def _engine(engines: list[str]) -> str | None:
    specific = [e for e in engines if e != "pytorch"]
    return specific[0] if specific else (engines[0] if engines else None)


def _phase(text: str, phases: list[str]) -> str | None:
    """The layout's own phase; otherwise that of the innermost frame of a traceback that gives it away."""
    if phases:
        return phases[-1]
    head = text[:MAX_CHARACTERS]
    for phrase, phase in FAILURE_PHASES:
        if phrase in head:
            return phase
    return None
