"""Cards out of files and answers into files: NDJSON, CSV, and Parquet with the optional pyarrow."""

import csv
import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tonnage.cli.bulk_answers import Ask, Question, Rows, figures_of, query_reader
from tonnage.cli.failure import CommandError
from tonnage.render import table_csv

SUFFIXES = (".ndjson", ".csv", ".parquet")
CARD = "card"
"""Column that holds a whole card as JSON."""
LINE = "line"
"""Column of a table whose cards come from lines."""

Write = Callable[[Rows], None]


class Source(NamedTuple):
    """Questions of a file, read while they are answered."""

    questions: Iterator[Question]
    columns: tuple[str, ...]
    """Columns that a table of answers begins with."""
    total: int | None = None
    """How many there are, where that is known."""
    types: Any = None
    """Arrow types of the columns, where the file has them."""


def reader_of(path: Path, ask: Ask, *, keep: Sequence[str]) -> Source:
    """
    Questions of a file.

    Args:
        path: File by its suffix.
        ask: What is asked, for the names that its columns may have.
        keep: Columns that are no fields and travel along.

    Returns:
        Questions in order.

    Raises:
        CommandError: The suffix is unknown, a column is neither a field nor kept, or pyarrow is not there.
    """
    _known(path)
    if path.suffix == ".ndjson":
        return Source(_lines(path), (LINE,), _count(path, _lines))
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            columns = _checked(csv.DictReader(file).fieldnames or (), ask, keep)
        return Source(_questions(_csv_rows(path), keep), columns, _count(path, _csv_rows))
    file = _pyarrow("parquet").ParquetFile(path)
    columns = _checked(file.schema_arrow.names, ask, keep)
    types = {field.name: field.type for field in file.schema_arrow}
    return Source(_questions(_parquet_rows(file), keep), columns, file.metadata.num_rows, types)


@contextmanager
def writer_of(path: Path, source: Source, ask: Ask) -> Iterator[Write]:
    """What writes answers, by the suffix of the file; the file is whole when the block ends."""
    _known(path)
    columns = (*source.columns, *figures_of(ask))
    if path.suffix == ".ndjson":
        with path.open("wb") as lines:
            yield lambda rows: _discard(lines.write(rows.lines))
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as table:
            table.write(table_csv([dict.fromkeys(columns)]).partition("\r\n")[0] + "\r\n")
            yield lambda rows: _discard(table.write(_csv_lines(columns, rows)))
    else:
        arrow, schema = _pyarrow(), _schema(source, ask)
        with _pyarrow("parquet").ParquetWriter(path, schema) as parquet:
            yield lambda rows: parquet.write_table(arrow.Table.from_pylist(rows.rows, schema=schema))


def _count(path: Path, read: Callable[[Path], Iterator[object]]) -> int | None:
    """Cards of a file; of a pipe nobody knows before it ends."""
    return sum(1 for _ in read(path)) if path.is_file() else None


def _known(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise CommandError(f"{path} is none of {', '.join(SUFFIXES)}")


def _discard(_: object) -> None:
    """Drop how much was written."""


def _checked(columns: Sequence[str], ask: Ask, keep: Sequence[str]) -> tuple[str, ...]:
    """The columns but for the card, once each is a field or kept, and none is written by us."""
    reader = query_reader(fit=ask.fit)
    for name in keep:
        if name not in columns or name in figures_of(ask):
            raise CommandError(
                f"there is no column {name!r} to keep" if name not in columns else f"{name!r} is our column"
            )
    for name in columns:
        if name not in (*keep, CARD) and name not in reader.names:
            close = difflib.get_close_matches(name, reader.documented, n=1)
            hint = f"did you mean {close[0]}?" if close else f"--keep {name} lets it travel along"
            raise CommandError(f"column {name!r} is no field; {hint}")
    return tuple(name for name in columns if name != CARD)


def _lines(path: Path) -> Iterator[Question]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield Question(number, line.rstrip(b"\r\n"), {}, {LINE: number})


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            yield {name: value for name, value in row.items() if name is not None}


def _parquet_rows(file: Any) -> Iterator[dict[str, Any]]:
    for batch in file.iter_batches():
        yield from batch.to_pylist()


def _questions(rows: Iterable[dict[str, Any]], keep: Sequence[str]) -> Iterator[Question]:
    for number, row in enumerate(rows, 1):
        card = row.pop(CARD, None)
        texts = {name: text for name, value in row.items() if name not in keep and (text := _text(value))}
        yield Question(number, str(card).encode() if card else None, texts, row)


def _text(value: Any) -> str:
    """A cell as a query string would have it."""
    if value is None or value != value:  # noqa: PLR0124  (NaN is what differs from itself)
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value).strip()


def _csv_lines(columns: Sequence[str], rows: Rows) -> str:
    whole = table_csv([{name: row.get(name) for name in columns} for row in rows.rows])
    return whole.partition("\r\n")[2]


def _schema(source: Source, ask: Ask) -> Any:
    """Types of the source's own columns as they were; ours are text and whole numbers."""
    arrow = _pyarrow()
    own = source.types or {LINE: arrow.int64()}
    fields = [(name, own.get(name, arrow.string())) for name in source.columns]
    return arrow.schema([*fields, *((name, getattr(arrow, kind)()) for name, kind in figures_of(ask).items())])


def _pyarrow(part: str = "") -> Any:
    try:
        return importlib.import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ModuleNotFoundError as error:
        raise CommandError("Parquet needs the extra: pip install 'tonnage[parquet]'") from error
