"""
The catalogue as lists and entries: one table of collections, rows to show in lists, filters read off their fields.

A field of a row filters by its own name, a number also as `min_` and `max_`, a list by an entry it holds; `q` looks
into ids and names, `sort` takes a field or `-field`.
"""

import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from tonnage.api.law_book import Law, law_book_with_topics
from tonnage.api.query import refusal, unknown, value_of
from tonnage.catalog import Catalog
from tonnage.catalog.gpus import find_gpu
from tonnage.catalog.listing import ModelEntry, ModelRow, model_entry, model_row
from tonnage.errors import UnknownName
from tonnage.spec.engine import Profile
from tonnage.spec.facts import Gpu, KvFormat, Optimizer, Package, WeightFormat

MAX_LIMIT = 500
DEFAULT_LIMIT = 100


class EngineRow(Struct, frozen=True, kw_only=True):
    """An engine or framework as lists show it; its entry has the releases."""

    id: str
    name: str
    known_until: str
    known_until_date: str
    releases: tuple[str, ...]
    aliases: tuple[str, ...]
    source: str


def _engine_row(profile: Profile) -> EngineRow:
    shown = {name: getattr(profile, name) for name in EngineRow.__struct_fields__ if name != "releases"}
    return EngineRow(releases=tuple(release.since for release in profile.releases), **shown)


def _itself(record: Any) -> Any:
    return record


class Collection(Struct, frozen=True, kw_only=True):
    """One kind of thing the catalogue lists."""

    name: str
    summary: str
    entry: Any
    """Struct of one entry."""
    row: Any
    """Struct of one line of the list."""
    records: Callable[[Catalog], Iterable[Any]]
    to_row: Callable[[Any], Any] = _itself
    to_entry: Callable[[Catalog, Any], Any] = lambda _, record: record


COLLECTIONS: dict[str, Collection] = {
    collection.name: collection
    for collection in (
        Collection(
            name="models", summary="Models", entry=ModelEntry, row=ModelRow, records=lambda c: c.models, to_row=model_row,
            to_entry=model_entry,
        ),
        Collection(name="gpus", summary="GPUs", entry=Gpu, row=Gpu, records=lambda c: c.gpus),
        Collection(name="skus", summary="Packages one can order", entry=Package, row=Package, records=lambda c: c.packages),
        Collection(
            name="formats", summary="Weight formats", entry=WeightFormat, row=WeightFormat, records=lambda c: c.formats
        ),
        Collection(
            name="kv-formats", summary="KV cache formats", entry=KvFormat, row=KvFormat, records=lambda c: c.kv_formats
        ),
        Collection(
            name="engines", summary="Serving engines", entry=Profile, row=EngineRow, records=lambda c: c.engines,
            to_row=_engine_row,
        ),
        Collection(
            name="frameworks", summary="Training frameworks", entry=Profile, row=EngineRow, records=lambda c: c.frameworks,
            to_row=_engine_row,
        ),
        Collection(name="optimizers", summary="Optimizers", entry=Optimizer, row=Optimizer, records=lambda c: c.optimizers),
        Collection(name="laws", summary="Laws", entry=Law, row=Law, records=lambda _: law_book_with_topics()),
    )
}  # fmt: skip


def entry_of(collection: Collection, catalog: Catalog, name: str) -> Any:
    """
    One entry by id or alias.

    Args:
        collection: Kind.
        catalog: Where to look.
        name: As the caller spells it.

    Returns:
        The record.

    Raises:
        UnknownName: With near names.
    """
    records = collection.records(catalog)
    if collection.name == "gpus":
        return collection.to_entry(catalog, find_gpu(catalog, name)[0])
    if hasattr(records, "get"):
        return collection.to_entry(catalog, records.get(name))
    by_id = {record.id: record for record in records}
    if name not in by_id:
        raise UnknownName(collection.name.removesuffix("s"), name, by_id)
    return by_id[name]


class Listing(Struct, frozen=True, kw_only=True):
    """What a list request asks for, in terms of checked values."""

    tests: tuple[Callable[[Any], bool], ...]
    sort: str
    descending: bool
    limit: int
    cursor: str


