"""Records as TOML text, for overlays that a person goes on editing."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
Fields = Mapping[str, Any]


def tables(kind: str, records: Iterable[Fields]) -> str:
    """
    An array of tables.

    Args:
        kind: Name of the array, such as "package".
        records: Their fields; None is left out, lists of tables become one line each.

    Returns:
        TOML.
    """
    return "\n".join("\n".join([f"[[{kind}]]", *_lines(record), ""]) for record in records)


def _lines(record: Fields) -> Iterable[str]:
    for key, value in record.items():
        if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            yield f"{_key(key)} = ["
            yield from (f"  {toml_value(item)}," for item in value)
            yield "]"
        elif value is not None:
            yield f"{_key(key)} = {toml_value(value)}"


def toml_value(value: Any) -> str:
    """One value on one line. [unitless]"""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        fields = ", ".join(f"{_key(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {fields} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)
