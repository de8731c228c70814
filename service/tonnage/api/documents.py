"""/openapi.json and /docs: the API about itself, with nothing from another host."""

from functools import cache
from importlib import resources
from typing import Any

import msgspec
from litestar import Request, get

from tonnage.api.answers import Answer
from tonnage.api.context import context_of
from tonnage.api.problems import NOT_FOUND, ProblemError
from tonnage.api.query import parameters, refuse_parameters
from tonnage.version import __version__

_PAGE_POLICY = (
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
_ASSETS = {"docs.js": b"text/javascript; charset=utf-8", "docs.css": b"text/css; charset=utf-8"}
_MAX_AGE = 300


@get("/openapi.json")
async def openapi(request: Request[Any, Any, Any]) -> Answer:
    """OpenAPI 3.1 description."""
    context = context_of(request)
    refuse_parameters(parameters(context.query))
    return context.cacheable(Answer(openapi_bytes()), f"openapi-{__version__}", _MAX_AGE)


@get("/docs")
async def docs(request: Request[Any, Any, Any]) -> Answer:
    """The description as a page."""
    context = context_of(request)
    refuse_parameters(parameters(context.query))
    answer = Answer(_asset("docs.html"), b"text/html; charset=utf-8").with_headers(_PAGE_POLICY)
    return context.cacheable(answer, f"docs-{__version__}", _MAX_AGE)


@get("/docs/{asset:str}")
async def docs_asset(request: Request[Any, Any, Any]) -> Answer:
    """Script and style of that page."""
    context = context_of(request)
    refuse_parameters(parameters(context.query))
    name = request.path_params["asset"]
    if name not in _ASSETS:
        raise ProblemError(NOT_FOUND, f"the page has {', '.join(_ASSETS)}")
    return context.cacheable(Answer(_asset(name), _ASSETS[name]), f"docs-{__version__}", _MAX_AGE)


HANDLERS: list[Any] = [openapi, docs, docs_asset]


@cache
def openapi_bytes() -> bytes:
    """The description as it is served. [bytes]"""
    from tonnage.api.openapi import document  # noqa: PLC0415  (costs start-up time that few processes need)

    return msgspec.json.encode(document())


@cache
def _asset(name: str) -> bytes:
    return (resources.files("tonnage.api") / "page" / name).read_bytes()
