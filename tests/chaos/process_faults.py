"""Signals, rolling restarts and catalogues that change under load."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.chaos.load import ESTIMATE, REFUSED, Load, until
from tests.chaos.proxies import RoundRobin
from tests.chaos.replica import Replica
from tests.chaos.report import Row
from tests.waiting import free_port

_DRAIN_SECONDS = 1.5
_HALF = b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 37\r\n\r\n"
_REST = b'{"model": {"parameters": 7000000000}}'
GPU = """
[[gpu]]
id = "chaos-gpu"
name = "{name}"
vendor = "nvidia"
memory_nominal_bytes = 1000000000
memory_usable_bytes = 900000000
source = "test"
"""


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    yield await _terminated(folder)
    yield await _rolling(folder)
    yield await _overlay(folder)


async def _terminated(folder: Path) -> Row:
    """Bodies half sent when the signal comes are answered; callers that follow `Connection: close` lose nothing."""
    row = Row("SIGTERM under load")
    service = await asyncio.to_thread(lambda: Replica(folder, drain_seconds=_DRAIN_SECONDS).wait_until_ready())
    try:
        async with Load(service.port, lambda: ESTIMATE, connections=8, pause=0.02) as load:
            await asyncio.sleep(2)
            half = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(10)]
            for _, writer in half:
                writer.write(_HALF + _REST[:9])
            await asyncio.sleep(0.3)
            service.terminate()
            began = time.monotonic()
            await asyncio.sleep(_DRAIN_SECONDS + 0.7)
            for _, writer in half:
                writer.write(_REST[9:])
            finished = [(await reader.read(12)).endswith(b"200") for reader, _ in half]
            status = await asyncio.to_thread(service.exit_status, 10)
            gone = time.monotonic() - began
            await asyncio.sleep(0.3)
        row.count(load, (200, REFUSED))
        row.times(load.samples, began, began + gone)
        row.expect(all(finished), f"{sum(finished)} of 10 half-sent requests answered after the port closed")
        refused = [sample.at - began for sample in load.samples if sample.status == REFUSED]
        row.expect(
            refused, f"new connections refused from {min(refused, default=0):.1f} s on (drain {_DRAIN_SECONDS} s)"
        )
        row.expect(status == 0, f"exit {status} after {gone:.1f} s")
    finally:
        service.kill()
    return row


async def _rolling(folder: Path) -> Row:
    """Three replicas behind a proxy, each told to stop and replaced in turn."""
    row = Row("rolling restart of three replicas")
    ports = [free_port() for _ in range(3)]

    def start(port: int) -> Replica:
        return Replica(folder, port=port, drain_seconds=_DRAIN_SECONDS).wait_until_ready()

    replicas = [await asyncio.to_thread(start, port) for port in ports]
    proxy = RoundRobin()
    proxy.replicas = replicas
    try:
        async with proxy, Load(proxy.port, connections=6, pause=0.03) as load:
            await asyncio.sleep(2)
            began = time.monotonic()
            statuses = []
            for number, port in enumerate(ports):
                replicas[number].terminate()
                statuses.append(await asyncio.to_thread(replicas[number].exit_status, 15))
                replicas[number] = await asyncio.to_thread(start, port)
                await asyncio.sleep(0.5)
            ended = time.monotonic()
            await asyncio.sleep(0.5)
        row.count(load)
        row.times(load.samples, began, ended)
        row.expect(statuses == [0, 0, 0], f"exits {statuses}")
        row.seen.append(f"took {ended - began:.0f} s")
    finally:
        for replica in replicas:
            replica.kill()
    return row


async def _overlay(folder: Path) -> Row:
    """A broken overlay changes nothing but a metric and a line of log; the mended one is taken over."""
    row = Row("overlay replaced with a broken one")
    overlay = folder / "overlay"
    overlay.mkdir()
    file = overlay / "gpus.toml"
    file.write_text(GPU.format(name="first"))
    settings = {"catalog_dir": str(overlay), "catalog_poll_seconds": 0.3}
    service = await asyncio.to_thread(lambda: Replica(folder, **settings).wait_until_ready())

    def name() -> str:
        return str(service.get("/catalog/gpus/chaos-gpu").json().get("name"))

    try:
        async with Load(service.port, connections=8) as load:
            await load.window()
            began = time.monotonic()
            replaced(file, GPU.format(name="second") + "colour = 'red'\n")
            counted = await until(lambda: service.metric("tonnage_catalog_reload_errors") == 1, 10)
            await asyncio.sleep(1)
            await load.window()
            row.expect(counted is not None, "error metric")
            row.expect("colour" in service.errors.read_text(), "log names the field")
            row.expect(await asyncio.to_thread(name) == "first", "old catalogue answers")
            ended = time.monotonic()
            replaced(file, GPU.format(name="third"))
            row.recovers(await until(lambda: name() == "third", 15))
        row.count(load)
        row.times(load.samples, began, ended, bounded=True)
    finally:
        service.kill()
    return row


def replaced(file: Path, text: str) -> None:
    """As an operator does it: complete or not at all."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)
