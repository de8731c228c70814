"""A real server process on a free port."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.waiting import SECONDS, free_port

_ASKING = httpx.Client(verify=False, timeout=SECONDS, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: reading certificates anew for each question is most of what one costs here."""


class Process:
    """`tonnage serve` with its address."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.process = process

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(SECONDS)
        return connection

    def get(self, path: str, **more: Any) -> httpx.Response:
        return _ASKING.get(self.url + path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return _ASKING.post(self.url + path, **more)

    def metric(self, start: str) -> float:
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_status(self) -> int:
        return self.process.wait(SECONDS)


@contextmanager
def serving(log: Path | None = None, **settings: object) -> Iterator[Process]:
    """One whose requests may take as long as the machine needs, unless a test says otherwise."""
    settings = {"deadline_seconds": 600, **settings}
    port = free_port()
    environment = {
        **os.environ,
        **{f"TONNAGE_{name.upper()}": str(value) for name, value in settings.items()},
        "TONNAGE_PORT": str(port),
    }
    command = [sys.executable, "-c", "from tonnage.cli import main; main(['serve'])"]
    out = log.open("wb") if log else subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(port, process)
        yield Process(port, process)
    finally:
        process.kill()
        process.wait()


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 2 * SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            if _ASKING.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise RuntimeError("the server is not ready in time")


def until_closed(connection: socket.socket) -> bytes:
    """What still comes until the other side hangs up."""
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


def until_it_ends_with(connection: socket.socket, end: bytes) -> bytes:
    """What comes until it ends so."""
    received = b""
    while not received.endswith(end):
        part = connection.recv(65_536)
        assert part, received
        received += part
    return received


def begun(process: Process, head: bytes) -> socket.socket:
    """A request whose head says `Expect: 100-continue`, once the service waits for its body."""
    connection = process.connect()
    connection.sendall(head)
    until_it_ends_with(connection, b"HTTP/1.1 100 Continue\r\n\r\n")
    return connection
