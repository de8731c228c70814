"""
What a request costs, beside the least that others need for the same bytes.

All servers run at once, one process each, and are asked in turn, so that a busy machine disturbs them alike; trust the
ratios and the CPU per request (utime + stime of the server over answered requests), not requests per second. A batch of
lines is one request over one connection, sent while it is answered: lines per second and core follow from its CPU.

    python benchmarks/speed.py [--seconds 2] [--rounds 3] [--lines 10000] [--only REGEX] [--json FILE]

Needs `fastapi` for its row; without it the row says so.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402
from benchmarks import streams  # noqa: E402
from benchmarks.servers.question import SERVING_BODY, TRAINING_BODY  # noqa: E402

from tonnage.spec.card import SizingCard  # noqa: E402

CONNECTIONS = 16
TICKS = os.sysconf("SC_CLK_TCK")
UVICORN = [
    sys.executable,
    "-m",
    "uvicorn",
    "--loop",
    "uvloop",
    "--http",
    "httptools",
    "--no-access-log",
    "--log-level",
    "error",
]
TONNAGE = [sys.executable, "-c", "from tonnage.cli import main; main(['serve'])"]
SERVERS = {
    "raw ASGI + msgspec": [*UVICORN, "benchmarks.servers.raw_asgi:app"],
    "bare Litestar": [*UVICORN, "benchmarks.servers.bare_litestar:app"],
    "FastAPI + pydantic": [*UVICORN, "benchmarks.servers.fastapi_echo:app"],
    "around": [sys.executable, "-m", "benchmarks.servers.around"],
    "tonnage": TONNAGE,
}
FIT_ONE = b'{"model":{"parameters":7000000000},"reserve":"6 GiB","offer":{"gpus":["rtx-4090"],"max_gpus":1},"limit":5}'
FIT_ALL = b'{"model":{"parameters":7000000000},"reserve":"6 GiB","requirements":{"duration":"3 days"}}'


def post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: bench", *headers, "", ""]).encode()


@dataclass
class Scenario:
    name: str
    server: str
    request: bytes
    cpu_us: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    size: int = 0

    @property
    def cost(self) -> float:
        return statistics.median(self.cpu_us)


def scenarios(etag: str) -> list[Scenario]:
    page = "/catalog/gpus/h100-sxm"
    return [
        Scenario("raw ASGI + msgspec echo", "raw ASGI + msgspec", post("/estimate", SERVING_BODY)),
        Scenario("bare Litestar echo, by hand", "bare Litestar", post("/estimate", SERVING_BODY)),
        Scenario("FastAPI + pydantic echo", "FastAPI + pydantic", post("/estimate", SERVING_BODY)),
        Scenario("around the estimate", "around", post("/estimate", SERVING_BODY)),
        Scenario("/estimate serving", "tonnage", post("/estimate", SERVING_BODY)),
        Scenario("/estimate training", "tonnage", post("/estimate", TRAINING_BODY)),
        Scenario("/fit one GPU", "tonnage", post("/fit", FIT_ONE)),
        Scenario("/fit whole catalogue", "tonnage", post("/fit", FIT_ALL)),
        Scenario("bare Litestar GET", "bare Litestar", get(page)),
        Scenario("/catalog hit", "tonnage", get(page)),
        Scenario("/catalog 304", "tonnage", get(page, f"If-None-Match: {etag}")),
    ]


class Process:
    """One server on a port of its own."""

    def __init__(self, name: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = SERVERS[name]
        if command[:3] == UVICORN[:3]:
            command = [*command, "--port", str(self.port)]
        environment = {**os.environ, "TONNAGE_PORT": str(self.port), "PYTHONPATH": os.pathsep.join(sys.path)}
        started = time.perf_counter()
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.cold_start = self._wait(started)

    def _wait(self, started: float) -> float:
        while time.perf_counter() - started < 60:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args} ended")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
                    probe.sendall(get("/healthz", "Connection: close"))
                    if probe.recv(100):
                        return time.perf_counter() - started
            except OSError:
                time.sleep(0.01)
        raise RuntimeError("not ready")

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mib(self) -> float:
        line = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(line[1]) / 1024 if line else 0.0

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Client(asyncio.Protocol):
    """One connection: the next request follows the answer."""

    def __init__(self, request: bytes, latencies: list[float], until: float) -> None:
        self.request, self.latencies, self.until = request, latencies, until
        self.buffer = bytearray()
        self.done = asyncio.get_running_loop().create_future()
        self.failed: bytes | None = None
        self.size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._next()

    def _next(self) -> None:
        self.sent = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = re.search(rb"content-length: (\d+)", self.buffer[:end], re.IGNORECASE)
        self.size = end + 4 + (int(length[1]) if length else 0)
        if len(self.buffer) < self.size:
            return
        if self.buffer[9:12] not in (b"200", b"304"):
            self.failed = bytes(self.buffer[: end + 200])
        self.buffer.clear()
        now = time.perf_counter()
        self.latencies.append(now - self.sent)
        if now < self.until and self.failed is None:
            self._next()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(error)


async def load(port: int, request: bytes, seconds: float) -> tuple[list[float], int]:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    until = time.perf_counter() + seconds
    make = lambda: Client(request, latencies, until)  # noqa: E731
    pairs = [await loop.create_connection(make, "127.0.0.1", port) for _ in range(CONNECTIONS)]
    await asyncio.gather(*(client.done for _, client in pairs))
    failed = [client.failed for _, client in pairs if client.failed]
    if failed:
        raise RuntimeError(failed[0].decode(errors="replace"))
    return latencies, pairs[0][1].size


def measure(scenario: Scenario, process: Process, seconds: float) -> None:
    before, started = process.cpu(), time.perf_counter()
    latencies, scenario.size = asyncio.run(load(process.port, scenario.request, seconds))
    spent, elapsed = process.cpu() - before, time.perf_counter() - started
    scenario.cpu_us.append(spent / len(latencies) * 1e6)
    scenario.rate.append(len(latencies) / elapsed)
    scenario.latencies += latencies


FIELDS = "required,headroom,verdict,reasons,kv_cache"
"""What a scheduler decides by."""
BATCHES = {
    "a few fields, same lines again": (f"/estimate?fields={FIELDS}", False),
    "a few fields, new numbers": (f"/estimate?fields={FIELDS}", True),
    "whole answers, new numbers": ("/estimate", True),
}


def lines_of(cards: Iterator[SizingCard], count: int) -> bytes:
    wire = msgspec.json.Encoder().encode
    return b"".join(wire(_stated(card)) + b"\n" for card in islice(cards, count))


def _stated(value: Any) -> Any:
    """As a caller writes a card: nothing that is left to its default."""
    plain = msgspec.to_builtins(value)
    return _without_none(plain)


def _without_none(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_none(part) for name, part in value.items() if part not in (None, {}, [])}


def batch(process: Process, path: str, body: bytes) -> tuple[float, int]:
    """CPU of the server for one batch, and lines answered. [s, lines]"""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n"
    before = process.cpu()
    with socket.create_connection(("127.0.0.1", process.port), timeout=600) as connection:
        sender = threading.Thread(
            target=connection.sendall, args=(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body,)
        )
        sender.start()
        answered = problems = 0
        tail = b""
        while part := connection.recv(1 << 20):
            answered += (tail[-1:] + part).count(b"\n{")  # a line begins, behind the length of a chunk or another line
            problems += (tail + part).count(b'"title":')
            tail = part[-7:]
        sender.join()
    if problems:
        raise RuntimeError(f"{problems} lines were refused")
    return process.cpu() - before, answered


def batches(process: Process, rounds: int, lines: int) -> str:
    """A table of what a line of a batch costs."""
    cards = streams.scheduler()
    batch(process, "/estimate?fields=verdict", lines_of(cards, lines))  # the jobs are known from here on
    spent: dict[str, list[float]] = {name: [] for name in BATCHES}
    for _ in range(rounds):
        for name, (path, fresh) in BATCHES.items():
            body = lines_of(cards if fresh else streams.serving("vllm", jobs=streams.JOBS), lines if fresh else 500)
            if not fresh:
                batch(process, path, body)
                body *= max(1, lines // 500)
            seconds, answered = batch(process, path, body)
            spent[name].append(seconds / answered)
    found = [f"{'batch of lines':<34}{'CPU us per line':>16}{'lines/s and core (>= 10,000)':>32}"]
    return "\n".join(found + [f"{n:<34}{min(s) * 1e6:>16.1f}{1 / min(s):>32,.0f}" for n, s in spent.items()])


def etag_of(process: Process) -> str:
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(get("/catalog/gpus/h100-sxm", "Connection: close"))
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    found = re.search(rb"etag: (\S+)", answer)
    assert found is not None
    return found[1].decode()


def table(measured: list[Scenario], processes: dict[str, Process]) -> str:
    lines = [f"{'scenario':<30}{'bytes out':>10}{'CPU us':>9}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}"]
    for scenario in measured:
        ordered = sorted(scenario.latencies)
        p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        lines.append(
            f"{scenario.name:<30}{scenario.size:>10}{scenario.cost:>9.1f}{statistics.median(scenario.rate):>9.0f}"
            f"{p50 * 1000:>9.2f}{p99 * 1000:>9.2f}"
        )
    lines += ["", f"{'server':<30}{'RSS MiB':>10}{'cold start s':>14}"]
    lines += [f"{name:<30}{process.rss_mib():>10.0f}{process.cold_start:>14.2f}" for name, process in processes.items()]
    return "\n".join(lines)


def ratios(measured: list[Scenario]) -> dict[str, float]:
    cost = {scenario.name: scenario.cost for scenario in measured}
    echo, small = cost["bare Litestar echo, by hand"], cost["bare Litestar GET"]
    found = {
        "around the estimate / bare Litestar echo (<= 1.5)": cost["around the estimate"] / echo,
        "/catalog 304 / bare Litestar GET (<= 1.2)": cost["/catalog 304"] / small,
        "/catalog hit / bare Litestar GET": cost["/catalog hit"] / small,
        "around the estimate / raw ASGI": cost["around the estimate"] / cost["raw ASGI + msgspec echo"],
    }
    if "FastAPI + pydantic echo" in cost:
        estimate = cost["/estimate serving"] - cost["around the estimate"]
        allowed = cost["FastAPI + pydantic echo"] + max(0.0, estimate)
        found["/estimate serving / (FastAPI echo + the estimate) (<= 1.0)"] = cost["/estimate serving"] / allowed
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    names = [name for name in SERVERS if name != "FastAPI + pydantic" or importlib.util.find_spec("fastapi")]
    processes = {name: Process(name) for name in names}
    try:
        wanted = [
            s
            for s in scenarios(etag_of(processes["tonnage"]))
            if s.server in processes and re.search(chosen.only, s.name)
        ]
        for _ in range(chosen.rounds):
            for scenario in wanted:
                measure(scenario, processes[scenario.server], chosen.seconds)
        if wanted:
            print(table(wanted, processes))
        if re.search(chosen.only, "batch"):
            print("\n" + batches(processes["tonnage"], chosen.rounds, chosen.lines))
    finally:
        for process in processes.values():
            process.stop()
    if "FastAPI + pydantic" not in names:
        print("\nFastAPI + pydantic: not run, fastapi is not installed")
    if not chosen.only:
        found = ratios(wanted)
        print("\n" + "\n".join(f"{value:6.2f}  {name}" for name, value in found.items()))
        if chosen.json:
            chosen.json.write_text(
                json.dumps({"ratios": found, "cpu_us": {s.name: s.cost for s in wanted}}, indent=1) + "\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
