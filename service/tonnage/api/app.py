"""The only place that wires: settings, catalogue, routes, lifespan, envelope."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Litestar

from tonnage.adapters.rate_counter import RateCounter
from tonnage.adapters.redis_cache import TwoLevelCache
from tonnage.adapters.redis_link import LinkSettings, RedisLink
from tonnage.api import catalog, documents, estimate, fit, fit_models, front, health
from tonnage.api.access import read_keys
from tonnage.api.answers import Answer, allowed_methods, problem_answer
from tonnage.api.bodies import Held
from tonnage.api.context import Lifecycle, Runtime
from tonnage.api.envelope import ANY_METHOD, Envelope
from tonnage.api.failures import as_problem
from tonnage.api.gate import Gate
from tonnage.api.problems import INTERNAL, METHOD_NOT_ALLOWED
from tonnage.api.reload import Watch
from tonnage.api.routing import ExpressLane, Route, litestar_handler
from tonnage.api.settings import Settings, read_settings
from tonnage.api.sizing import Desk, Sizing
from tonnage.api.telemetry import AccessLog, Telemetry
from tonnage.api.warm import warm
from tonnage.catalog import load_catalog

if TYPE_CHECKING:
    from tonnage.adapters.hub import Hub

logger = logging.getLogger("tonnage")

ROUTES: tuple[Route, ...] = (
    *estimate.ROUTES,
    *fit.ROUTES,
    *fit_models.ROUTES,
    *catalog.ROUTES,
    *health.ROUTES,
    *documents.ROUTES,
    *front.ROUTES,
)


class Application:
    """What the server runs: Litestar inside its envelope, with the parts that tests and the command look at."""

    def __init__(self, runtime: Runtime, log: AccessLog | None) -> None:
        self.runtime = runtime
        self.litestar = Litestar(
            route_handlers=[litestar_handler(route) for route in ROUTES],
            openapi_config=None,
            logging_config=None,
            exception_handlers={Exception: lambda request, error: explained(request.scope, error)},  # type: ignore[dict-item,return-value]
            lifespan=[_lifespan(runtime, log)],
            request_max_body_size=None,
        )
        self.envelope = Envelope(ExpressLane(self.litestar, ROUTES, explained), runtime, log)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] == "http":
            await self.envelope(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.litestar(scope, receive, send)


def create_app(settings: Settings | None = None, sizing: Sizing | None = None) -> Application:
    """
    The application.

    Args:
        settings: How to serve; read from the environment when omitted.
        sizing: What to answer with; the built-in catalogue and the overlay of the settings when omitted.

    Returns:
        ASGI application.
    """
    settings = settings or read_settings()
    telemetry = Telemetry()
    sizing = sizing or load_sizing(settings)
    telemetry.catalog_in_use(sizing.version, "overlay" if settings.catalog_dir else "built-in")
    link = RedisLink(link_settings(settings), telemetry.redis_is)
    desk = Desk(sizing, telemetry, hub_of(settings, link) if settings.hub_enabled else None, settings.fit_threads)
    lookups = TwoLevelCache(link, telemetry.cache, ttl_seconds=settings.redis_ttl_seconds)
    runtime = Runtime(
        settings=settings,
        telemetry=telemetry,
        desk=desk,
        lifecycle=Lifecycle(),
        lookups=lookups,
        link=link,
        held=Held(settings.bodies_limit_bytes),
        gate=Gate(settings, read_keys(settings), RateCounter(link, settings.rate_limit_per_minute)),
    )
    return Application(runtime, AccessLog(telemetry) if settings.access_log else None)


def link_settings(settings: Settings) -> LinkSettings:
    """How the settings say Redis is reached."""
    return LinkSettings(
        url=settings.redis_url,
        timeout_seconds=settings.redis_timeout_seconds,
        connections=settings.redis_connections,
        failures=settings.redis_breaker_failures,
        pause_seconds=settings.redis_breaker_seconds,
    )


def hub_of(settings: Settings, link: RedisLink) -> "Hub":
    """The Hub of the settings, its answers shared through Redis."""
    from tonnage.adapters.hub import Hub, HubSettings  # noqa: PLC0415  (httpx costs start-up time)
    from tonnage.adapters.hub_shared import RedisHubCache  # noqa: PLC0415

    token = Path(settings.hub_token_file).read_text(encoding="utf-8").strip() if settings.hub_token_file else ""
    return Hub(HubSettings(endpoint=settings.hub_endpoint, token=token), shared=RedisHubCache(link))


def load_sizing(settings: Settings) -> Sizing:
    """Catalogue of the settings, ready to answer."""
    overlay = Path(settings.catalog_dir) if settings.catalog_dir else None
    return Sizing(catalog=load_catalog(overlay))


def explained(scope: Mapping[str, Any], error: Exception) -> Answer:
    """Answer to a request that failed, or to OPTIONS, which the framework takes for an unknown method."""
    problem = as_problem(error)
    if problem.kind is METHOD_NOT_ALLOWED and scope["method"] == ANY_METHOD:
        return allowed_methods(problem.headers)
    if problem.kind is INTERNAL:
        logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return problem_answer(problem, scope["path"])


async def _warm(runtime: Runtime) -> None:
    try:
        await asyncio.to_thread(warm, runtime.desk.sizing)
    except Exception:
        logger.exception("warming up failed; the first requests will be slower")
    finally:
        runtime.lifecycle.warming = False


def _lifespan(runtime: Runtime, log: AccessLog | None) -> Any:
    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        runtime.link.start()
        runtime.gate.counter.start()
        watch = Watch(runtime)
        watch.start()
        runtime.lifecycle.warming = True
        warming = asyncio.create_task(_warm(runtime))
        try:
            yield
        finally:
            runtime.lifecycle.draining = True
            await warming
            await watch.close()
            if runtime.desk.hub is not None:
                await runtime.desk.hub.close()
            await runtime.gate.counter.close()
            await runtime.link.close()
            if log is not None:
                log.close()

    return lifespan
