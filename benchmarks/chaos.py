"""
The service under load while things break: what callers see, and how slow it gets.

    python benchmarks/chaos.py [--soak-minutes 10]

Prints one row per fault: requests, failures, p99 before and during, and what was looked for. Exits with 1 when a request
failed that should not have.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import re
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.adapters.conftest import BINARIES, Server  # noqa: E402
from tests.api.serving import Process, serving  # noqa: E402

WORKERS = 4
CARD = json.dumps({"model": {"parameters": 7_000_000_000}, "placement": {"gpu": "rtx-4090"}}).encode()
OVERLAY = """
[[gpu]]
id = "example-gpu"
name = "Example"
vendor = "nvidia"
memory_nominal_bytes = 1000000000
memory_usable_bytes = 900000000
source = "chaos"
"""


@dataclass
class Row:
    name: str
    looked_for: str
    requests: int = 0
    failed: int = 0
    before_ms: float = 0.0
    during_ms: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        return (
            f"{self.name:<44}{self.requests:>9}{self.failed:>8}{self.before_ms:>11.1f}{self.during_ms:>11.1f}  "
            f"{self.looked_for}{'; ' + self.note if self.note else ''}"
        )


@dataclass
class Load:
    """Callers that ask one thing after the other, each on a new connection."""

    port: int
    workers: int = WORKERS
    path: str = "/estimate"
    """What every other request asks; with /fit, every one."""
    statuses: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    times: list[tuple[float, float, int]] = field(default_factory=list)

    def _work(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            started = time.monotonic()
            try:
                status = self._ask(f"{number}-{count}" if count % 2 and self.path == "/estimate" else None)
            except (OSError, http.client.HTTPException) as error:
                self.errors[repr(error)] += 1
                continue
            self.statuses[status] += 1
            self.times.append((started, time.monotonic() - started, status))

    def _ask(self, look_up: str | None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            if look_up:
                connection.request("GET", f"/catalog/gpus?q={look_up}", headers={"Connection": "close"})
            else:
                headers = {"Content-Type": "application/json", "Connection": "close"}
                connection.request("POST", self.path, CARD, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    @contextlib.contextmanager
    def running(self) -> Iterator["Load"]:
        self._stop = threading.Event()
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(self.workers)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def p99_ms(self, since: float, until: float, status: int = 200) -> float:
        taken = sorted(seconds for at, seconds, got in self.times if since <= at < until and got == status)
        return taken[min(len(taken) - 1, len(taken) * 99 // 100)] * 1000 if taken else 0.0

    def fill(self, row: Row, since: float, until: float, allowed: tuple[int, ...] = (200,)) -> Row:
        row.requests = sum(self.statuses.values()) + sum(self.errors.values())
        row.failed = sum(self.errors.values()) + sum(n for status, n in self.statuses.items() if status not in allowed)
        row.before_ms, row.during_ms = self.p99_ms(0, since), self.p99_ms(since, until)
        return row


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("waited in vain")
        time.sleep(0.05)


def redis_is(process: Process, state: str) -> Callable[[], bool]:
    return lambda: json.loads(get(process.port, "/readyz")[1])["redis"] == state


def redis_fault(name: str, breaks: Callable[[Server], None], mends: Callable[[Server], object]) -> Row:
    """One fault of Redis under load, from `up` to `up`; the first second of the fault is looked at apart."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(BINARIES[0], Path(folder)).start()
        with serving(redis_url=server.url, redis_breaker_seconds=0.5, access_log="false") as process:
            wait_for(redis_is(process, "up"))
            with Load(process.port).running() as load:
                time.sleep(2)
                broken = time.monotonic()
                breaks(server)
                wait_for(redis_is(process, "down"))
                time.sleep(2)
                mended = time.monotonic()
                mends(server)
                wait_for(redis_is(process, "up"))
            server.kill()
            row = load.fill(Row(name, "p99 after the first second within 2 x"), broken + 1, mended)
            row.note = f"first second {load.p99_ms(broken, broken + 1):.1f} ms"
            return row


def rolling_restart() -> Row:
    """Three replicas behind a proxy, each told to stop and replaced in turn."""
    settings = {"drain_seconds": 1, "access_log": "false"}
    with contextlib.ExitStack() as stack:
        replicas = [stack.enter_context(serving(**settings)) for _ in range(3)]
        proxy = Proxy([replica.port for replica in replicas])
        stack.enter_context(proxy.running())
        with Load(proxy.port).running() as load:
            time.sleep(2)
            began = time.monotonic()
            for number, replica in enumerate(replicas):
                replica.terminate()
                replica.process.wait(20)
                proxy.ports[number] = stack.enter_context(serving(**settings)).port
                time.sleep(0.5)
            ended = time.monotonic()
        return load.fill(Row("three replicas restarted in turn", "no failure"), began, ended)


