"""Many questions by line: in order, one bad line stops nothing, memory stays bounded."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from tests.api.conftest import in_process
from tests.api.serving import serving, until_closed
from tests.waiting import until

from tonnage import evidence
from tonnage.api.app import create_app
from tonnage.api.batch import _TURN_SECONDS
from tonnage.api.settings import Settings

LINES = {"content-type": "application/x-ndjson"}


def count(parameters: int) -> bytes:
    return json.dumps({"model": {"parameters": parameters}}).encode()


async def answered(client: httpx.AsyncClient, body: Any, path: str = "/estimate") -> list[dict[str, Any]]:
    answer = await client.post(path, content=body, headers=LINES)
    assert (200, "application/x-ndjson") == (answer.status_code, answer.headers["content-type"])
    return [json.loads(line) for line in answer.content.splitlines()]


async def test_lines_are_answered_in_order(client: httpx.AsyncClient) -> None:
    answers = await answered(client, b"\n".join(count(n * 10**9) for n in (3, 1, 2)))

    assert [3 * 10**9, 10**9, 2 * 10**9] == [answer["model"]["parameters"]["total"] for answer in answers]


async def test_a_line_is_answered_like_a_request_of_its_own(client: httpx.AsyncClient) -> None:
    single = (await client.post("/estimate", json={"model": {"parameters": 7 * 10**9}})).json()

    assert [single] == await answered(client, count(7 * 10**9))


async def test_one_bad_line_is_one_problem_and_stops_nothing(client: httpx.AsyncClient) -> None:
    bad = [b"{", b'{"model": 1}', b'{"model": "nobody/nothing"}', b'{"modle": "a"}', b"[" * 90_000, b"\xff"]
    answers = await answered(client, b"\n".join([count(1), *bad, count(2)]))

    assert [None, 400, 422, 422, 422, 400, 400, None] == [answer.get("status") for answer in answers]
    assert [f"/estimate#line={n}" for n in range(2, 8)] == [answer["instance"] for answer in answers[1:-1]]


async def test_blank_lines_and_carriage_returns_are_nothing(client: httpx.AsyncClient) -> None:
    assert 2 == len(await answered(client, b"\n\r\n" + count(1) + b"\r\n  \n" + count(2) + b"\n\n"))


async def test_a_problem_names_its_line_in_the_body_blank_ones_counted(client: httpx.AsyncClient) -> None:
    answers = await answered(client, b"\n\n{\n\r\n" + count(1) + b"\n{")

    assert ["/estimate#line=3", None, "/estimate#line=6"] == [answer.get("instance") for answer in answers]


async def test_an_empty_batch_has_an_empty_answer(client: httpx.AsyncClient) -> None:
    assert [] == await answered(client, b"")


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_it_does_not_matter_how_lines_arrive(client: httpx.AsyncClient, size: int) -> None:
    body = b"\n".join(count(n) for n in range(1, 8))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    answers = await answered(client, pieces())

    assert list(range(1, 8)) == [answer["model"]["parameters"]["total"] for answer in answers]


async def test_a_line_over_the_limit_is_a_413_and_the_next_is_read() -> None:
    async with in_process(create_app(Settings(access_log=False, body_limit_bytes=1024))) as client:

        async def pieces() -> AsyncIterator[bytes]:
            yield count(1) + b"\n"
            for _ in range(50):
                yield b" " * 500
            yield b"\n" + count(2) + b"\n" + b"x" * 1500 + b"\n" + count(3)

        answers = await answered(client, pieces())

    assert [None, 413, None, 413, None] == [answer.get("status") for answer in answers]


async def test_only_the_wanted_fields_are_sent(client: httpx.AsyncClient) -> None:
    answers = await answered(client, count(10**9), "/estimate?fields=required,verdict")

    assert [["required", "verdict"]] == [list(answer) for answer in answers]


async def test_an_unknown_field_is_a_422(client: httpx.AsyncClient) -> None:
    answer = await client.post("/estimate?fields=requird", content=count(1), headers=LINES)

    assert 422 == answer.status_code


async def test_packages_are_judged_by_line_and_strictness_is_by_line(client: httpx.AsyncClient) -> None:
    fits = {
        "model": {"parameters": 10**9},
        "offer": {"gpus": ["rtx-4090"], "max_gpus": 1},
        "limit": 1,
        "explain": False,
    }
    none = fits | {"model": {"parameters": 405 * 10**9}}
    lines = b"\n".join(json.dumps(question).encode() for question in (fits, none))
    plain = await answered(client, lines, "/fit?fields=selected,candidates")
    strict = await answered(client, lines, "/fit?strict=true&fields=selected")

    assert 2 == len(plain)
    assert 409 == strict[1]["status"]


async def test_each_line_counts_towards_the_limit() -> None:
    async with in_process(create_app(Settings(access_log=False, rate_limit_per_minute=4))) as client:
        answers = await answered(client, b"\n".join(count(n) for n in range(1, 7)))

    assert [None, None, None, 429, 429, 429] == [answer.get("status") for answer in answers]


async def test_a_batch_with_another_accept_is_a_406(client: httpx.AsyncClient) -> None:
    answer = await client.post("/estimate", content=count(1), headers=LINES | {"accept": "text/plain"})

    assert 406 == answer.status_code


def test_a_batch_flows_both_ways_and_other_requests_get_their_turn() -> None:
    """Lines of which each is sent when the one before is answered."""
    with serving(access_log="false", deadline_seconds=600) as process, process.connect() as connection:
        head = "POST /estimate?fields=required HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        received = b""
        for number in range(1, 6):
            connection.sendall(chunk(count(number) + b"\n"))
            while received.count(b'{"required"') < number:
                received += connection.recv(65_536)
            assert 200 == process.get("/healthz").status_code
        connection.sendall(chunk(b""))
        received += until_closed(connection)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert 5 == received.count(b'{"required"')


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_between_the_lines_of_a_batch_that_is_there_at_once_others_get_their_turn() -> None:
    app = create_app(Settings(access_log=False, deadline_seconds=600))
    asked: list[int] = []

    def estimate(catalog: Any, card: Any, *, fetch: Any = None) -> Any:
        asked.append(card.model.parameters)
        time.sleep(2 * _TURN_SECONDS)
        return evidence.estimate(catalog, card, fetch=fetch)

    app.runtime.desk.sizing = msgspec.structs.replace(app.runtime.desk.sizing, estimate=estimate)
    async with in_process(app) as client:
        batch = asyncio.create_task(answered(client, b"\n".join(count(number) for number in range(1, 61))))
        await until(lambda: asked)
        assert 200 == (await client.get("/healthz")).status_code
        before = len(asked)
        answers = await batch

    assert 1 <= before < 60 == len(answers)


def test_a_caller_that_stops_sending_is_not_waited_for() -> None:
    with serving(access_log="false", deadline_seconds=1) as process, process.connect() as connection:
        head = (
            b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
        )
        connection.sendall(head + count(1) + b"\n")
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert b'"total":1,' in received
