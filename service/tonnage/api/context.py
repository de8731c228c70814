"""What a handler needs of its request and of the process, without the framework's costlier views of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from tonnage.adapters.redis_cache import TwoLevelCache
from tonnage.adapters.redis_link import RedisLink
from tonnage.api.answers import Answer
from tonnage.api.bodies import Held, whole_body
from tonnage.api.decoding import media_type, require_json
from tonnage.api.gate import Gate
from tonnage.api.settings import Settings
from tonnage.api.sizing import Desk
from tonnage.api.telemetry import Telemetry
from tonnage.catalog import Catalog

_VARY = (b"vary", b"accept")


class Lifecycle:
    """Whether the process is on its way in or out, and how much it still does."""

    def __init__(self) -> None:
        self.warming = False
        self.draining = False
        self.in_flight = 0


class Runtime(Struct, frozen=True, kw_only=True):
    """The parts of one running application."""

    settings: Settings
    telemetry: Telemetry
    desk: Desk
    lifecycle: Lifecycle
    lookups: TwoLevelCache
    link: RedisLink
    gate: Gate
    held: Held


class Context:
    """One request."""

    __slots__ = ("accept", "headers", "query", "receive", "runtime", "scope")

    def __init__(self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[Any]]) -> None:
        state = scope["state"]
        self.scope = scope
        self.receive = receive
        self.runtime: Runtime = state["runtime"]
        self.headers: dict[bytes, bytes] = state["headers"]
        self.accept = self.headers.get(b"accept")
        self.query: bytes = scope["query_string"]

    @property
    def path_params(self) -> Mapping[str, Any]:
        """What stands in the variable parts of the path."""
        params: Mapping[str, Any] = self.scope["path_params"]
        return params

    @property
    def desk(self) -> Desk:
        """Where questions are answered."""
        return self.runtime.desk

    @property
    def catalog(self) -> Catalog:
        """The catalogue in use."""
        return self.runtime.desk.sizing.catalog

    @property
    def is_batch(self) -> bool:
        """Whether the body is lines of JSON."""
        return media_type(self.headers.get(b"content-type")) == b"application/x-ndjson"

    def require_json(self) -> None:
        """Refuse a body that is not JSON."""
        require_json(self.headers.get(b"content-type"), self.headers.get(b"content-encoding"))

    async def json_body(self) -> bytes:
        """The body, once its type and size are fine."""
        self.require_json()
        runtime = self.runtime
        limit = runtime.settings.body_limit_bytes
        return await whole_body(self.headers, self.receive, limit, runtime.held, self.scope["state"])

    def cacheable(self, answer: Answer, version: str, fields: tuple[str, ...] = (), *, max_age: int = 0) -> Answer:
        """The answer with its ETag, or the 304 when the caller has it already."""
        kind = answer.headers[0][1].partition(b";")[0].rpartition(b"/")[2]
        part = f"-{'.'.join(fields)}" if fields else ""
        etag = b'"%s-%s"' % (f"{version.removeprefix('sha256:')[:32]}{part}".encode(), kind)
        whose = b"public" if self.runtime.gate.keys is None else b"private"
        answer.cache_control = (b"cache-control", b"%s, max-age=%d" % (whose, max_age) if max_age else b"no-cache")
        if matches(self.headers.get(b"if-none-match"), etag):
            answer.status, answer.body, answer.headers = 304, b"", []
        return answer.with_headers((b"etag", etag), _VARY)


def matches(if_none_match: bytes | None, etag: bytes) -> bool:
    """
    Whether the caller already has a representation (RFC 9110, 13.1.2: weak comparison).

    Args:
        if_none_match: Header as sent, None when absent.
        etag: Of the current representation, with its quotes.

    Returns:
        True for `*` and for a list that holds the tag.
    """
    if if_none_match is None:
        return False
    if if_none_match in (etag, b"*"):
        return True
    return etag in (tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b","))
