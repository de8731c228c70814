"""The same library from a shell."""

from tonnage.cli.program import main

__all__ = ["main"]
