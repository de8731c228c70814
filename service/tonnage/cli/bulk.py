"""
`tonnage bulk IN OUT`: many cards from a file into a file, a line or row each, in order.

NDJSON holds cards and gives answers, byte for byte those of a batch over HTTP. CSV and Parquet hold one column per
query name (or one column `card` of JSON) and give the row with the figures one orders by. One bad row is a problem
in its place and stops nothing.
"""

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tonnage.cli.bulk_answers import Ask, Question, Rows, answered, ask_of
from tonnage.cli.bulk_files import reader_of, writer_of
from tonnage.cli.facts import catalog_argument, overlay_of
from tonnage.cli.progress import Progress

_CHUNK = 500
"""Questions that travel to a worker together."""


def bulk_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage bulk`."""
    parser.epilog = "Exit code: 0 every card is answered, 1 some are not; the others are answered all the same."
    parser.add_argument("source", type=Path, metavar="IN", help="cards: .ndjson, .csv or .parquet")
    parser.add_argument("target", type=Path, metavar="OUT", help="answers: .ndjson, .csv or .parquet")
    parser.add_argument("--fit", action="store_true", help="cards are requests of /fit")
    parser.add_argument(
        "--fields", metavar="A,B", help="of each answer only these; in a table as JSON beside the figures"
    )
    parser.add_argument(
        "--keep", metavar="A,B", default="", help="columns of a table that are no fields and travel along"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that answer; default 1")
    parser.add_argument(
        "--ray", action="store_true", help="answer on Ray Data (extra tonnage[ray]); the same bytes come out"
    )
    catalog_argument(parser)


def bulk(chosen: argparse.Namespace) -> int:
    """Answer every card of a file."""
    ask = ask_of(
        fit=chosen.fit, fields=chosen.fields, overlay=overlay_of(chosen), table=chosen.target.suffix != ".ndjson"
    )
    source = reader_of(chosen.source, ask, keep=[name for name in chosen.keep.split(",") if name])
    problems = 0
    with Progress("cards", source.total) as progress, writer_of(chosen.target, source, ask) as write:
        for rows in _rows(chosen, ask, _chunks(source.questions)):
            problems += rows.problems
            write(rows)
            progress.advance(rows.size)
    if problems:
        sys.stderr.write(f"tonnage: {problems:,} cards are not answered; their places say why\n")
    return 1 if problems else 0


def _chunks(questions: Iterable[Question]) -> Iterator[list[Question]]:
    """Questions in lots."""
    waiting = iter(questions)
    while lot := list(islice(waiting, _CHUNK)):
        yield lot


def _rows(chosen: argparse.Namespace, ask: Ask, chunks: Iterator[list[Question]]) -> Iterator[Rows]:
    if chosen.ray:
        from tonnage.cli.bulk_ray import on_ray  # noqa: PLC0415  (optional extra)

        return on_ray(ask, chunks)
    if chosen.workers > 1:
        return _in_processes(ask, chunks, chosen.workers)
    return (answered(ask, lot) for lot in chunks)


def _in_processes(ask: Ask, chunks: Iterator[list[Question]], workers: int) -> Iterator[Rows]:
    """Lots answered side by side, in order, with a few waiting so that memory stays bounded."""
    from concurrent.futures import Future, ProcessPoolExecutor  # noqa: PLC0415  (costs start-up time)

    under_way: deque[Future[Rows]] = deque()
    with ProcessPoolExecutor(workers) as pool:
        for lot in chunks:
            under_way.append(pool.submit(answered, ask, lot))
            if len(under_way) > 2 * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