def listing_of(collection: Collection, given: dict[str, str]) -> Listing:
    """
    Query parameters as tests, order and page.

    Args:
        collection: Kind.
        given: Values by parameter name.

    Returns:
        Checked listing.

    Raises:
        ProblemError: 422 for an unknown parameter or a value of the wrong type.
    """
    fields = filters(collection)
    sort = given.pop("sort", "id")
    limit = value_of(int, given.pop("limit", str(DEFAULT_LIMIT)), "limit")
    cursor = given.pop("cursor", "")
    if sort.removeprefix("-") not in sortable(collection):
        raise refusal("sort", f"sort is one of {', '.join(sortable(collection))}, or one of them after '-'")
    if not 1 <= limit <= MAX_LIMIT:
        raise refusal("limit", f"limit is between 1 and {MAX_LIMIT}")
    tests = []
    for name, text in given.items():
        if name not in fields:
            raise unknown(name, [*fields, "sort", "limit", "cursor"])
        tests.append(fields[name].test(name, text))
    return Listing(
        tests=tuple(tests), sort=sort.removeprefix("-"), descending=sort.startswith("-"), limit=limit, cursor=cursor
    )


class Filter(Struct, frozen=True):
    """One filter of a list."""

    kind: Any
    """Type of the value: int, float, bool or str."""
    makes: Callable[[Any], Callable[[Any], bool]]

    def test(self, name: str, text: str) -> Callable[[Any], bool]:
        """Test of one row for a value as written."""
        return self.makes(value_of(self.kind, text, name))


@cache
def _filters(name: str) -> dict[str, Filter]:
    found = {"q": Filter(str, _contains)}
    for field in msgspec.structs.fields(COLLECTIONS[name].row):
        kind, is_list = _scalar(field.type)
        if kind is None:
            continue
        found[field.name] = Filter(kind, _holds(field.name) if is_list else _equals(field.name))
        if kind in (int, float) and not is_list:
            found[f"min_{field.name}"] = Filter(kind, _at_least(field.name))
            found[f"max_{field.name}"] = Filter(kind, _at_most(field.name))
    return found


def filters(collection: Collection) -> dict[str, Filter]:
    """Filters by parameter name. [unitless]"""
    return _filters(collection.name)


@cache
def _sortable(name: str) -> list[str]:
    kinds = {field.name: _scalar(field.type) for field in msgspec.structs.fields(COLLECTIONS[name].row)}
    return [field for field, (kind, is_list) in kinds.items() if kind is not None and not is_list]


def sortable(collection: Collection) -> list[str]:
    """Fields a list can be sorted by. [unitless]"""
    return _sortable(collection.name)


def _scalar(kind: Any) -> tuple[Any, bool]:
    """Scalar type of a field and whether the field is a list of it; None for what cannot be filtered."""
    if get_origin(kind) is typing.Annotated:
        return _scalar(get_args(kind)[0])
    if get_origin(kind) in (typing.Union, types.UnionType):
        parts = [part for part in get_args(kind) if part is not type(None)]
        return _scalar(parts[0]) if len(parts) == 1 else (None, False)
    if get_origin(kind) is typing.Literal:
        return str, False
    if get_origin(kind) is tuple:
        inner, nested = _scalar(get_args(kind)[0])
        return (None, False) if nested else (inner, True)
    return (kind, False) if kind in (int, float, bool, str) else (None, False)


def _equals(name: str) -> Callable[[Any], Callable[[Any], bool]]:
    def makes(value: Any) -> Callable[[Any], bool]:
        wanted = value.lower() if isinstance(value, str) else value
        return lambda row: _folded(getattr(row, name)) == wanted

    return makes


def _holds(name: str) -> Callable[[Any], Callable[[Any], bool]]:
    def makes(value: Any) -> Callable[[Any], bool]:
        wanted = value.lower() if isinstance(value, str) else value
        return lambda row: wanted in [_folded(entry) for entry in getattr(row, name) or ()]

    return makes


def _folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _at_least(name: str) -> Callable[[Any], Callable[[Any], bool]]:
    return lambda bound: lambda row: (value := getattr(row, name)) is not None and value >= bound


def _at_most(name: str) -> Callable[[Any], Callable[[Any], bool]]:
    return lambda bound: lambda row: (value := getattr(row, name)) is not None and value <= bound


def _contains(text: str) -> Callable[[Any], bool]:
    wanted = text.lower()

    def test(row: Any) -> bool:
        names = (
            row.id,
            getattr(row, "name", None) or "",
            *getattr(row, "aliases", ()),
            *getattr(row, "same_architecture", ()),
        )
        return any(wanted in name.lower() for name in names)

    return test
