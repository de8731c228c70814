"""The process itself: slow and hostile connections, signals."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.api.serving import Process, serving, until_closed


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    limits = {"deadline_seconds": 2, "header_timeout_seconds": 1, "idle_timeout_seconds": 2, "access_log": "false"}
    with serving(**limits) as process:
        yield process


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: a", b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 20]
)
def test_a_head_that_does_not_end_ends_the_connection(process: Process, sent: bytes) -> None:
    with process.connect() as connection:
        connection.sendall(sent)
        received, seconds = until_closed(connection)

    assert b"" == received
    assert 0.9 < seconds < 4


def test_a_trickle_of_head_bytes_ends_the_connection(process: Process) -> None:
    with process.connect() as connection:
        started = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT011  (reset or broken pipe)
            trickle(connection, b"GET /healthz HTTP/1.1\r\nHost: " + b"a" * 100)

    assert time.monotonic() - started < 5


CHUNKED = "Transfer-Encoding: chunked"
BODY = b'{"model": {"parameters": 7000000000}}'


@pytest.mark.parametrize(
    "endless",
    [b"25;" + b"a" * 80_000, b"25\r\n" + BODY + b"\r\n0\r\n" + b"X: y\r\n" * 20_000],
    ids=["extension", "trailers"],
)
def test_a_body_that_is_padded_without_end_ends_the_connection(process: Process, endless: bytes) -> None:
    with process.connect() as connection:
        connection.sendall(head("POST /estimate", CHUNKED))
        time.sleep(0.2)
        with pytest.raises(OSError):  # noqa: PT011  (reset or broken pipe)
            trickle(connection, endless, size=4096, pause=0.02)


def test_trailers_are_no_headers(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("POST /estimate", CHUNKED, "Connection: close"))
        time.sleep(0.2)
        connection.sendall(b"25\r\n" + BODY + b"\r\n0\r\nHost: b\r\nHost: c\r\n\r\n")
        received, _ = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("size", [40_000, 100_000, 1_000_000])
def test_a_head_over_the_limit_is_refused(process: Process, size: int) -> None:
    with process.connect() as connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * size + b"\r\n\r\n")
        except OSError:
            return
        received, _ = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 431 ") or received == b""


def test_a_long_address_is_refused(process: Process) -> None:
    assert 431 == httpx.get(f"{process.url}/catalog?q={'a' * 40_000}").status_code


def test_a_body_that_does_not_come_is_a_408_and_ends_the_connection(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("POST /estimate", "Content-Length: 100") + b"{")
        received, seconds = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 408 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["type"] == "/problems/body-too-slow"
    assert seconds < 4


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost a\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(process: Process, request_bytes: bytes) -> None:
    with process.connect() as connection:
        connection.sendall(request_bytes)
        received, _ = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 400 ")
    assert 1 == received.count(b"HTTP/1.1 ")
    assert 400 == json.loads(received.partition(b"\r\n\r\n")[2])["status"]


def test_an_idle_connection_is_closed(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("GET /healthz"))
        received, seconds = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert 1.5 < seconds < 5


def test_a_body_that_comes_after_its_answer_leaves_no_connection_behind(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("POST /estimate?x=1", "Content-Length: 50"))
        time.sleep(0.2)
        connection.sendall(b" " * 50)
        received, seconds = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 422 ")
    assert seconds < 5


def test_pipelined_requests_are_answered_in_order(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("GET /healthz") + head("GET /nowhere") + head("GET /healthz", "Connection: close"))
        received, _ = until_closed(connection)

    assert [b"200", b"404", b"200"] == [part.split()[0] for part in received.split(b"HTTP/1.1 ")[1:]]


def test_a_body_over_the_limit_is_refused_before_it_is_sent(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("POST /estimate", "Content-Length: 999999999", "Expect: 100-continue"))
        received, _ = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_limit_is_refused() -> None:
    with serving(body_limit_bytes=2048) as small:
        answer = httpx.post(
            f"{small.url}/estimate", content=iter([b" " * 1000] * 5), headers={"content-type": "application/json"}
        )

    assert 413 == answer.status_code


def test_sigterm_lets_what_is_under_way_finish_and_exits_with_zero() -> None:
    with serving(deadline_seconds=10) as process, process.connect() as connection:
        body = b'{"model": {"parameters": 7000000000}}'
        connection.sendall(head("POST /estimate", f"Content-Length: {len(body)}") + body[:5])
        time.sleep(0.2)
        process.terminate()
        time.sleep(0.5)
        with pytest.raises(OSError):  # noqa: PT011
            process.connect()
        connection.sendall(body[5:])
        received, _ = until_closed(connection)

        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in received
        assert 0 == process.process.wait(5)


def test_readyz_says_no_while_the_process_drains() -> None:
    with serving(drain_seconds=1.5) as process:
        process.terminate()
        time.sleep(0.3)

        assert 503 == httpx.get(f"{process.url}/readyz").status_code
        assert 200 == httpx.get(f"{process.url}/healthz").status_code
        assert 0 == process.process.wait(8)


def test_no_request_is_lost_when_the_process_is_told_to_stop_under_load() -> None:
    failures: list[str] = []
    with serving(drain_seconds=1) as process:
        stop = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=process.url) as client:
                while not stop.is_set():
                    if client.get("/readyz").status_code == 503:
                        return
                    answer = client.post("/estimate", json={"model": {"parameters": 7_000_000_000}})
                    if answer.status_code != 200:
                        failures.append(answer.text)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        process.terminate()
        for thread in threads:
            thread.join(5)
        stop.set()

        assert [] == failures
        assert 0 == process.process.wait(8)


def test_the_access_log_is_json_without_bodies_queries_or_keys(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with serving(log) as process:
        httpx.post(f"{process.url}/estimate", json={"model": "secret/model"}, headers={"authorization": "Bearer hush"})
        httpx.get(f"{process.url}/estimate?model=secret/model", headers={"x-request-id": "mine-1"})
        process.terminate()
        process.process.wait(5)
    lines = [json.loads(line) for line in log.read_text().splitlines()]

    assert {"mine-1"} < {line["request_id"] for line in lines}
    assert {"/estimate", "/readyz"} == {line["route"] for line in lines}
    assert "secret" not in log.read_text()
    assert "hush" not in log.read_text()


def trickle(connection: socket.socket, data: bytes, *, size: int = 1, pause: float = 0.1) -> None:
    for start in range(0, len(data), size):
        connection.sendall(data[start : start + size])
        time.sleep(pause)


def head(request: str, *lines: str) -> bytes:
    fixed = ("Host: a", "Content-Type: application/json") if request.startswith("POST") else ("Host: a",)
    return "\r\n".join([f"{request} HTTP/1.1", *fixed, *lines, "", ""]).encode()


def test_an_answer_that_nobody_reads_ends_the_connection(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("GET /catalog/models?limit=500") * 150)
        time.sleep(7)
        received, _ = until_closed(connection)

    assert received.count(b"HTTP/1.1 200 ") < 150
    assert 200 == httpx.get(f"{process.url}/healthz").status_code


def test_connections_over_the_limit_are_closed_at_once() -> None:
    with serving(max_connections=5, access_log="false") as small:
        held = [small.connect() for _ in range(5)]
        try:
            time.sleep(0.2)
            with small.connect() as over:
                received, seconds = until_closed(over)

            assert b"" == received
            assert seconds < 2
            held[0].sendall(head("GET /healthz"))
            assert held[0].recv(100).startswith(b"HTTP/1.1 200 ")
        finally:
            for connection in held:
                connection.close()
