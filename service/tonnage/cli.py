"""The same library from a shell."""


def main() -> None:
    """Entry point of the `tonnage` command."""
    raise SystemExit("not built yet")
