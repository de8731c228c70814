"""
The wall clock jumps an hour ahead and two hours back, under load.

`time.time` of the service reads an offset from a file; the monotonic clock, which the event loop goes by, runs on as it
does when a machine's clock is set.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from tests.adapters.conftest import BINARIES, Server
from tests.chaos.load import Load, until
from tests.chaos.process_faults import GPU, replaced
from tests.chaos.replica import Replica
from tests.chaos.report import Row

_JUMPING = """
import time
true = time.time
def jumping():
    with open({clock!r}) as offset:
        return true() + float(offset.read())
time.time = jumping
"""
_LIMIT = 20
_WINDOW_SECONDS = 60
_JUMPS = ("+3600", "-3600")
"""From the true time; the second is two hours back from the first. [s]"""


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    clock, overlay = folder / "clock", folder / "overlay-of-clocks"
    _set(clock, "+0")
    overlay.mkdir()
    (overlay / "gpus.toml").write_text(GPU.format(name="first"))
    before = _JUMPING.format(clock=str(clock))
    server = Server(BINARIES[0], folder).start()
    settings: dict[str, object] = {"redis_url": server.url, "catalog_dir": overlay, "catalog_poll_seconds": 0.3}
    usual = Replica(folder, before=before, rate_limit_per_minute=900_000, **settings)
    settings["redis_url"] = server.url.removesuffix("0") + "1"  # its counts apart
    limited = Replica(folder, before=before, rate_limit_per_minute=_LIMIT, **settings)
    try:
        for service in (usual, limited):
            await asyncio.to_thread(service.wait_until_ready)
        for jump in _JUMPS:
            yield await _jumped(clock, jump, overlay / "gpus.toml", usual, limited)
    finally:
        usual.kill()
        limited.kill()
        server.kill()


def _set(clock: Path, offset: str) -> None:
    new = clock.with_suffix(".new")
    new.write_text(offset)
    new.replace(clock)


async def _jumped(clock: Path, jump: str, overlay: Path, usual: Replica, limited: Replica) -> Row:
    row = Row(f"the wall clock jumps to {jump} s")

    def name() -> str:
        return str(usual.get("/catalog/gpus/chaos-gpu").json().get("name"))

    async with Load(usual.port, connections=8) as load:
        await load.window()
        exhausted = await asyncio.to_thread(_exhaust, limited)
        row.expect(exhausted.status_code == 429, "limit reached")
        began = time.monotonic()
        await asyncio.to_thread(_set, clock, jump)
        await asyncio.sleep(1.5)
        statuses = await asyncio.to_thread(lambda: [_asked(limited).status_code for _ in range(3)])
        row.expect(statuses == [200] * 3, f"limit lifted by the jump: {statuses}")
        refused = await asyncio.to_thread(_exhaust, limited)
        wait = int(refused.headers.get("retry-after", 10**6))
        row.expect(
            refused.status_code == 429 and wait <= 2 * _WINDOW_SECONDS, f"limit holds again (Retry-After {wait} s)"
        )
        ages = await asyncio.to_thread(lambda: usual.metric("tonnage_catalog_age_seconds"))
        row.expect(0 <= ages < 10, f"catalogue {ages:.1f} s old")
        replaced(overlay, GPU.format(name=f"after {jump}"))
        row.recovers(await until(lambda: name() == f"after {jump}", 15))
        await load.window()
        ended = time.monotonic()
        row.expect(await until(lambda: usual.redis() == "up", 10) is not None, "Redis up")
    row.count(load)
    row.times(load.samples, began, ended, bounded=True)
    return row


def _asked(service: Replica) -> httpx.Response:
    return service.get("/estimate?parameters=1000000")


def _exhaust(service: Replica) -> httpx.Response:
    """Ask until the limit is reached."""
    for _ in range(2 * _LIMIT):
        answer = _asked(service)
        if answer.status_code != 200:
            break
    return answer
