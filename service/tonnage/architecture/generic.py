"""Configs of model types without a table: which generic table reads them, and which of their fields it does not know."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tonnage.architecture.composition import Reading
from tonnage.architecture.fields import Fields
from tonnage.architecture.tables import Table, tables

PLAIN, COMPOSITE = "generic", "generic_composite"
_MODALITIES = ("vision_config", "audio_config", "visual", "vision_tower", "speech_config")


def generic_table(config: Mapping[str, Any]) -> Table:
    """Table for a model type that has none: one stack, or a text stack inside a composite."""
    known = tables()
    nested = (isinstance(config.get(key), Mapping) for key in known[COMPOSITE].parts["text"].keys)
    return known[COMPOSITE if any(nested) else PLAIN]


def unknown_fields(reading: Reading) -> tuple[str, ...]:
    """Fields of a generically read config that no law looked at and that may shape memory, nested ones with their path."""
    found = list(_unread(reading.fields, ""))
    if reading.text is not reading.fields:
        found += _unread(reading.text, reading.text.pointer.removeprefix("/model/config/").replace("/", ".") + ".")
    return tuple(sorted(found))


def _unread(fields: Fields, prefix: str) -> Iterator[str]:
    patterns = tables()[PLAIN].irrelevant
    for key, value in fields.config.items():
        if value in (None, False, 0, "", [], {}) or key in fields.read:
            continue
        if key in _MODALITIES or not any(fnmatchcase(key, pattern) for pattern in patterns):
            yield f"{prefix}{key}"
