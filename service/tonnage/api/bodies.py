"""Request bodies off the wire, never more than the limit."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tonnage.api.problems import BAD_REQUEST, TOO_LARGE, ProblemError

Receive = Callable[[], Awaitable[Mapping[str, Any]]]


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


async def whole_body(headers: dict[bytes, bytes], receive: Receive, limit: int) -> bytes:
    """
    The complete body.

    Args:
        headers: Of the request.
        receive: ASGI receive.
        limit: Largest body. [bytes]

    Returns:
        Body as sent.

    Raises:
        ProblemError: 413 over the limit, 400 when the caller hangs up half-way.
    """
    refuse_announced(headers, limit)
    message = await receive()
    body = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if len(body) > limit:
            raise too_large(limit)
        return bytes(body)
    parts = bytearray(body)
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
        parts += message.get("body", b"")
        if len(parts) > limit:
            raise too_large(limit)
    if message["type"] != "http.request":
        raise ProblemError(BAD_REQUEST, "the body ended early")
    return bytes(parts)


def too_large(limit: int) -> ProblemError:
    """The 413 that names the limit."""
    return ProblemError(TOO_LARGE, f"a body holds at most {limit} bytes", headers=[(b"connection", b"close")])
