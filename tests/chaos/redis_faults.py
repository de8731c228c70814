"""Redis absent, killed, paused, slow, full, wrong, corrupted, emptied; the service under steady load meanwhile."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import redis
from tests.adapters.conftest import BINARIES, Server
from tests.chaos.load import ESTIMATE, Load, Question, mixed, until
from tests.chaos.proxies import SlowProxy
from tests.chaos.replica import Replica
from tests.chaos.report import Row

BEFORE_SECONDS = 3.0
UNDER_SECONDS = 4.0
_RECOVERY_SECONDS = 30.0
_RATE_LIMIT = 900_000
"""So that rate counts are exchanged as well."""

_BEHIND = 50
"""Questions that the second replica is behind the first. [unitless]"""

Action = Callable[[], object]
Pair = tuple[Replica, Replica]


class Echo:
    """Questions for one replica, and the same half a second later for another, which finds them in Redis."""

    def __init__(self) -> None:
        self._asked: deque[Question] = deque()

    def first(self) -> Question:
        question = mixed()
        self._asked.append(question)
        return question

    def again(self) -> Question:
        return self._asked.popleft() if len(self._asked) > _BEHIND else ESTIMATE


async def fault(
    name: str,
    services: Pair,
    broken: Action,
    mended: Action,
    *,
    state: str = "",
    errors: bool = False,
    recovery_seconds: float = _RECOVERY_SECONDS,
    under_seconds: float = UNDER_SECONDS,
) -> Row:
    """Load before, under and after a fault; what /readyz and the metrics say meanwhile."""
    row, echo = Row(name), Echo()
    first, second = services
    await until(_up_again(services), recovery_seconds)
    async with Load(first.port, echo.first) as load, Load(second.port, echo.again) as other:
        await asyncio.sleep(BEFORE_SECONDS)
        errors_before = await asyncio.to_thread(_errors, services)
        await asyncio.to_thread(broken)
        began = time.monotonic()
        await asyncio.sleep(under_seconds)
        said, counted = await asyncio.to_thread(lambda: (first.redis(), _errors(services) - errors_before))
        ended = time.monotonic()
        await asyncio.to_thread(mended)
        row.recovers(await until(_up_again(services), recovery_seconds))
        await asyncio.sleep(0.5)
    row.count(load)
    row.count(other)
    row.times([*load.samples, *other.samples], began, ended, bounded=True)
    row.expect(said == state if state else said in ("up", "down"), f"/readyz: {said}")
    if errors or counted:
        row.expect(counted > 0, f"{counted:.0f} look-ups counted as errors")
    return row


def _up_again(services: Pair) -> Callable[[], bool]:
    """Whether each has seen Redis up by now; on a busy machine a time-out of 50 ms may lose one again."""
    waiting = {service.port: service for service in services}

    def look() -> bool:
        for port, service in list(waiting.items()):
            if service.redis() == "up":
                del waiting[port]
        return not waiting

    return look


def _errors(services: Pair) -> float:
    lines = [line for service in services for line in service.get("/metrics").text.splitlines()]
    wanted = [line for line in lines if line.startswith("tonnage_cache_requests_total") and 'outcome="error"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in wanted)


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    server = Server(BINARIES[0], folder, "--maxmemory-policy", "noeviction")
    settings = {"redis_url": server.url, "rate_limit_per_minute": _RATE_LIMIT}
    services = (Replica(folder, **settings), Replica(folder, **settings))
    try:
        for service in services:
            await asyncio.to_thread(service.wait_until_ready)
        yield await _absent(services[0], server)
        yield await fault("Redis killed", services, server.kill, server.start, state="down")
        yield await fault("Redis paused (SIGSTOP)", services, server.pause, server.resume, state="down")
        client = server.client()
        full, free = (lambda: client.config_set("maxmemory", 1)), (lambda: client.config_set("maxmemory", 0))
        yield await fault("Redis out of memory", services, full, free, errors=True)
        with _meddling(server, lambda key: (client.delete(key), client.lpush(key, b"x"))) as (begin, end):
            yield await fault("values of a wrong type", services, begin, end, errors=True)
        with _meddling(server, lambda key: client.set(key, b"\xff" * 300)) as (begin, end):
            yield await fault("values corrupted", services, begin, end, errors=True)
        with _meddling(server, client.delete) as (begin, end):
            yield await fault("keys evicted all the time", services, begin, end, state="up")
    finally:
        for service in services:
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
        address = f"redis://127.0.0.1:{proxy.port}/0"
        services = (Replica(folder, redis_url=address), Replica(folder, redis_url=address))

        def delay(seconds: float) -> Action:
            return lambda: setattr(proxy, "delay", seconds)

        try:
            for service in services:
                await asyncio.to_thread(service.wait_until_ready)
            return await fault("Redis slow (0.3 s more)", services, delay(0.15), delay(0.0), state="down")
        finally:
            for service in services:
                service.kill()
            server.kill()
