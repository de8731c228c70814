"""The front page at / for browsers, links for programs; its assets are built from page/src and lie in the package."""

import msgspec
from msgspec import Struct

from tonnage.api.answers import Answer
from tonnage.api.context import Context
from tonnage.api.documents import MAX_AGE, PAGE_POLICY, asset, fingerprint
from tonnage.api.negotiation import JSON, choose
from tonnage.api.problems import NOT_FOUND, ProblemError
from tonnage.api.query import parameters, refuse_parameters
from tonnage.api.routing import Route
from tonnage.version import __version__

HTML = "text/html"
FRONT_OFFERS = (JSON, HTML)
_SCRIPT = b"text/javascript; charset=utf-8"
PAGE_ASSETS = {
    **dict.fromkeys(
        (
            "main.js",
            "view.js",
            "packages.js",
            "form.js",
            "bars.js",
            "curve.js",
            "client.js",
            "dom.js",
            "strings.js",
            "ru.js",
            "vi.js",
            "types.js",
        ),
        _SCRIPT,
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
        for name in ("estimate", "fit", "fit/models", "catalog", "docs", "openapi.json", "healthz", "readyz", "metrics")
    },
)


async def front(context: Context) -> Answer:
    """The page for a browser, the links for a program."""
    refuse_parameters(parameters(context.query))
    if choose(context.accept, FRONT_OFFERS) == JSON:
        body = msgspec.json.encode(_DIRECTORY)
        return context.cacheable(Answer(body), fingerprint(body), max_age=MAX_AGE)
    answer = Answer(asset("index.html"), b"text/html; charset=utf-8")
    answer.policy = PAGE_POLICY
    return context.cacheable(answer, fingerprint(answer.body), max_age=MAX_AGE)


async def front_asset(context: Context) -> Answer:
    """Scripts and style of the front page."""
    refuse_parameters(parameters(context.query))
    name = context.path_params["asset"]
    if name not in PAGE_ASSETS:
        raise ProblemError(NOT_FOUND, f"the page has {', '.join(PAGE_ASSETS)}")
    return context.cacheable(Answer(asset(name), PAGE_ASSETS[name]), fingerprint(asset(name)), max_age=MAX_AGE)


ROUTES = (Route("GET", "/", front), Route("GET", "/page/{asset:str}", front_asset))
