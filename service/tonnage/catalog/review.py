"""An overlay looked at before it is used, and two catalogues compared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tonnage.catalog.contents import Catalog
from tonnage.catalog.loader import BUILTIN, read_catalog
from tonnage.catalog.lookup import Index

KINDS = ("gpus", "packages", "formats", "kv_formats", "optimizers", "models", "engines", "frameworks")


class Change(Struct, frozen=True, omit_defaults=True):
    """One record that is not the same in two catalogues."""

    kind: str
    id: str
    change: Literal["added", "removed", "changed"]
    fields: dict[str, tuple[Any, Any]] = {}
    """Of a changed record: what each field was and is."""


def validate(overlay: Path, *, builtin: Path = BUILTIN) -> list[str]:
    """
    What is wrong with an overlay on top of the built-in data.

    Args:
        overlay: Directory of TOML files.
        builtin: Directory of the built-in data.

    Returns:
        Every problem, naming file, record and path; empty when the overlay can be used.
    """
    return read_catalog([builtin, overlay])[1]


def diff(before: Catalog, after: Catalog) -> tuple[Change, ...]:
    """
    Records that differ between two catalogues.

    Args:
        before: The one in use.
        after: The other.

    Returns:
        Changes by kind, in the order of the records.
    """
    return tuple(c for kind in KINDS for c in _changes(kind, getattr(before, kind), getattr(after, kind)))


def _changes(kind: str, before: Index[Any], after: Index[Any]) -> Iterator[Change]:
    for name, old in before.entries.items():
        new = after.entries.get(name)
        if new is None:
            yield Change(kind, name, "removed")
        elif new != old:
            yield Change(kind, name, "changed", _fields(old, new))
    yield from (Change(kind, name, "added") for name in after.entries if name not in before.entries)


def _fields(old: Struct, new: Struct) -> dict[str, tuple[Any, Any]]:
    names = [f.name for f in msgspec.structs.fields(type(new))]
    pairs = {name: (getattr(old, name, None), getattr(new, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
