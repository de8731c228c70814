"""Lists as comma-separated values."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """
    Rows as text/csv with a heading.

    Args:
        rows: Flat mappings; the columns are the keys in order of first appearance.

    Returns:
        RFC 4180 text. Cells that a spreadsheet would run as a formula are quoted with an apostrophe.
    """
    table = list(rows)
    names = list(dict.fromkeys(name for row in table for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in table)
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return _cell(";".join(str(v) for v in value))
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text
