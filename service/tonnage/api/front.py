"""The front page at / for browsers, links for programs; its assets are built from page/src and lie in the package."""

from typing import Any

import msgspec
from litestar import Request, get
from msgspec import Struct

from tonnage.api.answers import Answer
from tonnage.api.context import context_of
from tonnage.api.documents import MAX_AGE, PAGE_POLICY, asset, fingerprint
from tonnage.api.negotiation import JSON, choose
from tonnage.api.problems import NOT_FOUND, ProblemError
from tonnage.api.query import parameters, refuse_parameters
from tonnage.version import __version__

HTML = "text/html"
FRONT_OFFERS = (JSON, HTML)
_SCRIPT = b"text/javascript; charset=utf-8"
PAGE_ASSETS = {
    **dict.fromkeys(
        ("main.js", "view.js", "form.js", "bars.js", "curve.js", "client.js", "dom.js", "strings.js"), _SCRIPT
    ),
    "page.css": b"text/css; charset=utf-8",
}


class Directory(Struct, frozen=True):
    """Where everything is."""

    service: str
    version: str
    links: dict[str, str]


_DIRECTORY = Directory(
    "tonnage",
    __version__,
    {
        name: f"/{name}"
        for name in ("estimate", "fit", "catalog", "docs", "openapi.json", "healthz", "readyz", "metrics")
    },
)


@get("/")
async def front(request: Request[Any, Any, Any]) -> Answer:
    """The page for a browser, the links for a program."""
    context = context_of(request)
    refuse_parameters(parameters(context.query))
    if choose(context.accept, FRONT_OFFERS) == JSON:
        body = msgspec.json.encode(_DIRECTORY)
        return context.cacheable(Answer(body), fingerprint(body), max_age=MAX_AGE)
    answer = Answer(asset("index.html"), b"text/html; charset=utf-8").with_headers(PAGE_POLICY)
    return context.cacheable(answer, fingerprint(answer.body), max_age=MAX_AGE)


@get("/page/{asset:str}")
async def front_asset(request: Request[Any, Any, Any]) -> Answer:
    """Scripts and style of the front page."""
    context = context_of(request)
    refuse_parameters(parameters(context.query))
    name = request.path_params["asset"]
    if name not in PAGE_ASSETS:
        raise ProblemError(NOT_FOUND, f"the page has {', '.join(PAGE_ASSETS)}")
    return context.cacheable(Answer(asset(name), PAGE_ASSETS[name]), fingerprint(asset(name)), max_age=MAX_AGE)


HANDLERS: list[Any] = [front, front_asset]
