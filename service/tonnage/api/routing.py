"""
Routes, twice: as Litestar handlers, and as an express lane past the framework for paths that need none of it.

Litestar resolves odd spellings, unknown paths and wrong methods; a request whose method and path stand in the table as
they are goes straight to its function. Both end in the same function, so they cannot differ.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from litestar import Request
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from tonnage.api.answers import Answer
from tonnage.api.batch import BatchAnswer
from tonnage.api.context import Context

Handler = Callable[[Context], Awaitable[Answer | BatchAnswer]]
Explain = Callable[[Mapping[str, Any], Exception], Answer]
"""From a scope and what went wrong to the answer."""

_REST = "/{name:path}"


class Route(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    """Litestar's spelling: {name:path} may hold slashes, {name:str} may not."""
    handler: Handler


def litestar_handler(route: Route) -> HTTPRouteHandler:
    """
    The route as Litestar knows it.

    Args:
        route: Method, path and function.

    Returns:
        Handler to register.
    """

    async def handle(request: Request[Any, Any, Any]) -> ASGIApp:
        return await route.handler(Context(request.scope, request.receive))

    name = f"{route.method} {route.path}"
    return HTTPRouteHandler(route.path, http_method=[route.method], status_code=200, name=name)(handle)  # type: ignore[list-item]


class ExpressLane:
    """Requests that are spelt as in the table, past the framework."""

    def __init__(self, app: Any, routes: Iterable[Route], explain: Explain) -> None:
        self._app = app
        self._explain = explain
        self._exact: dict[tuple[str, str], Handler] = {}
        self._below: dict[str, tuple[str, Handler]] = {}
        for route in routes:
            if route.path.endswith(_REST) and route.method == "GET":
                place = route.path.removesuffix(_REST) + "/"
                self._below[place] = (place + "{name}", route.handler)
            elif "{" not in route.path:
                self._exact[route.method, route.path] = route.handler

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        path: str = scope["path"]
        handler = self._exact.get((scope["method"], path))
        if handler is not None:
            scope["path_template"] = path
        else:
            handler = self._entry(scope, path)
            if handler is None:
                await self._app(scope, receive, send)
                return
        try:
            answer = await handler(Context(scope, receive))
        except Exception as error:
            answer = self._explain(scope, error)
        await answer(scope, receive, send)

    def _entry(self, scope: Any, path: str) -> Handler | None:
        """Handler of a path like /catalog/gpus/h100-sxm, None for anything that wants a closer look."""
        end = path.find("/", len("/catalog/")) + 1
        found = self._below.get(path[:end])
        if found is None or scope["method"] != "GET" or path.endswith("/") or "//" in path:
            return None
        scope["path_template"], handler = found
        scope["path_params"] = {"name": path[end:]}
        return handler
