"""A real process under load while things break around it: no request fails, and it says what is wrong."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.adapters.conftest import Server
from tests.api.serving import Process, begun, serving, until_closed
from tests.api.test_reload import GOOD
from tests.waiting import SECONDS, wait_for

CARD = {"model": {"parameters": 7_000_000_000}, "placement": {"gpu": "rtx-4090"}}


class Load:
    """Requests from several threads, with everything that was not answered as it should be."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stop = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.errors: list[str] = []

    def _work(self, worker: int) -> None:
        with httpx.Client(base_url=self._process.url, timeout=SECONDS) as client:
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
            self.statuses[ask().status_code] += 1

    def wait_for_more(self, answers: int = 50) -> None:
        """Until so many more requests are answered."""
        enough = self.statuses.total() + answers
        wait_for(lambda: self.errors or self.statuses.total() >= enough)

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
    return str(process.get("/readyz").json()["redis"])


def test_no_request_fails_while_redis_is_killed_paused_and_brought_back(start_server: Callable[..., Server]) -> None:
    server = start_server()
    settings = {
        "redis_url": server.url,
        "redis_breaker_seconds": 0.2,
        "redis_timeout_seconds": 0.5,
        "access_log": "false",
    }
    with serving(**settings) as process:
        wait_for(lambda: state(process) == "up")
        with Load(process).running() as load:
            load.wait_for_more()
            server.kill()
            wait_for(lambda: state(process) == "down")
            server.start()
            wait_for(lambda: state(process) == "up")
            server.pause()
            wait_for(lambda: state(process) == "down")
            server.resume()
            wait_for(lambda: state(process) == "up")
            load.wait_for_more()

        assert ([], {200}) == (load.errors, set(load.statuses))
        wait_for(lambda: process.metric('tonnage_redis_state{state="up"}') == 1)
        assert 0 < process.metric('tonnage_cache_requests_total{level="redis",outcome="error"}')


def test_no_request_fails_while_an_overlay_breaks_and_mends(tmp_path: Path) -> None:
    overlay = tmp_path / "gpus.toml"
    with serving(catalog_dir=tmp_path, catalog_poll_seconds=0.2, access_log="false") as process:
        with Load(process).running() as load:
            put(overlay, GOOD)
            wait_for(lambda: process.get("/catalog/gpus/example-gpu").status_code == 200)
            put(overlay, "nonsense")
            wait_for(lambda: process.metric("tonnage_catalog_reload_errors_total") == 1)
            assert 200 == process.get("/catalog/gpus/example-gpu").status_code
            overlay.unlink()
            wait_for(lambda: process.get("/catalog/gpus/example-gpu").status_code == 404)
            load.wait_for_more()

        assert ([], {200}) == (load.errors, set(load.statuses))


def put(file: Path, text: str) -> None:
    """Whole at once: nobody reads half of it."""
    half = file.with_suffix(".half")
    half.write_text(text)
    half.rename(file)


def test_what_is_too_much_is_refused_and_what_is_under_way_is_served() -> None:
    body = json.dumps({"model": {"parameters": 7_000_000_000}, "limit": 1}).encode()
    head = (
        f"POST /fit HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    settings = {"max_in_flight": 4, "fit_threads": 1, "deadline_seconds": 600, "access_log": "false"}
    with serving(**settings) as process, ExitStack() as stack:
        held = [stack.enter_context(begun(process, head.encode())) for _ in range(4)]
        refused = process.post("/fit", content=body, headers={"content-type": "application/json"})
        health = process.get("/healthz").status_code
        for connection in held:
            connection.sendall(body)
        served = [until_closed(connection) for connection in held]

        assert (503, "/problems/overloaded") == (refused.status_code, refused.json()["type"])
        assert "retry-after" in refused.headers
        assert 200 == health
        assert {b"HTTP/1.1 200"} == {answer[:12] for answer in served}
        assert 1 == process.metric('tonnage_refused_total{reason="overloaded"}')
        assert 200 == process.post("/fit", content=body, headers={"content-type": "application/json"}).status_code


def test_a_full_disk_under_the_access_log_costs_lines_and_no_request() -> None:
    with serving(Path("/dev/full")) as process:
        for _ in range(5):
            assert 200 == process.get("/healthz").status_code

        wait_for(lambda: process.metric("tonnage_log_errors_total") > 0)


def test_the_same_card_has_the_same_digest_in_every_process() -> None:
    answers = []
    for seed in ("0", "1"):
        os.environ["PYTHONHASHSEED"] = seed
        try:
            with serving(access_log="false") as process:
                answers.append(process.post("/estimate", json=CARD).content)
        finally:
            del os.environ["PYTHONHASHSEED"]

    assert answers[0] == answers[1]
    assert json.loads(answers[0])["digest"].startswith("sha256:")
