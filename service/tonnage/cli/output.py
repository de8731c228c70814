"""Answers and lists on standard output, in the format that was asked for."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tonnage.api.catalog_pages import flat
from tonnage.cli.yaml_text import yaml_text
from tonnage.render import markdown, svg, table, table_csv

QUESTION_FORMATS = ("table", "json", "yaml", "markdown", "svg")
MODELS_FORMATS = ("table", "json", "yaml", "markdown", "csv")
LIST_FORMATS = ("table", "json", "yaml", "csv")
ENTRY_FORMATS = ("yaml", "json")

_PEOPLE = {"table": table, "markdown": markdown, "svg": svg}


def answer_text(subject: str, answer: Any, shown: Any, chosen: str) -> str:
    """
    An answer as text.

    Args:
        subject: "estimate", "fit" or "models".
        answer: The answer itself, for formats that people read.
        shown: The part of it that programs get.
        chosen: One of `QUESTION_FORMATS`; of models also csv.

    Returns:
        What goes to standard output.
    """
    if chosen == "csv":
        return table_csv(map(flat, answer.models))
    if chosen in _PEOPLE:
        write: Callable[[Any], str] = getattr(_PEOPLE[chosen], subject)
        return write(answer)
    return value_text(shown, chosen)


def value_text(value: Any, chosen: str) -> str:
    """Any value as JSON or YAML."""
    if chosen == "json":
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
    return yaml_text(msgspec.to_builtins(value, str_keys=True))


def rows_text(rows: Iterable[dict[str, Any]], chosen: str) -> str:
    """
    Rows as text.

    Args:
        rows: Values by column, all with the same columns.
        chosen: One of `LIST_FORMATS`.

    Returns:
        A table, CSV, or a list of objects.
    """
    held = list(rows)
    if chosen == "csv":
        return table_csv(held)
    if chosen != "table":
        return value_text(held, chosen)
    if not held:
        return ""
    numbers = [n for n, name in enumerate(held[0]) if all(_is_number(row[name]) for row in held)]
    cells = [tuple(held[0]), *(tuple(_cell(value) for value in row.values()) for row in held)]
    return "\n".join(table.columns(cells, right=numbers)) + "\n"


def write(text: str) -> None:
    """Text to standard output."""
    sys.stdout.write(text)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value)
