"""
Data files into strict records, layer by layer.

A file holds tables of any kind (`[[gpu]]`, `[[package]]`, ...). A later layer's record changes the fields it
names of the earlier record with the same id, adds a new one, or takes one out (`withdrawn = true`).
"""

import functools
import hashlib
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tonnage.errors import CatalogError

KINDS = ("gpu", "package", "format", "kv_format", "optimizer", "model")
AREAS = {"engines": "engine", "frameworks": "framework"}

T = TypeVar("T")
Fields = dict[str, Any]


@dataclass
class Record:
    """One table of a data file, with where it stands."""

    file: str
    fields: dict[str, Any]


@dataclass
class Layers:
    """Records of all layers so far, by kind and id, and what was wrong with them."""

    records: dict[str, dict[str, Record]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    profiles: dict[str, dict[str, Record]] = field(default_factory=lambda: {area: {} for area in AREAS})
    problems: list[str] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    @property
    def version(self) -> str:
        """Hash of the content of every file read. [unitless]"""
        return str(self.digest.hexdigest()[:12])


def read_layers(directories: Sequence[Path]) -> Layers:
    """
    Raw records of data directories, later ones on top of earlier ones.

    Args:
        directories: Built-in data first, then overlays.

    Returns:
        Records with the fields of every layer merged, and the problems found on the way.
    """
    layers = Layers()
    for depth, directory in enumerate(directories):
        for path in sorted(_data_files(directory)):
            _read_file(layers, path, path.relative_to(directory).as_posix(), overlay=depth > 0)
    return layers


def _data_files(directory: Path) -> Iterable[Path]:
    if not directory.is_dir():
        raise CatalogError(f"{directory}: not a directory")
    for path in directory.rglob("*.toml"):
        if not any(part.startswith(".") for part in path.relative_to(directory).parts):
            yield path


def _read_file(layers: Layers, path: Path, name: str, *, overlay: bool) -> None:
    content = path.read_bytes()
    layers.digest.update(f"{name}\0{len(content)}\0".encode())
    layers.digest.update(content)
    try:
        tables = _parsed(content)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        layers.problems.append(f"{name}: {error}")
        return
    area = _area_of(name, tables)
    if area is not None:
        _add_profile(layers, area, name, tables)
        return
    for kind, records in tables.items():
        if kind not in layers.records or not _is_array_of_tables(records):
            layers.problems.append(f"{name}: unknown table [{kind}]; known: {', '.join(f'[[{k}]]' for k in KINDS)}")
            continue
        _add_records(layers, kind, name, records, overlay=overlay)


@functools.lru_cache(maxsize=256)
def _parsed(content: bytes) -> Fields:
    """Tables of a file; a reload parses only what changed, so nobody may change what this returns. [unitless]"""
    return tomllib.loads(content.decode())


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _add_records(layers: Layers, kind: str, name: str, records: list[dict[str, Any]], *, overlay: bool) -> None:
    known = layers.records[kind]
    seen: set[str] = set()
    for number, fields in enumerate(records, 1):
        record_id = fields.get("id")
        if not isinstance(record_id, str) or not record_id:
            layers.problems.append(f"{name}: {kind} number {number} has no id")
            continue
        if record_id in seen or (record_id in known and not overlay):
            layers.problems.append(f"{name}: {kind} {record_id!r} is there twice")
            continue
        seen.add(record_id)
        _merge(layers, known, record_id, Record(name, fields), kind)


def _merge(layers: Layers, known: dict[str, Record], record_id: str, record: Record, kind: str) -> None:
    if record.fields.get("withdrawn", False):
        if known.pop(record_id, None) is None:
            layers.problems.append(f"{record.file}: {kind} {record_id!r} is withdrawn but was never there")
        return
    base = known.get(record_id)
    fields = {key: value for key, value in record.fields.items() if key != "withdrawn"}
    known[record_id] = Record(record.file, {**(base.fields if base else {}), **fields})


def _area_of(name: str, tables: dict[str, Any]) -> str | None:
    for area, key in AREAS.items():
        if name.startswith(f"{area}/") or key in tables:
            return area
    return None


def _add_profile(layers: Layers, area: str, name: str, tables: dict[str, Any]) -> None:
    """Overlay releases replace those that begin with the same version; header fields replace header fields."""
    profile_id = str(tables.get(AREAS[area]) or tables.get("id") or Path(name).stem)
    if not _is_array_of_tables(tables.get("release", [])):
        layers.problems.append(f"{name}: release must be an array of tables, [[release]]")
        return
    releases = {str(r.get("since")): r for r in tables.get("release", [])}
    head = {key: value for key, value in tables.items() if key not in (AREAS[area], "release")}
    base = layers.profiles[area].get(profile_id)
    if base is not None:
        merged = {str(r.get("since")): r for r in base.fields["releases"]}
        for since, release in releases.items():
            merged[since] = {**merged.get(since, {}), **release}
        head, releases = {**base.fields, **head}, merged
    layers.profiles[area][profile_id] = Record(name, {**head, "id": profile_id, "releases": list(releases.values())})


def convert(
    layers: Layers, kind: str, record: Record, record_type: type[T], prepare: Callable[[Fields], Fields]
) -> T | None:
    """Strict record of raw fields; None, and a problem that names file, record and path, when they break the schema."""
    try:
        return msgspec.convert(prepare(record.fields), record_type)
    except msgspec.ValidationError as error:
        layers.problems.append(f"{record.file}: {kind} {record.fields.get('id')!r}: {error}")
        return None


def refuse(problems: Sequence[str], limit: int = 20) -> None:
    """
    Complaint about everything that is wrong with the data, if anything is.

    Raises:
        CatalogError: One line per problem.
    """
    if problems:
        more = f"\n... and {len(problems) - limit} more" if len(problems) > limit else ""
        raise CatalogError("\n".join(problems[:limit]) + more)
