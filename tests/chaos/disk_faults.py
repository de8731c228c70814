"""A disk without room while a published overlay is taken over: the old catalogue answers, the new one follows."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tests.adapters.conftest import BINARIES, Server
from tests.chaos.load import Load, until
from tests.chaos.process_faults import GPU
from tests.chaos.replica import Replica
from tests.chaos.report import Row

from tonnage.adapters.shared_catalog import publish


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    row = Row("no room on the disk for a published overlay")
    with _small_disk(folder) as disk:
        if disk is None:
            row.seen.append("not run: no file system can be mounted here")
            yield row
            return
        server = Server(BINARIES[0], folder).start()
        settings = {"redis_url": server.url, "catalog_poll_seconds": 0.3}
        service = Replica(folder, environment={"TMPDIR": str(disk)}, **settings)
        try:
            await asyncio.to_thread(service.wait_until_ready)
            yield await _full(row, disk, server, service)
        finally:
            service.kill()
            server.kill()


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


async def _full(row: Row, disk: Path, server: Server, service: Replica) -> Row:
    def name() -> str:
        return str(service.get("/catalog/gpus/chaos-gpu").json().get("name"))

    async with Load(service.port, connections=8) as load:
        await _publish(server, GPU.format(name="first"))
        await until(lambda: name() == "first", 15)
        await load.window()
        with contextlib.suppress(OSError), (disk / "filler").open("wb") as filler:
            while True:
                filler.write(b"\0" * 65_536)
                filler.flush()
        began = time.monotonic()
        await _publish(server, GPU.format(name="published"))
        counted = await until(lambda: service.metric("tonnage_catalog_reload_errors") >= 1, 10)
        row.expect(counted is not None, "error metric")
        row.expect(await asyncio.to_thread(name) == "first", "old catalogue answers")
        await asyncio.sleep(1)
        await load.window()
        ended = time.monotonic()
        (disk / "filler").unlink()
        row.recovers(await until(lambda: name() == "published", 15))
    row.count(load)
    row.times(load.samples, began, ended, bounded=True)
    return row


async def _publish(server: Server, text: str) -> None:
    import redis.asyncio

    client = redis.asyncio.Redis(port=server.port)
    await publish(client, {"gpus.toml": text.encode() + b"#" * 200_000})
    await client.aclose()
