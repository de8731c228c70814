"""/openapi.json and /docs: the API about itself, with nothing from another host."""

import hashlib
from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct

from tonnage.api.answers import Answer
from tonnage.api.context import Context
from tonnage.api.problems import KINDS, NOT_FOUND, ProblemError
from tonnage.api.query import parameters, refuse_parameters
from tonnage.api.routing import Route

PAGE_POLICY = (
    b"content-security-policy",
    b"; ".join(
        (
            b"default-src 'none'",
            b"script-src 'self'",
            b"style-src 'self'",
            b"connect-src 'self'",
            b"img-src 'self' data:",
            b"base-uri 'none'",
            b"form-action 'none'",
            b"frame-ancestors 'none'",
        )
    ),
)
ASSETS = {"docs.js": b"text/javascript; charset=utf-8", "docs.css": b"text/css; charset=utf-8"}
MAX_AGE = 300


class ProblemKind(Struct, frozen=True):
    """One kind of problem."""

    type: str
    title: str
    status: int


class ProblemKinds(Struct, frozen=True):
    """All kinds of problems."""

    problems: list[ProblemKind]


async def openapi(context: Context) -> Answer:
    """OpenAPI 3.1 description."""
    refuse_parameters(parameters(context.query))
    return context.cacheable(Answer(openapi_bytes()), fingerprint(openapi_bytes()), max_age=MAX_AGE)


async def docs(context: Context) -> Answer:
    """The description as a page."""
    refuse_parameters(parameters(context.query))
    answer = Answer(asset("docs.html"), b"text/html; charset=utf-8")
    answer.policy = PAGE_POLICY
    return context.cacheable(answer, fingerprint(answer.body), max_age=MAX_AGE)


async def docs_asset(context: Context) -> Answer:
    """Script and style of that page."""
    refuse_parameters(parameters(context.query))
    name = context.path_params["asset"]
    if name not in ASSETS:
        raise ProblemError(NOT_FOUND, f"the page has {', '.join(ASSETS)}")
    return context.cacheable(Answer(asset(name), ASSETS[name]), fingerprint(asset(name)), max_age=MAX_AGE)


async def problem_kinds(context: Context) -> Answer:
    """Every kind of problem."""
    refuse_parameters(parameters(context.query))
    body = msgspec.json.encode(ProblemKinds([_kind(slug) for slug in KINDS]))
    return context.cacheable(Answer(body), fingerprint(body), max_age=MAX_AGE)


async def problem_kind(context: Context) -> Answer:
    """One kind of problem: where the `type` of a problem document leads."""
    refuse_parameters(parameters(context.query))
    slug = context.path_params["slug"]
    if slug not in KINDS:
        raise ProblemError(NOT_FOUND, f"problems are {', '.join(KINDS)}")
    body = msgspec.json.encode(_kind(slug))
    return context.cacheable(Answer(body), fingerprint(body), max_age=MAX_AGE)


ROUTES = (
    Route("GET", "/openapi.json", openapi),
    Route("GET", "/docs", docs),
    Route("GET", "/docs/{asset:str}", docs_asset),
    Route("GET", "/problems", problem_kinds),
    Route("GET", "/problems/{slug:str}", problem_kind),
)


def _kind(slug: str) -> ProblemKind:
    kind = KINDS[slug]
    return ProblemKind(f"/problems/{slug}", kind.title, kind.status)


def fingerprint(body: bytes) -> str:
    """Entity tag of a document."""
    return hashlib.sha256(body).hexdigest()


@cache
def openapi_bytes() -> bytes:
    """The description as it is served. [bytes]"""
    from tonnage.api.openapi import document  # noqa: PLC0415  (costs start-up time that few processes need)

    return msgspec.json.encode(document())


@cache
def asset(name: str) -> bytes:
    """A file of the package's page folder. [bytes]"""
    return (resources.files("tonnage.api") / "page" / name).read_bytes()
