"""/healthz, /readyz and /metrics: for the machinery around the service."""

from typing import Any, Literal

import msgspec
from litestar import Request, get
from msgspec import Struct

from tonnage.api.answers import Answer
from tonnage.api.context import context_of
from tonnage.api.problems import NOT_READY, ProblemError
from tonnage.api.query import parameters, refuse_parameters
from tonnage.version import METHOD_VERSION, __version__


class Alive(Struct, frozen=True):
    """Answer of /healthz."""

    status: str


class Readiness(Struct, frozen=True, kw_only=True):
    """Answer of /readyz."""

    status: str
    versions: dict[str, str]
    redis: Literal["none", "connecting", "up", "down"]
    in_flight: int


@get("/healthz")
async def healthz(request: Request[Any, Any, Any]) -> Answer:
    """The process is alive."""
    refuse_parameters(parameters(context_of(request).query))
    return Answer(b'{"status":"alive"}')


@get("/readyz")
async def readyz(request: Request[Any, Any, Any]) -> Answer:
    """The catalogue is loaded and the process is not shutting down; the state of Redis is shown, never fatal."""
    context = context_of(request)
    refuse_parameters(parameters(context.query))
    runtime = context.runtime
    if runtime.lifecycle.draining:
        raise ProblemError(NOT_READY, "shutting down", headers=[(b"retry-after", b"1")])
    state = Readiness(
        status="ready",
        versions={"service": __version__, "catalog": runtime.desk.sizing.version, "method": METHOD_VERSION},
        redis=runtime.link.state,
        in_flight=runtime.lifecycle.in_flight,
    )
    return Answer(msgspec.json.encode(state))


@get("/metrics")
async def metrics(request: Request[Any, Any, Any]) -> Answer:
    """Metrics for Prometheus."""
    context = context_of(request)
    refuse_parameters(parameters(context.query))
    body = context.runtime.telemetry.exposition()
    return Answer(body, b"text/plain; version=1.0.0; charset=utf-8")
