"""The process itself: slow and hostile connections, signals."""

import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path

import httpx
import pytest
from tests.api.serving import Process, begun, serving, until_closed, until_it_ends_with
from tests.waiting import SECONDS, wait_for

CHUNKED = "Transfer-Encoding: chunked"
EXPECTING = "Expect: 100-continue"
BODY = b'{"model": {"parameters": 7000000000}}'


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    """One that loses patience soon: what ends a connection is all that these tests wait for."""
    limits = {"deadline_seconds": 2, "header_timeout_seconds": 1, "idle_timeout_seconds": 2, "access_log": "false"}
    with serving(**limits) as process:
        yield process


@pytest.fixture(scope="module")
def patient() -> Iterator[Process]:
    """One that waits longer than a test does: no time-out can be what ends a connection."""
    limits = {"deadline_seconds": 600, "header_timeout_seconds": 600, "idle_timeout_seconds": 600}
    with serving(**limits, access_log="false") as process:
        yield process


def head(request: str, *lines: str) -> bytes:
    fixed = ("Host: a", "Content-Type: application/json") if request.startswith("POST") else ("Host: a",)
    return "\r\n".join([f"{request} HTTP/1.1", *fixed, *lines, "", ""]).encode()


def send_until_refused(connection: socket.socket, pieces: Iterable[bytes], pause: float) -> None:
    """Without end, unless the other side hangs up."""
    try:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
    except (BrokenPipeError, ConnectionResetError):
        return


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: a", b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 20]
)
def test_a_head_that_does_not_end_ends_the_connection(process: Process, sent: bytes) -> None:
    with process.connect() as connection:
        connection.sendall(sent)

        assert b"" == until_closed(connection)


def test_a_trickle_of_head_bytes_ends_the_connection(process: Process) -> None:
    with process.connect() as connection:
        send_until_refused(connection, chain([b"GET /healthz HTTP/1.1\r\nHost: "], repeat(b"a")), pause=0.1)


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"25;", b"a" * 4096), (b"25\r\n" + BODY + b"\r\n0\r\n", b"X: y\r\n" * 700)],
    ids=["extension", "trailers"],
)
def test_a_body_that_is_padded_without_end_ends_the_connection(patient: Process, begin: bytes, more: bytes) -> None:
    with begun(patient, head("POST /estimate", CHUNKED, EXPECTING)) as connection:
        send_until_refused(connection, chain([begin], repeat(more)), pause=0.0)


@pytest.mark.parametrize("apart", [True, False])
def test_trailers_are_no_headers(patient: Process, apart: bool) -> None:
    lines = (CHUNKED, "Connection: close")
    rest = b"25\r\n" + BODY + b"\r\n0\r\nHost: b\r\nHost: c\r\n\r\n"
    with begun(patient, head("POST /estimate", *lines, EXPECTING)) if apart else patient.connect() as connection:
        connection.sendall(rest if apart else head("POST /estimate", *lines) + rest)
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("size", [40_000, 100_000, 1_000_000])
def test_a_head_over_the_limit_is_refused(patient: Process, size: int) -> None:
    with patient.connect() as connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * size + b"\r\n\r\n")
        except OSError:
            return
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 431 ") or received == b""


def test_a_long_address_is_refused(patient: Process) -> None:
    assert 431 == patient.get(f"/catalog?q={'a' * 40_000}").status_code


def test_a_body_that_does_not_come_is_a_408_and_ends_the_connection(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("POST /estimate", "Content-Length: 100") + b"{")
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 408 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["type"] == "/problems/body-too-slow"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost a\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST /estimate HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nhello\r\n0\r\n\r\n",
        b"POST /estimate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: a\n\n",
        b"GET /healthz\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
        b"GET /healthz HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(patient: Process, request_bytes: bytes) -> None:
    with patient.connect() as connection:
        connection.sendall(request_bytes)
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 400 ")
    assert 1 == received.count(b"HTTP/1.1 ")
    assert 400 == json.loads(received.partition(b"\r\n\r\n")[2])["status"]


