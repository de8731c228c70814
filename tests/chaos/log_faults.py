"""Standard output that is full, unread, closed or a full disk."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.chaos.load import ESTIMATE, Load
from tests.chaos.replica import Replica
from tests.chaos.report import Row

_SECONDS = 5.0


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    yield await _written(folder, "stdout: a pipe that nobody reads", subprocess.PIPE)
    reader, writer = os.pipe()
    os.close(reader)
    yield await _written(folder, "stdout: a pipe whose reader is gone", writer)
    os.close(writer)
    with Path("/dev/full").open("wb") as full:
        yield await _written(folder, "stdout: a full disk", full)


async def _written(folder: Path, name: str, stdout: Any) -> Row:
    row = Row(name)
    service = await asyncio.to_thread(lambda: Replica(folder, stdout=stdout).wait_until_ready())
    try:
        started = time.monotonic()
        async with Load(service.port, lambda: ESTIMATE, connections=8, pause=0.0) as load:
            while time.monotonic() - started < _SECONDS or (
                len(load.samples) < 6000 and time.monotonic() - started < 15
            ):
                await asyncio.sleep(0.2)
        row.count(load)
        row.times(load.samples, started + 1, time.monotonic())
        lost = await asyncio.to_thread(service.metric, "tonnage_log_errors")
        row.expect(lost > 0, f"{lost:,.0f} lines counted as lost")
        service.terminate()
        began = time.monotonic()
        status = await asyncio.to_thread(service.exit_status, 10)
        row.expect(status == 0, f"exit {status} {time.monotonic() - began:.1f} s after SIGTERM")
    finally:
        service.kill()
    return row
