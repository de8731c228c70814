"""Every law as a record: what its docstring says, with units and source, for /catalog/laws."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType

from msgspec import Struct

from tonnage import laws
from tonnage.explain.docstrings import LawInput, joined, parsed


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
        summary=joined((inspect.getdoc(module) or "").partition("\n\n")[0].splitlines()),
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
    words, topic = parsed(function), module.__name__.rpartition(".")[2]
    return Law(
        id=f"laws.{topic}.{function.__name__}",
        topic=topic,
        summary=words.summary,
        inputs=words.inputs,
        returns=words.returns,
        unit=words.unit,
        source=words.source,
    )
