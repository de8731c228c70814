"""The catalogue that a command works with: the built-in one, or with an overlay on top."""

import argparse
from pathlib import Path

from tonnage.api.settings import read_settings
from tonnage.catalog import Catalog, load_catalog
from tonnage.cli.failure import CommandError


def catalog_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names an overlay."""
    parser.add_argument(
        "--overlay", type=Path, metavar="DIR", help="read on top of the built-in catalogue; default TONNAGE_CATALOG_DIR"
    )


def chosen_catalog(chosen: argparse.Namespace) -> Catalog:
    """The catalogue of the options, or of the environment."""
    return load_catalog(overlay_of(chosen))


def overlay_of(chosen: argparse.Namespace) -> Path | None:
    """Directory of the overlay, None without one."""
    named = chosen.overlay or read_settings().catalog_dir
    return existing(Path(named)) if named else None


def existing(folder: Path) -> Path:
    """The directory, or the complaint that it is none."""
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a directory")
    return folder
