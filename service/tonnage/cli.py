"""The same library from a shell."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tonnage.adapters.redis_link import LinkSettings, client_of
from tonnage.adapters.shared_catalog import SnapshotError, files_of, publish, withdraw
from tonnage.api import server
from tonnage.api.access import new_key
from tonnage.api.settings import Settings, SettingsError, read_settings
from tonnage.catalog import load_catalog
from tonnage.errors import CatalogError
from tonnage.version import __version__


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `tonnage` command."""
    parser = argparse.ArgumentParser(
        prog="tonnage", description="How much GPU memory a model needs, and which package to order."
    )
    parser.add_argument("--version", action="version", version=f"tonnage {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    serve = commands.add_parser("serve", help="answer over HTTP; settings are TONNAGE_* variables")
    serve.add_argument("--host")
    serve.add_argument("--port", type=int)
    serve.set_defaults(run=_serve)
    openapi = commands.add_parser("openapi", help="print the OpenAPI description")
    openapi.set_defaults(run=_openapi)
    key = commands.add_parser("key", help="make an API key: the token goes to the caller, the line to the service")
    key.add_argument("name")
    key.add_argument("--scopes", default="read+estimate+fit", help="of read, estimate, fit, admin, joined by +")
    key.set_defaults(run=_key)
    overlay = commands.add_parser(
        "overlay", help="check an overlay of the catalogue, publish it to all replicas, withdraw it"
    )
    overlay.add_argument("action", choices=["check", "publish", "withdraw"])
    overlay.add_argument("folder", nargs="?", type=Path)
    overlay.set_defaults(run=_overlay)
    chosen = parser.parse_args(arguments)
    try:
        sys.exit(chosen.run(chosen))
    except (SettingsError, CatalogError, SnapshotError) as error:
        sys.exit(f"tonnage: {error}")


def _key(chosen: argparse.Namespace) -> int:
    token, line = new_key(chosen.name, chosen.scopes)
    sys.stdout.write(f"token  {token}\nline   {line}\n")
    return 0


def _overlay(chosen: argparse.Namespace) -> int:
    settings = read_settings()
    if chosen.action == "withdraw":
        asyncio.run(_withdraw(settings))
        return 0
    if chosen.folder is None or not chosen.folder.is_dir():
        raise SettingsError("name the directory of the overlay")
    sys.stdout.write(f"catalogue {load_catalog(chosen.folder).version}\n")
    if chosen.action == "publish":
        revision = asyncio.run(_publish(settings, chosen.folder))
        sys.stdout.write(f"published as {revision}; replicas have it within {settings.catalog_poll_seconds:g} s\n")
    return 0


async def _publish(settings: Settings, folder: Path) -> str:
    client = _redis(settings)
    try:
        return await publish(client, files_of(folder))
    finally:
        await client.aclose()


async def _withdraw(settings: Settings) -> None:
    client = _redis(settings)
    try:
        await withdraw(client)
    finally:
        await client.aclose()


def _redis(settings: Settings) -> Any:
    if not settings.redis_url:
        raise SettingsError("TONNAGE_REDIS_URL says where replicas look for the overlay; it is not set")
    return client_of(LinkSettings(url=settings.redis_url, timeout_seconds=5))


def _openapi(_chosen: argparse.Namespace) -> int:
    from tonnage.api.openapi import document  # noqa: PLC0415  (no other command needs it)

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document()), indent=1) + b"\n")
    return 0


def _serve(chosen: argparse.Namespace) -> int:
    return server.serve(read_settings(host=chosen.host, port=chosen.port))
