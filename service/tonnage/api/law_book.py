"""Every law as a record: what its docstring says, with units and source, for /catalog/laws."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType

from msgspec import Struct

from tonnage import laws

_SECTION = re.compile(r"^(Args|Returns|Source|Raises):\s*$")
_ARGUMENT = re.compile(r"^(\w+): (.*)$")
_UNIT = re.compile(r"\[([^\]]+)\]\.?$")


class LawInput(Struct, frozen=True):
    """One argument of a law."""

    name: str
    description: str
    unit: str | None


class Law(Struct, frozen=True, kw_only=True):
    """One formula in words."""

    id: str
    """Name under which items of an answer refer to it."""
    topic: str
    summary: str
    inputs: tuple[LawInput, ...]
    returns: str
    unit: str | None
    source: str


@cache
def law_book() -> tuple[Law, ...]:
    """All laws, by name. [unitless]"""
    found = [_law(module, function) for module in _modules() for function in _functions(module)]
    return tuple(sorted(found, key=lambda law: law.id))


def _modules() -> Iterator[ModuleType]:
    for entry in pkgutil.iter_modules(laws.__path__):
        yield importlib.import_module(f"{laws.__name__}.{entry.name}")


@cache
def law_book_with_topics() -> tuple[Law, ...]:
    """The laws, and their topics as entries: an item that follows from several laws names the topic."""
    return tuple(sorted((*law_book(), *map(_topic, _modules())), key=lambda law: law.id))


def _topic(module: ModuleType) -> Law:
    topic = module.__name__.rpartition(".")[2]
    names = (f"laws.{topic}.{function.__name__}" for function in _functions(module))
    return Law(
        id=f"laws.{topic}",
        topic=topic,
        summary=_joined((inspect.getdoc(module) or "").partition("\n\n")[0].splitlines()),
        inputs=(),
        returns="",
        unit=None,
        source="each of its laws has its own: " + ", ".join(names),
    )


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for name, value in vars(module).items():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_"):
            yield value


def _law(module: ModuleType, function: FunctionType) -> Law:
    sections = _sections(inspect.getdoc(function) or "")
    topic = module.__name__.rpartition(".")[2]
    returns = _joined(sections["Returns"])
    return Law(
        id=f"laws.{topic}.{function.__name__}",
        topic=topic,
        summary=_joined(sections[""]),
        inputs=tuple(_inputs(sections["Args"])),
        returns=returns,
        unit=_unit(returns or _joined(sections[""])),
        source=_joined(sections["Source"]),
    )


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


def _joined(lines: list[str]) -> str:
    return " ".join(filter(None, lines))
