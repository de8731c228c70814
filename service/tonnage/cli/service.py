"""`tonnage serve`, `openapi`, `key` and `overlay`: what an operator does."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from tonnage.api.settings import Settings, SettingsError, read_settings
from tonnage.catalog import load_catalog
from tonnage.cli.facts import existing
from tonnage.cli.failure import CommandError


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage serve`."""
    parser.add_argument("--host", help="default TONNAGE_HOST, else 127.0.0.1")
    parser.add_argument("--port", type=int, help="default TONNAGE_PORT, else 8000")


def serve(chosen: argparse.Namespace) -> int:
    """Answer over HTTP until told to stop."""
    from tonnage.api import server  # noqa: PLC0415  (no other command needs the server)

    return server.serve(read_settings(host=chosen.host, port=chosen.port))


def openapi_arguments(parser: argparse.ArgumentParser) -> None:
    """`tonnage openapi` has no options."""


def openapi(chosen: argparse.Namespace) -> int:  # noqa: ARG001  (all commands are called alike)
    """The OpenAPI description on standard output."""
    from tonnage.api.openapi import document  # noqa: PLC0415  (no other command needs it)

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document()), indent=1) + b"\n")
    return 0


def key_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage key`."""
    parser.add_argument("name", help="whose key it is")
    parser.add_argument("--scopes", default="read+estimate+fit", help="of read, estimate, fit, admin, joined by +")


def key(chosen: argparse.Namespace) -> int:
    """A new key and the line that lets it in."""
    from tonnage.api.access import new_key  # noqa: PLC0415  (no other command needs it)

    token, line = new_key(chosen.name, chosen.scopes)
    sys.stdout.write(f"token  {token}\nline   {line}\n")
    return 0


def overlay_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage overlay`."""
    parser.add_argument("action", choices=["check", "publish", "withdraw"])
    parser.add_argument("folder", nargs="?", type=Path)


def overlay(chosen: argparse.Namespace) -> int:
    """Look at an overlay, give it to all replicas through Redis, or take it back."""
    settings = read_settings()
    if chosen.action == "withdraw":
        asyncio.run(_withdraw(settings))
        return 0
    if chosen.folder is None:
        raise CommandError("name the directory of the overlay")
    sys.stdout.write(f"catalogue {load_catalog(existing(chosen.folder)).version}\n")
    if chosen.action == "publish":
        revision = asyncio.run(_publish(settings, chosen.folder))
        sys.stdout.write(f"published as {revision}; replicas have it within {settings.catalog_poll_seconds:g} s\n")
    return 0


async def _publish(settings: Settings, folder: Path) -> str:
    from tonnage.adapters.shared_catalog import SnapshotError, files_of, publish  # noqa: PLC0415  (needs redis)

    client = _redis(settings)
    try:
        return await publish(client, files_of(folder))
    except SnapshotError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.aclose()


async def _withdraw(settings: Settings) -> None:
    from tonnage.adapters.shared_catalog import withdraw  # noqa: PLC0415  (needs redis)

    client = _redis(settings)
    try:
        await withdraw(client)
    finally:
        await client.aclose()


def _redis(settings: Settings) -> Any:
    from tonnage.adapters.redis_link import LinkSettings, client_of  # noqa: PLC0415  (needs redis)

    if not settings.redis_url:
        raise SettingsError("TONNAGE_REDIS_URL says where replicas look for the overlay; it is not set")
    return client_of(LinkSettings(url=settings.redis_url, timeout_seconds=5))
