"""GET /catalog/**: what the service knows, with filters, pages and entity tags."""

from typing import Any

import msgspec
from msgspec import Struct

from tonnage.api.answers import Answer, content_type
from tonnage.api.catalog_pages import CatalogPage, flat, page_of
from tonnage.api.catalog_views import COLLECTIONS, Collection, entry_of
from tonnage.api.context import Context
from tonnage.api.negotiation import CSV, JSON, MSGPACK, choose
from tonnage.api.problems import NOT_FOUND, FieldError, ProblemError
from tonnage.api.query import parameters, refuse_parameters
from tonnage.api.routing import Route
from tonnage.catalog import Catalog
from tonnage.errors import UnknownName
from tonnage.render import table_csv
from tonnage.version import METHOD_VERSION, __version__

MAX_AGE = 60
"""How long a caller may use an answer without asking again. [s]"""
LIST_OFFERS = (JSON, MSGPACK, CSV)
ENTRY_OFFERS = (JSON, MSGPACK)


class CollectionLink(Struct, frozen=True):
    """One collection of the index."""

    count: int
    href: str
    summary: str


class CatalogIndex(Struct, frozen=True, kw_only=True):
    """What the catalogue holds."""

    versions: dict[str, str]
    collections: dict[str, CollectionLink]


class Stored(Struct, frozen=True, array_like=True):
    """An answer as the caches keep it."""

    body: bytes
    link: str = ""


async def index(context: Context) -> Answer:
    """What there is, how many of each, and which version."""
    refuse_parameters(parameters(context.query))
    media_type = choose(context.accept, ENTRY_OFFERS)
    return await _answered(context, media_type, lambda: Stored(_encoded(media_type, index_of(context.catalog))))


def listing_route(collection: Collection) -> Route:
    """Route of one page of a collection."""

    async def listing(context: Context) -> Answer:
        media_type = choose(context.accept, LIST_OFFERS)

        def make() -> Stored:
            page = page_of(collection, context.catalog, parameters(context.query))
            return Stored(_encoded(media_type, page), _link(page))

        return await _answered(context, media_type, make)

    return Route("GET", f"/catalog/{collection.name}", listing)


def entry_route(collection: Collection) -> Route:
    """Route of one entry of a collection, by id or alias."""

    async def entry(context: Context) -> Answer:
        refuse_parameters(parameters(context.query))
        media_type = choose(context.accept, ENTRY_OFFERS)

        def make() -> Stored:
            name = context.path_params["name"].removeprefix("/")
            return Stored(_encoded(media_type, _found(collection, context.catalog, name)))

        return await _answered(context, media_type, make)

    return Route("GET", f"/catalog/{collection.name}/{{name:path}}", entry)


ROUTES = (
    Route("GET", "/catalog", index),
    *map(listing_route, COLLECTIONS.values()),
    *map(entry_route, COLLECTIONS.values()),
)


def index_of(catalog: Catalog) -> CatalogIndex:
    """Counts and links of one catalogue."""
    return CatalogIndex(
        versions={"service": __version__, "catalog": catalog.version, "method": METHOD_VERSION},
        collections={
            name: CollectionLink(sum(1 for _ in c.records(catalog)), f"/catalog/{name}", c.summary)
            for name, c in COLLECTIONS.items()
        },
    )


def _found(collection: Collection, catalog: Catalog, name: str) -> Any:
    try:
        return entry_of(collection, catalog, name)
    except UnknownName as error:
        close = error.did_you_mean or msgspec.UNSET
        raise ProblemError(NOT_FOUND, error.detail, errors=[FieldError("", error.detail, close)]) from error


def _encoded(media_type: str, value: Any) -> bytes:
    if media_type == MSGPACK:
        return msgspec.msgpack.encode(value)
    if media_type == CSV:
        return table_csv(map(flat, value.items)).encode()
    return msgspec.json.encode(value)


def _link(page: CatalogPage) -> str:
    return f'<{page.next}>; rel="next"' if page.next else ""


async def _answered(context: Context, media_type: str, make: Any) -> Answer:
    """The answer through the caches, with entity tag and page links; a 304 needs no body."""
    version = context.catalog.version
    key = f"{__version__}|{version}|{media_type}|{context.scope['path']}?{context.query.decode('latin-1')}"
    stored = await context.runtime.lookups.get(key, make, Stored)
    answer = Answer(stored.body, content_type(media_type))
    if stored.link:
        answer.with_headers((b"link", stored.link.encode()))
    return context.cacheable(answer, f"{__version__}-{version}", max_age=MAX_AGE)
