"""/healthz, /readyz and /metrics: for the machinery around the service."""

from typing import Literal

import msgspec
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from tonnage.api.answers import Answer
from tonnage.api.context import Context
from tonnage.api.problems import NOT_READY, ProblemError
from tonnage.api.query import parameters, refuse_parameters
from tonnage.api.routing import Route
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


async def healthz(context: Context) -> Answer:
    """The process is alive."""
    refuse_parameters(parameters(context.query))
    return Answer(b'{"status":"alive"}')


async def readyz(context: Context) -> Answer:
    """Catalogue and laws are loaded and the process is not shutting down; the state of Redis is shown, never fatal."""
    refuse_parameters(parameters(context.query))
    runtime = context.runtime
    if runtime.lifecycle.draining or runtime.lifecycle.warming:
        way = "shutting down" if runtime.lifecycle.draining else "warming up"
        raise ProblemError(NOT_READY, way, headers=[(b"retry-after", b"1")])
    state = Readiness(
        status="ready",
        versions={"service": __version__, "catalog": runtime.desk.sizing.version, "method": METHOD_VERSION},
        redis=runtime.link.state,
        in_flight=runtime.lifecycle.in_flight,
    )
    return Answer(msgspec.json.encode(state))


async def metrics(context: Context) -> Answer:
    """Metrics for Prometheus."""
    refuse_parameters(parameters(context.query))
    body = context.runtime.telemetry.exposition()
    return Answer(body, CONTENT_TYPE_LATEST.encode())


ROUTES = (Route("GET", "/healthz", healthz), Route("GET", "/readyz", readyz), Route("GET", "/metrics", metrics))
