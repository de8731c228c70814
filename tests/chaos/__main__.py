"""
The fault suite: `python -m tests.chaos`.

Real processes of the service and of Valkey, steady load, one fault after the other; prints a table and ends with 1 when
anything went otherwise than it should.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.chaos import (
    clock_faults,
    disk_faults,
    failover_faults,
    log_faults,
    memory,
    process_faults,
    redis_faults,
    soak,
    stranger_faults,
)
from tests.chaos.report import HEADER, Row, write

_GROUPS = {
    "redis": redis_faults.all_faults,
    "failover": failover_faults.all_faults,
    "process": process_faults.all_faults,
    "strangers": stranger_faults.all_faults,
    "logs": log_faults.all_faults,
    "disk": disk_faults.all_faults,
    "clock": clock_faults.all_faults,
}


_LONG = ("memory", "soak")


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        rows = asyncio.run(_run(options, Path(folder)))
    if options.write:
        write(options.write, rows, f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} shared cores, `make chaos`:")
    return int(any(row.wrong for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[*_GROUPS, *_LONG], default=[*_GROUPS, *_LONG])
    parser.add_argument("--soak", type=float, default=60, help="seconds of the soak")
    parser.add_argument("--cards", type=int, default=100_000, help="distinct cards of the memory row")
    parser.add_argument("--write", type=Path, help="document to put the table into")
    return parser.parse_args()


async def _run(options: argparse.Namespace, folder: Path) -> list[Row]:
    rows = []
    sys.stdout.write(f"{HEADER}\n")
    async for row in _rows(options, folder):
        sys.stdout.write(f"{row.text()}\n")
        sys.stdout.flush()
        rows.append(row)
    return rows


async def _rows(options: argparse.Namespace, folder: Path) -> AsyncIterator[Row]:
    for name, faults in _GROUPS.items():
        if name in options.only:
            async for row in faults(folder):
                yield row
    if "memory" in options.only:
        yield await memory.distinct_cards(folder, options.cards)
    if "soak" in options.only:
        yield await soak.soak(folder, options.soak)


if __name__ == "__main__":
    sys.exit(main())
