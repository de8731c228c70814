"""`tonnage catalog ...`: what there is, and overlays looked at before they are used."""

import argparse
import csv
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import to_builtins

from tonnage.api.catalog_pages import page_of
from tonnage.api.catalog_views import COLLECTIONS, MAX_LIMIT, Collection, entry_of, sortable
from tonnage.api.query import parameters
from tonnage.catalog import Catalog, load_catalog
from tonnage.catalog.imports import Imported, gpuhunt_offers, price_list
from tonnage.catalog.listing import model_entry
from tonnage.catalog.review import Change
from tonnage.catalog.review import diff as changes
from tonnage.catalog.review import validate as problems_of
from tonnage.cli.facts import catalog_argument, chosen_catalog, existing
from tonnage.cli.failure import CommandError
from tonnage.cli.output import ENTRY_FORMATS, LIST_FORMATS, rows_text, value_text, write

BUILTIN = "builtin"
"""Stands for the catalogue without an overlay."""
_WIDE = 6
"""Columns of a table unless more are named."""


def listing_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage catalog list`."""
    parser.add_argument("kind", choices=COLLECTIONS, help="one of %(choices)s", metavar="KIND")
    parser.add_argument(
        "filters", nargs="*", metavar="name=value", help="filters, sort and limit as in GET /catalog/KIND"
    )
    parser.add_argument("--columns", metavar="A,B", help="columns of table and csv")
    parser.add_argument("--format", choices=LIST_FORMATS, default="table", help="default table")
    catalog_argument(parser)


def listing(chosen: argparse.Namespace) -> int:
    """One list on standard output."""
    collection = COLLECTIONS[chosen.kind]
    given = parameters("&".join(word.replace("&", "%26").replace("+", "%2B") for word in chosen.filters).encode())
    rows = list(_rows(collection, chosen_catalog(chosen), given))
    columns = _columns(collection, chosen)
    write(rows_text(({name: getattr(row, name) for name in columns} for row in rows), chosen.format))
    return 0


def show_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage catalog show`."""
    parser.add_argument("kind", choices=COLLECTIONS, help="one of %(choices)s", metavar="KIND")
    parser.add_argument("name", help="id or alias")
    parser.add_argument("--format", choices=ENTRY_FORMATS, default="yaml", help="default yaml")
    catalog_argument(parser)


def show(chosen: argparse.Namespace) -> int:
    """One entry on standard output."""
    write(value_text(entry_of(COLLECTIONS[chosen.kind], chosen_catalog(chosen), chosen.name), chosen.format))
    return 0


def validate_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage catalog validate`."""
    parser.epilog = "Exit code: 0 the overlay can be used, 1 it cannot; every problem is listed."
    parser.add_argument("folder", type=Path, metavar="DIR", help="overlay directory")


def validate(chosen: argparse.Namespace) -> int:
    """Every problem of an overlay, or its version and how much it changes."""
    folder = existing(chosen.folder)
    problems = problems_of(folder)
    if not problems:
        catalog = load_catalog(folder)
        changed = changes(load_catalog(), catalog)
        problems = [problem for change in changed if change.kind == "models" for problem in _counted(catalog, change)]
    if problems:
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
        return 1
    write(f"catalogue {catalog.version}, {len(changed)} records differ from the built-in one\n")
    return 0


def diff_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage catalog diff`."""
    parser.add_argument("before", metavar="A", help=f"overlay directory, or {BUILTIN!r}")
    parser.add_argument("after", metavar="B", help=f"overlay directory, or {BUILTIN!r}")
    parser.add_argument("--format", choices=LIST_FORMATS, default="table", help="default table")


def diff(chosen: argparse.Namespace) -> int:
    """Records that differ, field by field."""
    found = changes(_named(chosen.before), _named(chosen.after))
    if chosen.format in ("json", "yaml"):
        write(value_text(found, chosen.format))
    else:
        write(rows_text((row for change in found for row in _fields(change)), chosen.format))
    return 0


def importing_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage catalog import`."""
    parser.epilog = "Rows that are not understood are listed on standard error. Exit code 1 when no row was."
    parser.add_argument("form", choices=("csv", "gpuhunt"), metavar="FORM", help="csv (own price list) or gpuhunt")
    parser.add_argument("file", type=Path, help="CSV file")
    parser.add_argument("--provider", help="whose offers they are; for gpuhunt, default the file's name")
    parser.add_argument("--source", help="where the list is from, for rows without their own; default the file's name")
    parser.add_argument("--as-of", metavar="DATE", help="date of the prices; default today")
    parser.add_argument("--output", "-o", type=Path, help="overlay file; default standard output")
    catalog_argument(parser)


def importing(chosen: argparse.Namespace) -> int:
    """An overlay file made from a price list."""
    imported = _imported(chosen, chosen_catalog(chosen))
    sys.stderr.write("".join(f"not taken: {reason}\n" for reason in imported.skipped))
    sys.stderr.write(
        f"{imported.packages} packages, {imported.offers} prices, {len(imported.skipped)} rows not taken\n"
    )
    if chosen.output is None:
        write(imported.toml)
    else:
        chosen.output.write_text(imported.toml, encoding="utf-8")
    return 0 if imported.packages else 1


def _counted(catalog: Catalog, change: Change) -> Iterator[str]:
    """Whether a model's config makes the parameters that its record says."""
    if change.change == "removed":
        return
    facts = catalog.models.get(change.id)
    counted = model_entry(catalog, facts).parameters_total
    if facts.count_check in ("exact", "none") and counted != facts.parameters_total:
        yield f"model {change.id!r}: its config makes {counted:,} parameters, the record says {facts.parameters_total:,}"


def _rows(collection: Collection, catalog: Catalog, given: dict[str, str]) -> Iterator[Any]:
    """Rows of all pages, or of the one page whose length is given."""
    whole = "limit" not in given
    page = page_of(collection, catalog, {"limit": str(MAX_LIMIT), **given})
    yield from page.items
    while whole and page.next is not None:
        page = page_of(collection, catalog, parameters(urlsplit(page.next).query.encode()))
        yield from page.items


def _columns(collection: Collection, chosen: argparse.Namespace) -> list[str]:
    known = list(collection.row.__struct_fields__)
    if chosen.columns is None:
        return sortable(collection)[:_WIDE] if chosen.format == "table" else known
    named: list[str] = chosen.columns.split(",")
    for name in named:
        if name not in known:
            raise CommandError(f"{collection.name} have no column {name!r}, but {', '.join(known)}")
    return named


def _named(name: str) -> Catalog:
    return load_catalog(None if name == BUILTIN else existing(Path(name)))


def _fields(change: Change) -> Iterator[dict[str, Any]]:
    head = {"change": change.change, "kind": change.kind, "id": change.id}
    for name, pair in (change.fields or {"": (None, None)}).items():
        before, after = (_short(to_builtins(value)) for value in pair)
        yield {**head, "field": name, "before": before, "after": after}


def _short(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _imported(chosen: argparse.Namespace, catalog: Catalog) -> Imported:
    text = chosen.file.read_text(encoding="utf-8-sig")
    source = chosen.source or chosen.file.name
    as_of = chosen.as_of or datetime.now(UTC).date().isoformat()
    if chosen.form == "csv":
        return price_list(catalog, text, source=source, as_of=as_of)
    provider = chosen.provider or chosen.file.stem
    rows = csv.DictReader(text.splitlines())
    return gpuhunt_offers(catalog, rows, provider=provider, source=source, as_of=as_of)
