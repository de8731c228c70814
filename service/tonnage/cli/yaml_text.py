"""JSON values as YAML that every reader of YAML 1.1 and 1.2 reads alike."""

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*(?<! )", re.ASCII)
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
"""What YAML 1.1 takes for a boolean or for nothing."""


def yaml_text(value: Any) -> str:
    """
    A value as a YAML document.

    Args:
        value: Dictionaries with text keys, lists, text, numbers, booleans and None.

    Returns:
        Block style, two blanks a level.
    """
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _entry(f"{_scalar(key)}:", child)
    elif isinstance(value, list) and value:
        for child in value:
            first, *rest = _lines(child)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, child: Any) -> Iterator[str]:
    if isinstance(child, dict | list) and child:
        yield key
        yield from (f"  {line}" for line in _lines(child))
    else:
        yield f"{key} {_scalar(child)}"


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return json.dumps(value, ensure_ascii=all(ord(character) <= 0xFFFF for character in value))
    return json.dumps(value)
