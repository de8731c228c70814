"""Callers that are slow, hostile or too many."""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.chaos.load import ESTIMATE, FIT, LOST, REFUSED, Load, milliseconds
from tests.chaos.replica import Replica
from tests.chaos.report import Row

_SLOW = 100
_CAP = 8
_HEAD = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
_BOTH_LENGTHS = (
    b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)
_STALLED = b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    limits = {"header_timeout_seconds": 2, "deadline_seconds": 3}
    service = await asyncio.to_thread(lambda: Replica(folder, **limits).wait_until_ready())
    try:
        yield await _held(service, f"{_SLOW} callers with half a head", _HEAD, b"", 8)
        yield await _held(service, f"{_SLOW} callers with a stalled body", _STALLED, b"408", 8)
        yield await _held(service, f"{_SLOW} heads of 100 kB", _HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n", b"431", 5)
        yield await _held(service, f"{_SLOW} x Content-Length + Transfer-Encoding", _BOTH_LENGTHS, b"400", 5)
    finally:
        service.kill()
    service = await asyncio.to_thread(lambda: Replica(folder, max_in_flight=_CAP).wait_until_ready())
    try:
        yield await _overload(service)
    finally:
        service.kill()


async def _held(service: Replica, name: str, sent: bytes, status: bytes, seconds: float) -> Row:
    """
    Others are served while wave after wave of connections stalls; each is answered or closed in time.

    The strangers are a process of their own: what they take of this one's time would be measured as the service's.
    """
    row, ends, times = Row(name), [], []
    loop = asyncio.get_running_loop()

    async def one_wave() -> None:
        wave = time.monotonic()
        ends.extend(await loop.run_in_executor(strangers, _wave, service.port, sent, seconds))
        times.append(time.monotonic() - wave)

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as strangers:
        await loop.run_in_executor(strangers, time.monotonic)
        async with Load(service.port, lambda: ESTIMATE, connections=8) as load:
            await load.window()
            began = time.monotonic()
            await asyncio.gather(asyncio.sleep(1), one_wave())
            enough = asyncio.create_task(load.window())
            while not enough.done():
                await one_wave()
            ended = time.monotonic()
    row.count(load)
    row.times(load.samples, began, ended, bounded=True)
    expected = [end for end in ends if end is not None and (end[9:12] == status or (status == b"431" and end == b""))]
    answer = f"{status.decode()} and closed" if status else "closed without an answer"
    row.expect(len(expected) == len(ends), f"{len(expected)} of {len(ends)} {answer} within {max(times):.1f} s")
    return row


def _wave(port: int, sent: bytes, seconds: float) -> list[bytes | None]:
    """What connections get that begin one after the other within a second."""

    async def all_of_them() -> list[bytes | None]:
        return await asyncio.gather(*(_stalls(port, sent, seconds, number / _SLOW) for number in range(_SLOW)))

    return asyncio.run(all_of_them())


async def _stalls(port: int, sent: bytes, seconds: float, begins: float) -> bytes | None:
    """What a connection that begins after a while gets before it is closed; None when it stays open."""
    received = b""
    await asyncio.sleep(begins)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(sent)
                while part := await reader.read(65_536):
                    received += part
            finally:
                writer.close()
    except TimeoutError:
        return None
    except OSError:
        return received
    return received


async def _overload(service: Replica) -> Row:
    row = Row(f"overload: {10 * _CAP} callers of /fit where {_CAP} are allowed")
    async with Load(service.port, lambda: FIT, connections=_CAP, pause=0.0) as usual:
        await asyncio.sleep(4)
    row.before = milliseconds(usual.samples)
    async with Load(service.port, lambda: FIT, connections=10 * _CAP, pause=0.0) as load:
        await asyncio.sleep(6)
    row.count(usual)
    row.count(load, (200, 503))
    row.under = milliseconds(load.samples)
    refused = [sample for sample in load.samples if sample.status == 503]
    served = sum(sample.status == 200 for sample in load.samples)
    row.expect(
        refused and all("retry-after" in sample.headers for sample in refused),
        f"{len(refused):,} x 503 with Retry-After",
    )
    row.expect(served > 0, f"{served:,} served")
    row.expect(not any(sample.status in (LOST, REFUSED) for sample in load.samples), "no connection lost")
    return row
