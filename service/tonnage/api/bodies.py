"""Request bodies off the wire, never more than the limit, of one and of all together."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tonnage.api.problems import BAD_REQUEST, OVERLOADED, SLOW_BODY, TOO_LARGE, ProblemError

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


ARRIVING = "body_arriving"
"""Key of a request's state while its body is not complete."""
_SMALL_BYTES = 8192
"""Bodies up to here are not counted: as many as may be in flight are still little. [bytes]"""


class Held:
    """
    Bytes of large bodies that requests hold, until they are answered.

    Args:
        limit: Most of all together; a single body always passes. [bytes]
    """

    def __init__(self, limit: int) -> None:
        self.bytes = 0
        self.unread_bytes = 0
        """Answers of batches that nobody has read yet. [bytes]"""
        self._limit = limit

    def take(self, state: dict[str, Any], size: int) -> None:
        """
        Count what a request holds by now.

        Args:
            state: Of the request, which remembers it.
            size: Of its body as far as it came. [bytes]

        Raises:
            ProblemError: 503 when others hold too much.
        """
        if size <= _SMALL_BYTES:
            return
        own = state.get("held_bytes", 0)
        others = self.bytes - own
        if size > own and others and others + size > self._limit:
            detail = "large bodies of other requests are being worked on"
            raise ProblemError(OVERLOADED, detail, headers=[(b"retry-after", b"1"), (b"connection", b"close")])
        self.bytes += size - own
        state["held_bytes"] = size

    def release(self, state: dict[str, Any]) -> None:
        """Forget a request that is answered."""
        self.bytes -= state.pop("held_bytes", 0)


def refuse_announced(headers: dict[bytes, bytes], limit: int) -> None:
    """
    Refuse a body by its Content-Length, before anything of it is read.

    Args:
        headers: Of the request.
        limit: Largest body. [bytes]

    Raises:
        ProblemError: 413.
    """
    announced = headers.get(b"content-length")
    if announced is not None and announced.isdigit() and int(announced[:20]) > limit:
        raise too_large(limit)


async def whole_body(
    headers: dict[bytes, bytes],
    receive: Receive,
    limit: int,
    held: Held | None = None,
    state: dict[str, Any] | None = None,
) -> bytes:
    """
    The complete body.

    Args:
        headers: Of the request.
        receive: ASGI receive.
        limit: Largest body. [bytes]
        held: What all requests hold; None: nobody counts.
        state: Of the request.

    Returns:
        Body as sent.

    Raises:
        ProblemError: 413 over the limit, 503 when others hold too much, 400 when the caller hangs up half-way.
    """
    refuse_announced(headers, limit)
    count = held.take if held is not None else _uncounted
    state = {} if state is None else state
    state[ARRIVING] = True
    message = await receive()
    body = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if len(body) > limit:
            raise too_large(limit)
        count(state, len(body))
        del state[ARRIVING]
        return bytes(body)
    parts = bytearray(body)
    count(state, len(parts))
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
        parts += message.get("body", b"")
        if len(parts) > limit:
            raise too_large(limit)
        count(state, len(parts))
    if message["type"] != "http.request":
        raise ProblemError(BAD_REQUEST, "the body ended early")
    del state[ARRIVING]
    return bytes(parts)


def _uncounted(_state: dict[str, Any], _size: int) -> None:
    """Count nothing."""


def too_large(limit: int) -> ProblemError:
    """The 413 that names the limit."""
    return ProblemError(TOO_LARGE, f"a body holds at most {limit} bytes", headers=[(b"connection", b"close")])


def slow_body() -> ProblemError:
    """The 408 for a body that was not complete at the deadline."""
    return ProblemError(SLOW_BODY, "the body was not complete at the deadline", headers=[(b"connection", b"close")])
