"""Browsers of other origins: off unless their origins are listed."""

from collections.abc import Mapping

from tonnage.api.answers import Answer
from tonnage.api.problems import Headers
from tonnage.api.settings import Settings

_VARY = (b"vary", b"origin")
_MAX_AGE_SECONDS = b"600"


class Origins:
    """Origins that may call."""

    def __init__(self, settings: Settings) -> None:
        self.allowed = frozenset(part.strip().encode() for part in settings.cors_origins.split(",") if part.strip())

    def headers(self, request: Mapping[bytes, bytes]) -> Headers:
        """Headers that let a listed origin read the answer. [unitless]"""
        origin = request.get(b"origin")
        if origin is None or not self._lets_in(origin):
            return [_VARY] if self.allowed else []
        exposed = b"etag, link, retry-after, x-request-id, ratelimit-limit, ratelimit-remaining, ratelimit-reset"
        return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", exposed), _VARY]

    def preflight(self, method: str, request: Mapping[bytes, bytes]) -> Answer | None:
        """Answer to a browser that asks first, None to anything else."""
        if method != "OPTIONS" or b"access-control-request-method" not in request or b"origin" not in request:
            return None
        answer = Answer(b"", status=204)
        answer.headers = []
        if self._lets_in(request[b"origin"]):
            answer.headers = [
                (b"access-control-allow-methods", b"GET, HEAD, POST"),
                (b"access-control-allow-headers", b"accept, authorization, content-type, if-none-match, x-request-id"),
                (b"access-control-max-age", _MAX_AGE_SECONDS),
            ]
        return answer

    def _lets_in(self, origin: bytes) -> bool:
        return origin in self.allowed or b"*" in self.allowed
