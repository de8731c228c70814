"""Large bodies are bounded one by one and all together; what takes long does not hold up what is quick."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import msgspec
import pytest
from tests.api.conftest import in_process
from tests.api.serving import Process, serving
from tests.waiting import SECONDS, until, wait_for

from tonnage import evidence
from tonnage.api.app import create_app
from tonnage.api.bodies import Held
from tonnage.api.problems import ProblemError
from tonnage.api.settings import Settings

LIMIT = 200_000
JSON = {"content-type": "application/json"}
QUICK = {"model": {"parameters": 7 * 10**9}}
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with serving(bodies_limit_bytes=LIMIT, deadline_seconds=600, access_log="false") as process:
        yield process


def partly_sent(process: Process, sent: int, kind: str = "application/json") -> socket.socket:
    """A request whose body has come in part."""
    connection = process.connect()
    head = f"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: 1000000\r\n\r\n"
    connection.sendall(head.encode() + b" " * sent)
    return connection


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_large_bodies_together_have_a_limit_and_small_ones_pass(process: Process, kind: str) -> None:
    large = {"model": {"parameters": 1}, "serving": None, "failure": None} | {"measurements": []}
    body = json.dumps(large).encode() + b" " * 100_000
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(partly_sent(process, 90_000, kind))
        wait_for(lambda: large_one(process, body).status_code == 503)
        refused = large_one(process, body)
        small = process.post("/estimate", json=QUICK)

    assert (503, "/problems/overloaded") == (refused.status_code, refused.json()["type"])
    assert "retry-after" in refused.headers
    assert 200 == small.status_code
    wait_for(lambda: large_one(process, body).status_code == 200)


def large_one(process: Process, body: bytes) -> httpx.Response:
    return process.post("/estimate", content=body, headers=JSON)


def test_one_body_alone_may_be_larger_than_the_limit_of_all() -> None:
    held, state = Held(10_000), {}

    held.take(state, 50_000)
    held.take(state, 60_000)
    with pytest.raises(ProblemError):
        held.take({}, 9_000)
    held.release(state)
    held.take({}, 9_000)

    assert 9_000 == held.bytes


async def test_nothing_stays_held_after_any_answer() -> None:
    app = create_app(Settings(access_log=False, deadline_seconds=600))
    async with in_process(app) as client:
        padding = b" " * 50_000
        for body in (json.dumps(QUICK).encode(), b"{", b'{"model": 1}', b"[" * 200_000):
            for kind in ("application/json", "application/x-ndjson"):
                await client.post("/estimate", content=body + padding, headers={"content-type": kind})

    assert (0, 0) == (app.runtime.held.bytes, app.runtime.held.unread_bytes)


async def test_a_body_of_very_many_lists_is_too_large(client: httpx.AsyncClient) -> None:
    body = b'{"model": {"config": {"a": [' + b"[]," * 150_000 + b"1]}}}"

    answer = await client.post("/estimate", content=body, headers=JSON)

    assert 413 == answer.status_code


async def test_quick_questions_are_answered_while_a_long_one_is_worked_on() -> None:
    app = create_app(Settings(access_log=False, deadline_seconds=600))
    begun, may_end = threading.Event(), threading.Event()

    def estimate(catalog: Any, card: Any, *, fetch: Any = None) -> Any:
        if card.failure is not None:
            begun.set()
            assert may_end.wait(SECONDS)
        return evidence.estimate(catalog, card, fetch=fetch)

    app.runtime.desk.sizing = msgspec.structs.replace(app.runtime.desk.sizing, estimate=estimate)
    async with in_process(app) as client:
        long = asyncio.create_task(client.post("/estimate", json=QUICK | {"failure": {"phase": "load"}}))
        await until(begun.is_set)
        quick = [(await client.post("/estimate", json=QUICK)).status_code for _ in range(6)]
        waits = not long.done()
        may_end.set()

        assert ([200] * 6, True) == (quick, waits)
        assert 200 == (await long).status_code


@pytest.mark.parametrize("described", [{"config": CONFIG}, {"parameters": 7 * 10**9}])
async def test_only_a_described_architecture_is_worked_on_in_a_thread(described: dict[str, Any]) -> None:
    app = create_app(Settings(access_log=False, deadline_seconds=600))
    threads: list[threading.Thread] = []

    def estimate(catalog: Any, card: Any, *, fetch: Any = None) -> Any:
        threads.append(threading.current_thread())
        return evidence.estimate(catalog, card, fetch=fetch)

    app.runtime.desk.sizing = msgspec.structs.replace(app.runtime.desk.sizing, estimate=estimate)
    async with in_process(app) as client:
        assert 200 == (await client.post("/estimate", json={"model": described})).status_code

    assert ("config" in described) == (threads[0] is not threading.current_thread())
