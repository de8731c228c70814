"""What a handler returns: status, headers and a body that is already bytes."""

from collections.abc import Mapping
from typing import Any

from msgspec import msgpack

from tonnage.api.problems import MEDIA_TYPE, Headers, ProblemError, encode

_CONTENT_TYPES: dict[str, bytes] = {
    "text/plain": b"text/plain; charset=utf-8",
    "text/markdown": b"text/markdown; charset=utf-8",
    "text/csv": b"text/csv; charset=utf-8",
    "text/html": b"text/html; charset=utf-8",
}


CLOSED_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE = (b"cache-control", b"no-store")


class Answer:
    """A finished response; Litestar sends it as it is."""

    __slots__ = ("body", "cache_control", "headers", "policy", "status")

    def __init__(self, body: bytes, content_type: bytes = b"application/json", *, status: int = 200) -> None:
        self.body = body
        self.status = status
        self.headers: Headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        self.policy = CLOSED_POLICY
        self.cache_control = NO_STORE

    def with_headers(self, *headers: tuple[bytes, bytes]) -> "Answer":
        """The same answer with more headers."""
        self.headers.extend(headers)
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002  (ASGI)
        """Send it (ASGI)."""
        headers = [*self.headers, self.policy, self.cache_control]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})

    def to_asgi_response(self, **_: Any) -> "Answer":
        """Litestar asks this of what an exception handler returns."""
        return self


def problem_answer(error: ProblemError, instance: str) -> Answer:
    """The problem document of an error."""
    answer = Answer(encode(error.document(instance)), MEDIA_TYPE, status=error.kind.status)
    return answer.with_headers(*error.headers)


def content_type(media_type: str) -> bytes:
    """Content-Type header of a media type."""
    return _CONTENT_TYPES.get(media_type) or media_type.encode()


def allowed_methods(headers: Headers) -> Answer:
    """What OPTIONS answers: the Allow header that a wrong method would have met."""
    answer = Answer(b"", status=204)
    answer.headers = [header for header in headers if header[0] == b"allow"]
    return answer


def msgpack_answer(value: Any) -> Answer:
    """The value as MessagePack."""
    return Answer(msgpack.encode(value), b"application/vnd.msgpack")


def request_headers(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Headers of a request; of a repeated one the last."""
    return dict(scope["headers"])
