"""Real processes: the service, with its log in a file, and what a script can ask it."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.waiting import free_port

_PROGRAM = "from tonnage.cli import main; main(['serve'])"
_START_SECONDS = 40.0
_ASKING = httpx.Client(verify=False, timeout=10, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: reading certificates anew for each question takes the load generator's own time."""


class Replica:
    """One `tonnage serve`."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        stdout: Any = None,
        environment: Mapping[str, str] = {},
        before: str = "",
        **settings: object,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.errors = folder / f"{self.port}.err"
        named = {f"TONNAGE_{name.upper()}": str(value) for name, value in settings.items()}
        complete = os.environ | named | {"TONNAGE_PORT": str(self.port)} | dict(environment)
        with (folder / f"{self.port}.out").open("ab") as out, self.errors.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", before + _PROGRAM],
                env=complete,
                stdout=out if stdout is None else stdout,
                stderr=err,
            )

    def ready(self) -> bool:
        return self.get("/readyz").status_code == 200

    def wait_until_ready(self) -> "Replica":
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.ready():
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
        raise RuntimeError(f"the service does not start: {self.errors.read_text()[-2000:]}")

    def get(self, path: str) -> httpx.Response:
        return _ASKING.get(self.url + path)

    def redis(self) -> str:
        return str(self.get("/readyz").json()["redis"])

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}(\{{|_total|[ ])", line))

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024

    def terminate(self) -> None:
        self.process.terminate()

    def exit_status(self, seconds: float) -> int | None:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
