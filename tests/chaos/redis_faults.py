"""Redis absent, killed, paused, slow, full, wrong, corrupted, emptied; the service under steady load meanwhile."""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import redis
from tests.adapters.conftest import BINARIES, Server
from tests.chaos.load import ESTIMATE, Load, Question, milliseconds, mixed, until
from tests.chaos.proxies import SlowProxy
from tests.chaos.replica import Replica
from tests.chaos.report import Row

BEFORE_SECONDS = 8.0
UNDER_SECONDS = 9.0
"""The two windows of a p99; of the second the first second does not count. [s]"""
_RECOVERY_SECONDS = 30.0
_RATE_LIMIT = 900_000
"""So that rate counts are exchanged as well."""

_BEHIND = 50
"""Questions that the second replica is behind the first. [unitless]"""

_SLOWER = (0.3, 0.03)
"""What is added to a reply: beyond the time-out, and within it. [s]"""
_PROCESSES = get_context("spawn")

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
        yield await _absent(services, server)
        yield await fault("Redis killed", services, server.kill, server.start, state="down")
        yield await fault("Redis paused (SIGSTOP)", services, server.pause, server.resume, state="down")
        client = server.client()
        full, free = (lambda: client.config_set("maxmemory", 1)), (lambda: client.config_set("maxmemory", 0))
        yield await fault("Redis out of memory", services, full, free, errors=True)
        for name, how, more in _SPOILT:
            with _meddling(server, how) as (begin, end):
                yield await fault(name, services, begin, end, **more)
    finally:
        for service in services:
            service.kill()
        server.kill()
    for seconds in _SLOWER:
        yield await _slow(folder, seconds)


@contextlib.contextmanager
def _meddling(server: Server, how: str) -> Iterator[tuple[Action, Action]]:
    """What spoils every key over and over from one action to the other, in a process of its own that yields to others."""
    stop = _PROCESSES.Event()
    meddler = _PROCESSES.Process(target=_meddle, args=(server.port, how, stop), daemon=True)

    def end() -> None:
        stop.set()
        meddler.join()
        server.client().flushall()

    try:
        yield meddler.start, end
    finally:
        stop.set()


def _meddle(port: int, how: str, stop: Event) -> None:
    os.nice(10)
    client, spoil = redis.Redis(port=port), _SPOILS[how]
    while not stop.wait(0.05):
        for key in client.scan_iter("tonnage:*", count=1000):
            with contextlib.suppress(redis.RedisError):  # the service deleted the key meanwhile
                spoil(client, key)


def _other_type(client: redis.Redis, key: bytes) -> None:
    client.delete(key)
    client.lpush(key, b"x")


async def _absent(services: Pair, server: Server) -> Row:
    """Here what is normal is known only afterwards."""
    row, echo = Row("Redis absent at the start"), Echo()
    first, second = services
    async with Load(first.port, echo.first) as load, Load(second.port, echo.again) as other:
        await asyncio.sleep(UNDER_SECONDS)
        said, ended = await asyncio.to_thread(first.redis), time.monotonic()
        await asyncio.to_thread(server.start)
        row.recovers(await until(_up_again(services), _RECOVERY_SECONDS))
        again = time.monotonic()
        await asyncio.sleep(BEFORE_SECONDS)
    row.count(load)
    row.count(other)
    samples = sorted([*load.samples, *other.samples])
    under = [sample for sample in samples if samples[0].at + 1 <= sample.at < ended]
    usual = [sample for sample in samples if again <= sample.at]
    row.before, row.under = f"{milliseconds(usual)} (after)", milliseconds(under)
    row.bound(usual, under)
    row.expect(said == "down", f"/readyz: {said}")
    return row


async def _slow(folder: Path, seconds: float) -> Row:
    server = Server(BINARIES[0], folder).start()
    async with SlowProxy(server.port) as proxy:
        address = f"redis://127.0.0.1:{proxy.port}/0"
        services = (Replica(folder, redis_url=address), Replica(folder, redis_url=address))

        def delay(seconds: float) -> Action:
            return lambda: setattr(proxy, "delay", seconds)

        try:
            for service in services:
                await asyncio.to_thread(service.wait_until_ready)
            name = f"Redis slow ({seconds * 1000:.0f} ms more)"
            return await fault(name, services, delay(seconds / 2), delay(0.0), state="down" if seconds > 0.05 else "")
        finally:
            for service in services:
                service.kill()
            server.kill()


_SPOILS: dict[str, Callable[[redis.Redis, bytes], object]] = {
    "other type": _other_type,
    "garbage": lambda client, key: client.set(key, b"\xff" * 300),
    "gone": lambda client, key: client.delete(key),
}
_SPOILT: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("values of a wrong type", "other type", {"errors": True}),
    ("values corrupted", "garbage", {"errors": True}),
    ("keys evicted all the time", "gone", {"state": "up"}),
)
