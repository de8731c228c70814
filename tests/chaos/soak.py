"""Steady load for as long as asked; memory must stay where it was once everything is warm."""

import asyncio
from pathlib import Path

from tests.chaos.load import Load, milliseconds
from tests.chaos.replica import Replica
from tests.chaos.report import Row

_WARM_PART = 0.25
_GROWTH_MIB = 8.0


async def soak(folder: Path, seconds: float) -> Row:
    row = Row(f"soak, {seconds:.0f} s")
    service = await asyncio.to_thread(lambda: Replica(folder).wait_until_ready())
    try:
        async with Load(service.port, connections=4, pause=0.01) as load:
            await asyncio.sleep(seconds * _WARM_PART)
            warm, asked, files = service.resident_mib(), len(load.samples), _files(service)
            await asyncio.sleep(seconds * (1 - _WARM_PART))
            late, more = service.resident_mib(), _files(service) - files
    finally:
        service.kill()
    row.count(load)
    row.before, row.under = milliseconds(load.samples[:asked]), milliseconds(load.samples[asked:])
    row.expect(late - warm < _GROWTH_MIB, f"resident {warm:.0f} MiB after a quarter, {late:.0f} MiB at the end")
    row.expect(more <= 0, f"{more:+d} open files")
    return row


def _files(service: Replica) -> int:
    return len(list(Path(f"/proc/{service.process.pid}/fd").iterdir()))
