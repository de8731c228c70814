"""Redis absent, killed, paused, slow, full, wrong, corrupted, emptied; the service under steady load meanwhile."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import redis
from tests.adapters.conftest import BINARIES, Server
from tests.chaos.load import Load, until
from tests.chaos.proxies import SlowProxy
from tests.chaos.replica import Replica
from tests.chaos.report import Row

BEFORE_SECONDS = 3.0
UNDER_SECONDS = 4.0
_RECOVERY_SECONDS = 10.0
_RATE_LIMIT = 900_000
"""So that rate counts are exchanged as well."""

Action = Callable[[], object]


async def fault(
    name: str, service: Replica, broken: Action, mended: Action, *, state: str | None, errors: bool = False
) -> Row:
    """Load before, under and after a fault; what /readyz and the metrics say meanwhile."""
    row = Row(name)
    await until(lambda: service.redis() == "up", _RECOVERY_SECONDS)
    errors_before = _errors(service)
    async with Load(service.port) as load:
        await asyncio.sleep(BEFORE_SECONDS)
        await asyncio.to_thread(broken)
        began = time.monotonic()
        await asyncio.sleep(UNDER_SECONDS)
        said = await asyncio.to_thread(service.redis)
        ended = time.monotonic()
        counted = _errors(service) - errors_before
        await asyncio.to_thread(mended)
        row.recovers(await until(lambda: service.redis() == "up", _RECOVERY_SECONDS))
        await asyncio.sleep(0.5)
    row.count(load)
    row.times(load.samples, began, ended)
    if state is not None:
        row.expect(said == state, f"/readyz: {said}")
    if errors:
        row.expect(counted > 0, f"{counted:.0f} look-ups counted as errors")
    return row


def _errors(service: Replica) -> float:
    found = service.get("/metrics").text.splitlines()
    return sum(
        float(x.rpartition(" ")[2]) for x in found if 'outcome="error"' in x and x.startswith("tonnage_cache_requests")
    )


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    server = Server(BINARIES[0], folder, "--maxmemory-policy", "noeviction")
    service = Replica(folder, redis_url=server.url, rate_limit_per_minute=_RATE_LIMIT).wait_until_ready()
    try:
        yield await _absent(service, server)
        yield await fault("Redis killed", service, server.kill, server.start, state="down")
        yield await fault("Redis paused (SIGSTOP)", service, server.pause, server.resume, state="down")
        client = server.client()
        yield await fault(
            "Redis out of memory", service, lambda: client.config_set("maxmemory", 1),
            lambda: client.config_set("maxmemory", 0), state=None,
        )  # fmt: skip
        with _meddling(server, lambda key: (client.delete(key), client.lpush(key, b"x"))) as (begin, end):
            yield await fault("values of a wrong type", service, begin, end, state=None)
        with _meddling(server, lambda key: client.set(key, b"\xff" * 300)) as (begin, end):
            yield await fault("values corrupted", service, begin, end, state=None)
        with _meddling(server, lambda key: client.flushall()) as (begin, end):
            yield await fault("keys evicted all the time", service, begin, end, state="up")
    finally:
        service.kill()
        server.kill()
    yield await _slow(folder)


@contextlib.contextmanager
def _meddling(server: Server, spoil: Callable[[bytes], object]) -> Iterator[tuple[Action, Action]]:
    """What spoils every key over and over, in a thread, from one action to the other."""
    stop = threading.Event()

    def meddle() -> None:
        client = server.client()
        while not stop.wait(0.05):
            for key in client.scan_iter("tonnage:*", count=1000):
                with contextlib.suppress(redis.RedisError):
                    spoil(key)

    thread = threading.Thread(target=meddle)

    def end() -> None:
        stop.set()
        thread.join()
        server.client().flushall()

    try:
        yield thread.start, end
    finally:
        stop.set()


async def _absent(service: Replica, server: Server) -> Row:
    row = Row("Redis absent at the start")
    async with Load(service.port) as load:
        await asyncio.sleep(BEFORE_SECONDS)
        said, ended = await asyncio.to_thread(service.redis), time.monotonic()
        await asyncio.to_thread(server.start)
        row.recovers(await until(lambda: service.redis() == "up", _RECOVERY_SECONDS))
        await asyncio.sleep(BEFORE_SECONDS)
    row.count(load)
    row.times(load.samples, 0.0, ended)
    row.expect(said == "down", f"/readyz: {said}")
    return row


async def _slow(folder: Path) -> Row:
    server = Server(BINARIES[0], folder).start()
    async with SlowProxy(server.port) as proxy:
        service = await asyncio.to_thread(
            lambda: Replica(folder, redis_url=f"redis://127.0.0.1:{proxy.port}/0").wait_until_ready()
        )

        def delay(seconds: float) -> Action:
            return lambda: setattr(proxy, "delay", seconds)

        try:
            return await fault("Redis slow (0.3 s more)", service, delay(0.15), delay(0.0), state="down")
        finally:
            service.kill()
            server.kill()
