"""Every operation of the API in one table: what the OpenAPI document says and what tests compare with the routes."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from tonnage.api import estimate, fit, fit_models
from tonnage.api.catalog import ENTRY_OFFERS, LIST_OFFERS, CatalogIndex
from tonnage.api.catalog_views import COLLECTIONS, DEFAULT_LIMIT, MAX_LIMIT, Collection, filters, sortable
from tonnage.api.documents import ASSETS, ProblemKind, ProblemKinds
from tonnage.api.examples import ESTIMATES, FITS, MODELS
from tonnage.api.front import FRONT_OFFERS, PAGE_ASSETS, Directory
from tonnage.api.health import Alive, Readiness
from tonnage.api.negotiation import JSON
from tonnage.api.problems import KINDS
from tonnage.api.representations import offers
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitAnswer, FitRequest
from tonnage.spec.fit_models import ModelsAnswer, ModelsRequest
from tonnage.spec.report import Estimate


class Parameter(NamedTuple):
    """One parameter of an operation."""

    name: str
    kind: Any
    """Annotation the schema is made from, or the schema itself."""
    summary: str
    place: str = "query"
    required: bool = False
    example: Any = None
    shared: bool = False
    """Several operations take it; the document says it once."""


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    tag: str
    summary: str
    statuses: tuple[int, ...] = ()
    """Problems it answers with beside those of every operation."""
    answer: Any = None
    """Struct of the 200, or None for what is not JSON."""
    media_types: tuple[str, ...] = (JSON,)
    parameters: tuple[Parameter, ...] = ()
    body: type[Struct] | None = None
    cacheable: bool = False
    page: bool = False
    batch: bool = False
    """Lines of JSON go in and out as application/x-ndjson."""
    link: str | None = None
    """Operation that takes the id of the first row."""
    examples: Mapping[str, Any] = {}


_FIELDS = Parameter(
    "fields", Annotated[list[str], Meta(min_length=1)], "Fields of the answer to send; all when omitted."
)
_EXPLAIN = Parameter(
    "explain", bool, "Add `derivations`: each item's formula, from the law's own code, with the numbers put in."
)
_STRICT = Parameter("strict", bool, "Answer 409 when no candidate meets every requirement.")


_EXAMPLES = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu": "l40s",
    "engine": "vllm",
    "max_model_len": 8192,
    "concurrency": 8,
}


def _card_parameters(reader: Any) -> tuple[Parameter, ...]:
    shared = estimate.read_card.documented
    return tuple(
        Parameter(
            name,
            leaf.kind,
            f"Field `{'.'.join(leaf.path)}` of the card.",
            example=_EXAMPLES.get(name),
            shared=name in shared and shared[name] == leaf,
        )
        for name, leaf in sorted(reader.documented.items())
    )


def _list_operation(collection: Collection) -> Operation:
    order = sorted([*sortable(collection), *(f"-{name}" for name in sortable(collection))])
    parameters = (
        *(Parameter(name, kind.kind, _filter_words(name)) for name, kind in filters(collection).items()),
        Parameter(
            "sort", {"type": "string", "enum": order, "default": "id"}, "Field to sort by, after `-` descending."
        ),
        Parameter(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            "Rows of one page.",
        ),
        Parameter("cursor", str, "Where the page begins, as the one before it said."),
    )
    return Operation(
        "GET", f"/catalog/{collection.name}", "catalog", f"{collection.summary}, filtered and by page", (406, 422),
        answer=collection.row, media_types=LIST_OFFERS, parameters=parameters, cacheable=True, page=True,
        link=f"getCatalog{''.join(map(str.capitalize, collection.name.split('-')))}Name",
    )  # fmt: skip


def _filter_words(name: str) -> str:
    if name == "q":
        return "Part of an id, name or alias, whatever its case."
    bound, _, field = name.partition("_")
    if bound in ("min", "max"):
        return f"{'Smallest' if bound == 'min' else 'Largest'} `{field}`."
    return f"Value of `{name}`, or one of its entries."


def _entry_operation(collection: Collection) -> Operation:
    name = Parameter(
        "name", {"type": "string", "minLength": 1}, "Id or alias; may hold slashes.", "path", required=True
    )
    return Operation(
        "GET", f"/catalog/{collection.name}/{{name}}", "catalog", f"One of: {collection.summary}", (404, 406, 422),
        answer=collection.entry, media_types=ENTRY_OFFERS, parameters=(name,), cacheable=True,
    )  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST", "/estimate", "estimate", "Memory of one workload on one placement", (400, 406, 408, 413, 415, 422),
        answer=Estimate, media_types=offers("estimate"), body=SizingCard, parameters=(_EXPLAIN, _FIELDS), batch=True,
        examples=ESTIMATES,
    ),
    Operation(
        "GET", "/estimate", "estimate", "The same for a card of flat query parameters", (406, 422),
        answer=Estimate, media_types=offers("estimate"),
        parameters=(_EXPLAIN, _FIELDS, *_card_parameters(estimate.read_card)),
        cacheable=True,
    ),
    Operation(
        "POST", "/fit", "fit", "Packages that serve a card, and why the others do not", (400, 406, 408, 409, 413, 415, 422),
        answer=FitAnswer, media_types=offers("fit"), body=FitRequest, parameters=(_STRICT, _FIELDS), batch=True, examples=FITS,
    ),
    Operation(
        "GET", "/fit", "fit", "The same for a card of flat query parameters", (406, 409, 422),
        answer=FitAnswer, media_types=offers("fit"), parameters=(_STRICT, _FIELDS, *_card_parameters(fit.read_request)),
        cacheable=True,
    ),
    Operation(
        "POST", "/fit/models", "fit", "Models of the catalogue that a GPU serves under one card", (400, 406, 408, 413, 415, 422),
        answer=ModelsAnswer, media_types=fit_models.OFFERS, body=ModelsRequest, parameters=(_FIELDS,), batch=True,
        examples=MODELS,
    ),
    Operation(
        "GET", "/fit/models", "fit", "The same for settings as flat query parameters", (406, 422),
        answer=ModelsAnswer, media_types=fit_models.OFFERS,
        parameters=(_FIELDS, *_card_parameters(fit_models.read_request)), cacheable=True,
    ),
    Operation(
        "GET", "/catalog", "catalog", "What the catalogue holds", (406, 422), answer=CatalogIndex,
        media_types=ENTRY_OFFERS, cacheable=True,
    ),
    *map(_list_operation, COLLECTIONS.values()),
    *map(_entry_operation, COLLECTIONS.values()),
    Operation("GET", "/healthz", "operations", "The process is alive", (422,), answer=Alive),
    Operation("GET", "/readyz", "operations", "Requests are welcome", (422,), answer=Readiness),
    Operation("GET", "/metrics", "operations", "Metrics for Prometheus", (422,), media_types=("text/plain",)),
    Operation("GET", "/openapi.json", "documents", "This document", (422,), answer=dict[str, Any], cacheable=True),
    Operation(
        "GET", "/", "documents", "The front page for browsers, links for programs", (406, 422), answer=Directory,
        media_types=FRONT_OFFERS, cacheable=True,
    ),
    Operation(
        "GET", "/page/{asset}", "documents", "Scripts and style of the front page", (404, 422), cacheable=True,
        media_types=("text/javascript", "text/css"),
        parameters=(Parameter("asset", {"type": "string", "enum": sorted(PAGE_ASSETS)}, "File.", "path", required=True),),
    ),
    Operation("GET", "/docs", "documents", "This document for people", (422,), media_types=("text/html",), cacheable=True),
    Operation(
        "GET", "/docs/{asset}", "documents", "Script and style of that page", (404, 422), cacheable=True,
        media_types=("text/javascript", "text/css"),
        parameters=(Parameter("asset", {"type": "string", "enum": sorted(ASSETS)}, "File.", "path", required=True),),
    ),
    Operation("GET", "/problems", "documents", "Every kind of problem", (422,), answer=ProblemKinds, cacheable=True),
    Operation(
        "GET", "/problems/{slug}", "documents", "What one kind of problem means", (404, 422), answer=ProblemKind,
        cacheable=True,
        parameters=(Parameter("slug", {"type": "string", "enum": sorted(KINDS)}, "Kind.", "path", required=True),),
    ),
)  # fmt: skip