@pytest.mark.parametrize(
    "sent", [b"GET /healthz HTTP/1.0\r\n\r\n", b"GET http://b/healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
)
def test_an_old_request_and_one_with_a_whole_address_are_answered(patient: Process, sent: bytes) -> None:
    with patient.connect() as connection:
        connection.sendall(sent)
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.endswith(b'{"status":"alive"}')


def test_an_idle_connection_is_closed(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("GET /healthz"))
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 200 ")


def test_a_body_that_comes_after_its_answer_leaves_no_connection_behind(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(head("POST /estimate?x=1", "Content-Length: 50"))
        received = until_it_ends_with(connection, b"}")
        connection.sendall(b" " * 50)
        received += until_closed(connection)

    assert received.startswith(b"HTTP/1.1 422 ")
    assert 1 == received.count(b"HTTP/1.1 ")


def test_pipelined_requests_are_answered_in_order(patient: Process) -> None:
    with patient.connect() as connection:
        connection.sendall(head("GET /healthz") + head("GET /nowhere") + head("GET /healthz", "Connection: close"))
        received = until_closed(connection)

    assert [b"200", b"404", b"200"] == [part.split()[0] for part in received.split(b"HTTP/1.1 ")[1:]]


def test_a_body_over_the_limit_is_refused_before_it_is_sent(patient: Process) -> None:
    with patient.connect() as connection:
        connection.sendall(head("POST /estimate", "Content-Length: 999999999", EXPECTING))
        received = until_closed(connection)

    assert received.startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_limit_is_refused() -> None:
    with serving(body_limit_bytes=2048) as small:
        answer = small.post("/estimate", content=iter([b" " * 1000] * 5), headers={"content-type": "application/json"})

    assert 413 == answer.status_code


def test_sigterm_lets_what_is_under_way_finish_and_exits_with_zero() -> None:
    with serving(deadline_seconds=600, shutdown_seconds=300) as process:
        with begun(process, head("POST /estimate", f"Content-Length: {len(BODY)}", EXPECTING)) as connection:
            connection.sendall(BODY[:5])
            process.terminate()
            wait_for(lambda: refuses_connections(process))
            connection.sendall(BODY[5:])
            received = until_closed(connection)

        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in received
        assert 0 == process.exit_status()


def refuses_connections(process: Process) -> bool:
    try:
        process.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_readyz_says_no_while_the_process_drains_and_a_second_signal_ends_that() -> None:
    with serving(drain_seconds=300) as process:
        process.terminate()
        wait_for(lambda: process.get("/readyz").status_code == 503)

        assert 200 == process.get("/healthz").status_code
        process.terminate()
        assert 0 == process.exit_status()


def test_a_process_that_has_drained_exits_by_itself() -> None:
    with serving(drain_seconds=0.2) as process:
        process.terminate()

        assert 0 == process.exit_status()


def test_no_request_is_lost_when_the_process_is_told_to_stop_under_load() -> None:
    failures: list[str] = []
    asked: list[int] = []
    with serving(drain_seconds=300) as process:

        def ask() -> None:
            try:
                with httpx.Client(base_url=process.url, timeout=SECONDS) as client:
                    while client.get("/readyz").status_code != 503:
                        answer = client.post("/estimate", json={"model": {"parameters": 7_000_000_000}})
                        asked.append(answer.status_code)
            except httpx.HTTPError as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(asked) > 50)
        process.terminate()
        for thread in threads:
            thread.join()
        process.terminate()

        assert ([], {200}) == (failures, set(asked))
        assert 0 == process.exit_status()


def test_the_access_log_is_json_without_bodies_queries_or_keys(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with serving(log) as process:
        process.post("/estimate", json={"model": "secret/model"}, headers={"authorization": "Bearer hush"})
        process.get("/estimate?model=secret/model", headers={"x-request-id": "mine-1"})
        process.terminate()
        process.exit_status()
    lines = [json.loads(line) for line in log.read_text().splitlines()]

    assert {"mine-1"} < {line["request_id"] for line in lines}
    assert {"/estimate", "/readyz"} == {line["route"] for line in lines}
    assert "secret" not in log.read_text()
    assert "hush" not in log.read_text()


def test_an_answer_that_nobody_reads_ends_the_connection() -> None:
    limits = {"deadline_seconds": 1, "header_timeout_seconds": 1, "idle_timeout_seconds": 1}
    with serving(**limits, access_log="false") as process:
        wait_for(lambda: established(process) == 0)
        with process.connect() as connection:
            connection.sendall(head("GET /catalog/models?limit=500") * 150)
            wait_for(lambda: established(process) == 0)
            received = until_closed(connection)

        assert received.count(b"HTTP/1.1 200 ") < 150
        assert 200 == process.get("/healthz").status_code


def established(process: Process) -> int:
    """Connections that the service has and has not closed."""
    own = f"0100007F:{process.port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[1] == own and row[3] == "01" for row in rows)


def test_connections_over_the_limit_are_closed_at_once() -> None:
    limits = {"header_timeout_seconds": 600, "idle_timeout_seconds": 600, "access_log": "false"}
    with serving(max_connections=5, **limits) as small:
        wait_for(lambda: established(small) == 0)
        held = [small.connect() for _ in range(5)]
        try:
            with small.connect() as over:
                assert b"" == until_closed(over)
            for connection in held:
                connection.sendall(head("GET /healthz"))
                assert until_it_ends_with(connection, b"}").startswith(b"HTTP/1.1 200 ")
        finally:
            for connection in held:
                connection.close()
