"""The same lots answered on Ray Data, in order, by the same function."""

import importlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from tonnage.cli.bulk_answers import Ask, Question, Rows, answered
from tonnage.cli.failure import CommandError

_encode = msgspec.msgpack.Encoder().encode


def on_ray(ask: Ask, chunks: Iterator[list[Question]]) -> Iterator[Rows]:
    """
    Answers of all lots, in their order.

    Args:
        ask: What is asked.
        chunks: Lots of questions.

    Returns:
        Answers by lot.

    Raises:
        CommandError: Ray is not installed.
    """
    try:
        data: Any = importlib.import_module("ray.data")  # an optional extra
    except ModuleNotFoundError as error:
        raise CommandError("Ray Data needs the extra: pip install 'tonnage[ray]'") from error
    data.DataContext.get_current().execution_options.preserve_order = True
    lots = data.from_items([{"lot": _encode(lot)} for lot in chunks])
    for row in lots.map(partial(_answered, ask=ask)).iter_rows():
        yield msgspec.msgpack.decode(row["rows"], type=Rows)


def _answered(row: dict[str, Any], *, ask: Ask) -> dict[str, Any]:
    lot = msgspec.msgpack.decode(row["lot"], type=list[Question])
    return {"rows": _encode(answered(ask, lot))}
