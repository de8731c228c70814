"""
uvicorn's HTTP/1.1 protocol with what it lacks in front of strangers (docs/decisions/0002-server.md).

A request head must be complete in time and within its size; a body that goes on after its answer, or an answer that
nobody reads, ends the connection. One sweep a second looks at all connections, so a request itself pays nothing.
"""

from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tonnage.api.problems import BAD_REQUEST, HEAD_TOO_LARGE, ProblemError, encode
from tonnage.api.settings import Settings

_LAST_SECONDS = 0.25


def guarded_protocol(settings: Settings) -> type[HttpToolsProtocol]:
    """
    Protocol class with the limits of the settings.

    Args:
        settings: Limits of heads, idle time and connections.

    Returns:
        Class for uvicorn's `http` option.
    """
    return type("GuardedProtocol", (_GuardedProtocol,), {"settings": settings})


class _GuardedProtocol(HttpToolsProtocol):
    settings: Settings

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.begun: float | None = self.loop.time()
        """When the request now on its way in began, the wait for a first one included; None between requests. [s]"""
        self.in_head = True
        self.head_bytes = 0
        self.hosts = 0
        self.strange_coding = False
        """Whether the body comes in a coding that nothing here undoes, so that another reader may see another body."""
        self.body_bytes = 0
        self.padding_bytes = 0
        """What came since the last byte of a body and is none: chunk extensions, trailers. [bytes]"""
        self.refused = False
        self.closing: float | None = None
        self.unread: float | None = None
        """Since when the other side reads too slowly for any more to be written. [s]"""
        if len(self.connections) > self.settings.max_connections:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        if self.in_head:
            self.begun = self.begun or self.loop.time()
            self.head_bytes += len(data)
            super().data_received(data)
        else:
            self._body_received(data)
        if self.in_head and self.head_bytes > self.settings.header_limit_bytes:
            self._refuse_head()

    def _body_received(self, data: bytes) -> None:
        before = self.body_bytes
        super().data_received(data)
        self.padding_bytes = self.padding_bytes + len(data) if self.body_bytes == before else 0
        if self.padding_bytes > self.settings.header_limit_bytes:
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:  # a trailer: nothing here reads one
            return
        name = name.lower()
        if name == b"host":
            self.hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding":
            self.strange_coding = value.lower() != b"chunked" or self.parser.get_http_version() != "1.1"
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.hosts != 1 and (self.hosts or self.parser.get_http_version() != "1.0"):
            self._refuse(ProblemError(BAD_REQUEST, "a request names its host exactly once"))
        elif self.strange_coding:
            self._refuse(ProblemError(BAD_REQUEST, "a body is sent as it is or, in HTTP/1.1, in chunks"))
        elif (
            self.head_bytes > self.settings.header_limit_bytes and self._head_size() > self.settings.header_limit_bytes
        ):
            self._refuse_head()
        if not self.refused:
            self.in_head = False
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if not self.refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.refused:
            return
        self.in_head = True
        self.head_bytes = self.hosts = self.padding_bytes = 0
        self.begun = None
        super().on_message_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, handler)

    def shutdown(self) -> None:
        """Leave, but not before a request that is already on its way has had a moment to arrive and be answered."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LAST_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)

    def _refuse_head(self) -> None:
        if not self.transport.is_closing():
            limit = self.settings.header_limit_bytes
            self._refuse(ProblemError(HEAD_TOO_LARGE, f"a request head holds at most {limit} bytes"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(ProblemError(BAD_REQUEST, msg))

    def _refuse(self, problem: ProblemError) -> None:
        """Answer what never became a request, and hang up."""
        self.refused = True
        body = encode(problem.document(""))
        head = (
            f"HTTP/1.1 {problem.kind.status} {problem.kind.title}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def sweep(connections: Iterable[Any], now: float, settings: Settings) -> None:
    """
    End connections that keep the service waiting.

    Args:
        connections: Those open now.
        now: Of the event loop's clock. [s]
        settings: How long is too long.
    """
    for connection in list(connections):
        if isinstance(connection, _GuardedProtocol):
            _look_at(connection, now, settings)


def _look_at(connection: _GuardedProtocol, now: float, settings: Settings) -> None:
    transport = connection.transport
    if transport.is_closing():
        connection.closing = connection.closing or now
        if now - connection.closing > settings.header_timeout_seconds:
            transport.abort()
    elif _is_unread(connection, now, settings) or (connection.begun is not None and _waits(connection, now, settings)):
        transport.abort()


def _is_unread(connection: _GuardedProtocol, now: float, settings: Settings) -> bool:
    """Whether an answer has waited for its reader longer than its request may take: the server itself waits for ever."""
    connection.unread = (connection.unread or now) if connection.flow.write_paused else None
    patience = settings.header_timeout_seconds + settings.deadline_seconds
    return connection.unread is not None and now - connection.unread > patience


def _waits(connection: _GuardedProtocol, now: float, settings: Settings) -> bool:
    """Whether a head is late, or a body still comes long after its answer."""
    assert connection.begun is not None  # noqa: S101  (the caller asked)
    answered = connection.cycle is None or connection.cycle.response_complete
    patience = settings.header_timeout_seconds + (0 if connection.in_head else settings.deadline_seconds)
    return answered and now - connection.begun > patience
