"""The process: uvicorn with limits that a public service needs (docs/decisions/0002-server.md)."""

import logging
import sys

import uvicorn

from tonnage.api.app import create_app
from tonnage.api.settings import Settings
from tonnage.api.telemetry import JsonLines


def serve(settings: Settings) -> int:
    """
    Serve until a signal says stop.

    Args:
        settings: How.

    Returns:
        Exit status.
    """
    log_to_stderr(settings.log_level)
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=int(settings.idle_timeout_seconds),
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    uvicorn.Server(config).run()
    return 0


def log_to_stderr(level: str) -> None:
    """JSON lines for everything that is not the access log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
