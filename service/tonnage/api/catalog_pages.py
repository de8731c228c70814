"""One page of a list: filtered, in a total order, with a cursor that survives a changed catalogue."""

import base64
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from tonnage.api.catalog_views import Collection, Listing, listing_of
from tonnage.api.query import refusal
from tonnage.catalog import Catalog


class CatalogPage(Struct, frozen=True, kw_only=True):
    """One page of a collection."""

    items: list[Any]
    total: int
    """Rows that pass the filters, over all pages. [unitless]"""
    next: str | None
    """Address of the following page."""
    catalog: str
    """Version of the catalogue the rows are from."""


def page_of(collection: Collection, catalog: Catalog, given: dict[str, str]) -> CatalogPage:
    """
    The page that query parameters ask for.

    Args:
        collection: Kind.
        catalog: Where the rows come from.
        given: Values by parameter name.

    Returns:
        The page.

    Raises:
        ProblemError: 422 for a parameter that is wrong.
    """
    listing = listing_of(collection, dict(given))
    rows = [row for row in map(collection.to_row, collection.records(catalog)) if all(t(row) for t in listing.tests)]
    keyed = sorted(((_key(row, listing), row) for row in rows), key=lambda pair: pair[0], reverse=listing.descending)
    start = _after(keyed, listing) if listing.cursor else 0
    shown = keyed[start : start + listing.limit]
    following = None
    if start + listing.limit < len(keyed):
        parameters = {name: value for name, value in given.items() if name != "cursor"} | {
            "cursor": _cursor(shown[-1][0])
        }
        following = f"/catalog/{collection.name}?{urlencode(parameters)}"
    return CatalogPage(items=[row for _, row in shown], total=len(rows), next=following, catalog=catalog.version)


Key = tuple[bool, Any, str]


def _key(row: Any, listing: Listing) -> Key:
    """Unknown values come last in ascending order; the id makes the order total."""
    value = getattr(row, listing.sort)
    return (value is None, 0 if value is None else value, row.id)


def _cursor(key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def _after(keyed: list[tuple[Key, Any]], listing: Listing) -> int:
    """Place of the first row after the cursor, whether or not its own row still exists."""
    try:
        text = base64.urlsafe_b64decode(listing.cursor + "=" * (-len(listing.cursor) % 4))
        missing, value, name = msgspec.json.decode(text, type=tuple[bool, str | float | int | bool, str])
        last = (missing, value, name)
        passed = [key for key, _ in keyed if (key >= last if listing.descending else key <= last)]
    except (ValueError, TypeError, msgspec.MsgspecError):
        raise refusal("cursor", "the cursor is not one that this list gave") from None
    return len(passed)


def flat(row: Any) -> dict[str, Any]:
    """
    One row as CSV takes it.

    Args:
        row: Struct of a list.

    Returns:
        Scalars and lists of texts as they are, nested values as JSON.
    """
    return {name: _cell(getattr(row, name)) for name in row.__struct_fields__}


def _cell(value: Any) -> Any:
    plain = str | int | float | bool | None
    if isinstance(value, plain) or (isinstance(value, tuple) and all(isinstance(entry, plain) for entry in value)):
        return value
    return msgspec.json.encode(value).decode()
