"""A real process under load while things break around it: no request fails, and it says what is wrong."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.adapters.conftest import Server
from tests.api.serving import Process, serving
from tests.api.test_reload import GOOD

CARD = {"model": {"parameters": 7_000_000_000}, "placement": {"gpu": "rtx-4090"}}


class Load:
    """Requests from several threads, with everything that was not answered as it should be."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stop = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.errors: list[str] = []
        self.slowest = 0.0

    def _work(self, worker: int) -> None:
        with httpx.Client(base_url=self._process.url, timeout=20) as client:
            number = 0
            while not self._stop.is_set():
                number += 1
                try:
                    self._ask(client, f"{worker}-{number}")
                except httpx.HTTPError as error:
                    self.errors.append(repr(error))

    def _ask(self, client: httpx.Client, name: str) -> None:
        for ask in (
            lambda: client.get(f"/catalog/gpus?q={name}"),
            lambda: client.post("/estimate", json=CARD),
        ):
            started = time.monotonic()
            self.statuses[ask().status_code] += 1
            self.slowest = max(self.slowest, time.monotonic() - started)

    @contextmanager
    def running(self) -> Any:
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def state(process: Process) -> str:
    return str(httpx.get(f"{process.url}/readyz").json()["redis"])


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def metric(process: Process, start: str) -> float:
    lines = httpx.get(f"{process.url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def test_no_request_fails_while_redis_is_killed_paused_and_brought_back(start_server: Callable[..., Server]) -> None:
    server = start_server()
    settings = {"redis_url": server.url, "redis_breaker_seconds": 0.2, "access_log": "false"}
    with serving(**settings) as process:
        wait_for(lambda: state(process) == "up")
        with Load(process).running() as load:
            time.sleep(0.5)
            server.kill()
            wait_for(lambda: state(process) == "down")
            server.start()
            wait_for(lambda: state(process) == "up")
            server.pause()
            wait_for(lambda: state(process) == "down")
            server.resume()
            wait_for(lambda: state(process) == "up")
            time.sleep(0.3)

        assert ([], {200}) == (load.errors, set(load.statuses))
        assert load.slowest < 5
        assert 1 == metric(process, 'tonnage_redis_state{state="up"}')
        assert 0 < metric(process, 'tonnage_cache_requests_total{level="redis",outcome="error"}')


def test_no_request_fails_while_an_overlay_breaks_and_mends(tmp_path: Path) -> None:
    overlay = tmp_path / "gpus.toml"
    with serving(catalog_dir=tmp_path, catalog_poll_seconds=0.2, access_log="false") as process:
        with Load(process).running() as load:
            overlay.write_text(GOOD)
            wait_for(lambda: httpx.get(f"{process.url}/catalog/gpus/example-gpu").status_code == 200)
            overlay.write_text("nonsense")
            wait_for(lambda: metric(process, "tonnage_catalog_reload_errors_total") == 1)
            assert 200 == httpx.get(f"{process.url}/catalog/gpus/example-gpu").status_code
            overlay.unlink()
            wait_for(lambda: httpx.get(f"{process.url}/catalog/gpus/example-gpu").status_code == 404)

        assert ([], {200}) == (load.errors, set(load.statuses))


def test_what_is_too_much_is_refused_and_what_is_served_is_served() -> None:
    with serving(max_in_flight=4, access_log="false", fit_threads=1) as process:
        statuses: Counter[int] = Counter()
        question = {"model": {"parameters": 7_000_000_000}, "limit": 1}

        def ask() -> None:
            for _ in range(3):
                answer = httpx.post(f"{process.url}/fit", json=question, timeout=60)
                statuses[answer.status_code] += 1
                if answer.status_code == 503:
                    assert "retry-after" in answer.headers

        threads = [threading.Thread(target=ask) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert {200, 503} == set(statuses)
        assert 200 == httpx.get(f"{process.url}/healthz").status_code
        assert 0 < metric(process, 'tonnage_refused_total{reason="overloaded"}')


def test_a_full_disk_under_the_access_log_costs_lines_and_no_request() -> None:
    with serving(Path("/dev/full")) as process:
        for _ in range(5):
            assert 200 == httpx.get(f"{process.url}/healthz").status_code
        time.sleep(0.5)

        assert 0 < metric(process, "tonnage_log_errors_total")


def test_the_same_card_has_the_same_digest_in_every_process() -> None:
    answers = []
    for seed in ("0", "1"):
        os.environ["PYTHONHASHSEED"] = seed
        try:
            with serving(access_log="false") as process:
                answers.append(httpx.post(f"{process.url}/estimate", json=CARD).content)
        finally:
            del os.environ["PYTHONHASHSEED"]

    assert answers[0] == answers[1]
    assert json.loads(answers[0])["digest"].startswith("sha256:")
