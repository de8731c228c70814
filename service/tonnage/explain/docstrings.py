"""What the docstring of a law says: a summary, its inputs with units, what it returns, its source."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from msgspec import Struct

_SECTION = re.compile(r"^(Args|Returns|Source|Raises):\s*$")
_ARGUMENT = re.compile(r"^(\w+): (.*)$")
_UNIT = re.compile(r"\[([^\]]+)\]\.?$")


class LawInput(Struct, frozen=True):
    """One argument of a law."""

    name: str
    description: str
    unit: str | None


class LawWords(Struct, frozen=True, kw_only=True):
    """A docstring by its parts."""

    summary: str
    inputs: tuple[LawInput, ...]
    returns: str
    unit: str | None
    source: str


@cache
def parsed(function: Callable[..., Any]) -> LawWords:
    """
    The docstring of a law, taken apart.

    Args:
        function: The law.

    Returns:
        Its parts; a part that is not there is empty.
    """
    sections = _sections(inspect.getdoc(function) or "")
    returns, summary = joined(sections["Returns"]), joined(sections[""])
    return LawWords(
        summary=summary,
        inputs=tuple(_inputs(sections["Args"])),
        returns=returns,
        unit=_unit(returns or summary),
        source=joined(sections["Source"]),
    )


def joined(lines: list[str]) -> str:
    """Lines as one, empty ones left out."""
    return " ".join(filter(None, lines))


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"": [], "Args": [], "Returns": [], "Source": [], "Raises": []}
    here = ""
    for line in text.splitlines():
        heading = _SECTION.match(line.strip())
        if heading:
            here = heading[1]
        else:
            found[here].append(line.strip())
    return found


def _inputs(lines: list[str]) -> Iterator[LawInput]:
    entries: list[tuple[str, list[str]]] = []
    for line in filter(None, lines):
        start = _ARGUMENT.match(line)
        if start:
            entries.append((start[1], [start[2]]))
        elif entries:
            entries[-1][1].append(line)
    for name, words in entries:
        description = " ".join(words)
        yield LawInput(name, description, _unit(description))


def _unit(text: str) -> str | None:
    match = _UNIT.search(text)
    return match[1] if match else None
