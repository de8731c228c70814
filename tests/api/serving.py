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

import httpx


class Process:
    """`tonnage serve` with its address."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.process = process

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(20)
        return connection

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def serving(log: Path | None = None, **settings: object) -> Iterator[Process]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise RuntimeError("the server is not ready in time")


def until_closed(connection: socket.socket) -> tuple[bytes, float]:
    """What still comes, and how long it takes until the other side hangs up."""
    started, received = time.monotonic(), b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received, time.monotonic() - started