class Proxy:
    """Round robin over the replicas that say they are ready."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.ready: list[int] = list(ports)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_until_complete, args=(self._serve(),), daemon=True)
        thread.start()
        wait_for(self._listening)
        yield
        loop.call_soon_threadsafe(self._stopped.set)
        thread.join(10)

    def _listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        watcher = asyncio.create_task(self._watch())
        async with await asyncio.start_server(self._pass_on, "127.0.0.1", self.port):
            await self._stopped.wait()
        watcher.cancel()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self.ready = [port for port in self.ports if await asyncio.to_thread(self._is_ready, port)]
            await asyncio.sleep(0.1)

    def _is_ready(self, port: int) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(port, "/readyz")[0] == 200
        return False

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports, self.ready = self.ready, self.ready[1:] + self.ready[:1]
        with contextlib.suppress(OSError, IndexError):
            there, back = await asyncio.open_connection("127.0.0.1", ports[0])
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        with contextlib.suppress(OSError):
            writer.write_eof()


def overload() -> Row:
    """Ten times the callers that the cap lets in, all with the question that takes longest."""
    with serving(max_in_flight=4, access_log="false") as process:
        with Load(process.port, workers=4, path="/fit").running() as load:
            time.sleep(4)
        calm = load.p99_ms(0, time.monotonic())
        with Load(process.port, workers=40, path="/fit").running() as load:
            time.sleep(6)
        row = load.fill(Row("ten times too many callers", "excess is 503"), 0, time.monotonic(), allowed=(200, 503))
        row.before_ms, row.note = calm, f"{load.statuses[200]} served, {load.statuses[503]} refused"
        return row


def broken_overlay() -> Row:
    """An overlay that breaks and mends under load."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gpus.toml"
        with serving(catalog_dir=folder, catalog_poll_seconds=0.2, access_log="false") as process:
            with Load(process.port).running() as load:
                time.sleep(2)
                began = time.monotonic()
                file.write_text(OVERLAY)
                wait_for(lambda: get(process.port, "/catalog/gpus/example-gpu")[0] == 200)
                file.write_text("nonsense")
                wait_for(lambda: "tonnage_catalog_reload_errors_total 1.0" in get(process.port, "/metrics")[1])
                kept = get(process.port, "/catalog/gpus/example-gpu")[0] == 200
                ended = time.monotonic()
            row = load.fill(Row("overlay replaced, then broken", "the old catalogue stays"), began, ended)
            row.failed += not kept
            return row


def stopped_under_load() -> Row:
    """SIGTERM: whoever was let in is answered, and the process ends by itself."""
    with serving(drain_seconds=1, access_log="false") as process:
        proxy = Proxy([process.port])
        with proxy.running(), Load(process.port).running() as load:
            time.sleep(2)
            began = time.monotonic()
            process.terminate()
            time.sleep(0.8)
        status = process.process.wait(20)
        row = load.fill(Row("SIGTERM under load", "all answered, exit 0"), began, time.monotonic())
        row.failed += status != 0
        return row


def soak(minutes: float) -> Row:
    """Memory after a minute and at the end."""
    with serving(access_log="false") as process, Load(process.port).running() as load:
        time.sleep(min(60.0, minutes * 30))
        first = rss_mib(process)
        began = time.monotonic()
        time.sleep(max(0.0, minutes * 60 - 60))
        last = rss_mib(process)
        row = load.fill(Row(f"{minutes:g} minutes of load", "memory stays flat"), began, time.monotonic())
        row.note = f"{first:.0f} MiB, then {last:.0f} MiB"
        row.failed += last > first * 1.1 + 5
        return row


def rss_mib(process: Process) -> float:
    text = Path(f"/proc/{process.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--soak-minutes", type=float, default=10)
    chosen = parser.parse_args()
    faults: list[Callable[[], Row]] = [
        lambda: redis_fault("Redis killed and restarted", Server.kill, Server.start),
        lambda: redis_fault("Redis paused and resumed", Server.pause, Server.resume),
        broken_overlay,
        overload,
        stopped_under_load,
        rolling_restart,
        lambda: soak(chosen.soak_minutes),
    ]
    print(f"{'fault':<44}{'requests':>9}{'failed':>8}{'p99 before':>11}{'during':>11}  looked for", flush=True)
    rows = []
    for fault in faults:
        rows.append(fault())
        print(rows[-1], flush=True)
    return 1 if any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
