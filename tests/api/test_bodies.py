"""Large bodies are bounded one by one and all together; what takes long does not hold up what is quick."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from tests.api.conftest import in_process
from tests.api.serving import Process, serving

from tonnage.api.app import create_app
from tonnage.api.bodies import Held
from tonnage.api.problems import ProblemError
from tonnage.api.settings import Settings

LIMIT = 200_000
JSON = {"content-type": "application/json"}
QUICK = {"model": {"parameters": 7 * 10**9}}


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with serving(bodies_limit_bytes=LIMIT, deadline_seconds=5, access_log="false") as process:
        yield process


def begun(process: Process, sent: int, kind: str = "application/json") -> socket.socket:
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
            stack.enter_context(begun(process, 90_000, kind))
        deadline = time.monotonic() + 4
        while (refused := httpx.post(f"{process.url}/estimate", content=body, headers=JSON)).status_code != 503:
            assert time.monotonic() < deadline
        small = httpx.post(f"{process.url}/estimate", json=QUICK)

    assert "/problems/overloaded" == refused.json()["type"]
    assert "retry-after" in refused.headers
    assert 200 == small.status_code
    deadline = time.monotonic() + 4
    while httpx.post(f"{process.url}/estimate", content=body, headers=JSON).status_code != 200:
        assert time.monotonic() < deadline, "what was held is released with its connection"


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
    app = create_app(Settings(access_log=False))
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


def test_quick_questions_are_answered_while_a_long_one_is_worked_on(process: Process) -> None:
    config = {
        "model_type": "gemma3n_text", "hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 2,
        "vocab_size": 262144, "head_dim": 256, "num_kv_shared_layers": 0, "num_hidden_layers": 90,
        "intermediate_size": [1024 + 64 * n for n in range(90)],
    }  # fmt: skip
    long = {"model": {"config": config}, "training": {"method": "lora"}, "placement": {"gpu": "h100-sxm"}}
    long["failure"] = {"phase": "backward"}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, f"{process.url}/estimate", json=long, timeout=60)
        answered = 0
        while not waiting.done():
            answered += httpx.post(f"{process.url}/estimate", json=QUICK).status_code == 200

    assert waiting.result().status_code in (200, 503)
    assert answered > 5
