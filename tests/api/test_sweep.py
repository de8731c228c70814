"""When a connection has kept the service waiting for too long: by a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tonnage.api.protocol import guarded_protocol, sweep
from tonnage.api.settings import Settings

SETTINGS = Settings(header_timeout_seconds=5, deadline_seconds=10, idle_timeout_seconds=30)
HEAD = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
BODY_BEGUN = b"POST /estimate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{"


class Transport:
    """What a connection does to its socket."""

    def __init__(self) -> None:
        self.aborted = self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closing = True

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Connection:
    """One connection of the server, made at second 0."""

    def __init__(self) -> None:
        self.state, self.transport = ServerState(), Transport()
        config = uvicorn.Config(_never, http=guarded_protocol(SETTINGS), ws="none", log_config=None)
        config.load()
        self.protocol = guarded_protocol(SETTINGS)(config, self.state, {}, _loop=asyncio.get_running_loop())
        self.protocol.connection_made(self.transport)
        self.began = self.protocol.begun

    def aborted_at(self, *seconds: float) -> float | None:
        """Second of the sweep that ends it, of sweeps at these seconds."""
        for second in seconds:
            sweep(self.state.connections, self.began + second, SETTINGS)
            if self.transport.aborted:
                return second
        return None


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    made = Connection()
    yield made
    made.protocol.connection_lost(None)


async def _never(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("sent", [b"", HEAD])
async def test_a_head_has_its_time_and_no_more(connection: Connection, sent: bytes) -> None:
    if sent:
        connection.protocol.data_received(sent)

    assert 5.25 == connection.aborted_at(1, 4.75, 5.25)


async def test_a_request_that_is_worked_on_is_left_to_its_deadline(connection: Connection) -> None:
    connection.protocol.data_received(BODY_BEGUN)

    assert None is connection.aborted_at(1, 14, 16, 1000)


async def test_a_body_that_goes_on_after_its_answer_has_the_time_of_a_request(connection: Connection) -> None:
    connection.protocol.data_received(BODY_BEGUN)
    connection.protocol.cycle.response_complete = True

    assert 15.25 == connection.aborted_at(1, 14.75, 15.25)


async def test_a_connection_between_requests_is_left_alone(connection: Connection) -> None:
    connection.protocol.data_received(HEAD + b"\r\n")

    assert None is connection.aborted_at(1, 1000)


async def test_an_answer_that_nobody_reads_waits_as_long_as_a_request_may_take(connection: Connection) -> None:
    connection.protocol.data_received(HEAD + b"\r\n")
    connection.protocol.pause_writing()

    assert 16.25 == connection.aborted_at(1, 15.75, 16.25)


async def test_a_reader_who_goes_on_starts_a_new_wait(connection: Connection) -> None:
    connection.protocol.data_received(HEAD + b"\r\n")
    connection.protocol.pause_writing()
    assert None is connection.aborted_at(1, 15)
    connection.protocol.resume_writing()
    assert None is connection.aborted_at(16)
    connection.protocol.pause_writing()

    assert 33.25 == connection.aborted_at(18, 32.75, 33.25)


async def test_a_connection_that_does_not_close_is_ended(connection: Connection) -> None:
    connection.transport.closing = True

    assert 6.25 == connection.aborted_at(1, 5.75, 6.25)


async def test_a_connection_of_another_kind_is_none_of_its_business() -> None:
    sweep([SimpleNamespace()], 1e9, SETTINGS)
