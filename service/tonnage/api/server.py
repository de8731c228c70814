"""The process: uvicorn with limits that a public service needs (docs/decisions/0002-server.md)."""

import asyncio
import atexit
import logging
import os
import signal
from types import FrameType
from typing import Any

import uvicorn

from tonnage.api.access import refuse_open_house
from tonnage.api.app import Application, create_app
from tonnage.api.outlet import Outlet
from tonnage.api.protocol import guarded_protocol, sweep
from tonnage.api.settings import Settings, tracing_environment
from tonnage.api.telemetry import AccessLog, JsonLines, OutletHandler
from tonnage.api.tracing import traced

_TICKS_PER_SWEEP = 10
"""uvicorn ticks ten times a second."""


class Server(uvicorn.Server):
    """uvicorn that sweeps idle connections and says so before it goes."""

    def __init__(self, config: uvicorn.Config, app: Application) -> None:
        super().__init__(config)
        self._app = app

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % _TICKS_PER_SWEEP == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time(), self._app.runtime.settings)
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  (uvicorn's signature)
        """First signal: not ready any more, and after the drain time no more connections. Second: now."""
        lifecycle, drain = self._app.runtime.lifecycle, self._app.runtime.settings.drain_seconds
        if lifecycle.draining or sig == signal.SIGINT or not drain:
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True
        else:
            asyncio.get_event_loop().call_soon_threadsafe(self._leave_after, drain)
        lifecycle.draining = True

    def _leave_after(self, seconds: float) -> None:
        def leave() -> None:
            self.should_exit = True

        asyncio.get_running_loop().call_later(seconds, leave)


def serve(settings: Settings) -> int:
    """
    Serve until a signal says stop.

    Args:
        settings: How.

    Returns:
        Exit status.
    """
    refuse_open_house(settings)
    occupy_standard_descriptors()
    log_to_stderr(settings.log_level)
    app = create_app(settings)
    Server(config_of(settings, traced(app, tracing_environment())), app).run()
    return 0


def occupy_standard_descriptors() -> None:
    """Put nothing where standard streams were closed, before a socket takes the number and libuv refuses to close it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def config_of(settings: Settings, app: Any) -> uvicorn.Config:
    """Uvicorn's own settings."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=guarded_protocol(settings),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(settings.idle_timeout_seconds),
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )


def log_to_stderr(level: str) -> None:
    """JSON lines for everything that is not the access log."""
    outlet = Outlet(2)
    atexit.register(outlet.drain, AccessLog.LAST_SECONDS)
    handler = OutletHandler(outlet)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
