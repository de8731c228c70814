"""The same library from a shell."""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from tonnage.api import server
from tonnage.api.settings import SettingsError, read_settings
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
    chosen = parser.parse_args(arguments)
    try:
        sys.exit(chosen.run(chosen))
    except SettingsError as error:
        sys.exit(f"tonnage: {error}")


def _openapi(_chosen: argparse.Namespace) -> int:
    from tonnage.api.openapi import document  # noqa: PLC0415  (no other command needs it)

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document()), indent=1) + b"\n")
    return 0


def _serve(chosen: argparse.Namespace) -> int:
    return server.serve(read_settings(host=chosen.host, port=chosen.port))
