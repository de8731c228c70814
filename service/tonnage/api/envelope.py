"""
What surrounds every request: id, deadline, cap on requests in flight, security headers, metrics, access log.

One ASGI wrapper, because stacked middlewares cost more and would not see what escapes the framework.
"""

import asyncio
import itertools
import logging
import re
import secrets
import time
from typing import Any

from tonnage.api import problems
from tonnage.api.answers import Answer, problem_answer, request_headers
from tonnage.api.bodies import ARRIVING, slow_body
from tonnage.api.context import Runtime
from tonnage.api.cors import Origins
from tonnage.api.deadlines import Deadlines
from tonnage.api.deprecations import DEPRECATED, deprecation_headers
from tonnage.api.failures import as_problem
from tonnage.api.telemetry import AccessLog, timestamp

logger = logging.getLogger("tonnage")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_FLUSH_SECONDS = 0.2
_REFUSALS = (problems.OVERLOADED, problems.DEADLINE, problems.RATE_LIMITED, problems.UNAUTHORIZED, problems.FORBIDDEN)
_ALWAYS_SERVED = frozenset({"/healthz", "/readyz", "/metrics"})
ANY_METHOD = "ANY"
_ASKED_AS = {"HEAD": "GET", "OPTIONS": ANY_METHOD}
"""The framework answers HEAD with 405 and knows only some methods of a path; a method it cannot know names them all."""
_STATIC_HEADERS = (
    (b"api-version", b"1"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_LAST_ANSWER = (b"connection", b"close")
"""While the process drains: the next request goes to another replica, before this port closes."""


class Envelope:
    """The application as the server sees it."""

    def __init__(self, app: Any, runtime: Runtime, log: AccessLog | None) -> None:
        self.app = app
        self.runtime = runtime
        self.telemetry = runtime.telemetry
        self.gate = runtime.gate
        self._lifecycle = runtime.lifecycle
        self._origins = Origins(runtime.settings)
        self._log = log
        self._cap = runtime.settings.max_in_flight
        self._deadlines = Deadlines(runtime.settings.deadline_seconds)
        self._prefix = secrets.token_hex(6).encode()
        self._numbers = itertools.count(1)
        self.telemetry.in_flight.set_function(lambda: self._lifecycle.in_flight)

    @property
    def draining(self) -> bool:
        """Whether the process is on its way out."""
        return self._lifecycle.draining

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request (ASGI)."""
        exchange = _Exchange(self, scope, send)
        self._lifecycle.in_flight += 1
        try:
            await self._serve(exchange, receive)
        finally:
            self._lifecycle.in_flight -= 1
            if "held_bytes" in exchange.scope["state"]:
                self.runtime.held.release(exchange.scope["state"])
            self._record(exchange)

    async def _serve(self, exchange: "_Exchange", receive: Any) -> None:
        try:
            if self._lifecycle.in_flight > self._cap and exchange.path not in _ALWAYS_SERVED:
                raise problems.ProblemError(
                    problems.OVERLOADED, f"{self._cap} requests are in flight", headers=[(b"retry-after", b"1")]
                )
            if self._origins.allowed and (answer := self._cross_origin(exchange)):
                await answer(exchange.scope, receive, exchange.send)
                return
            if not self.gate.is_open:
                exchange.extra = [*exchange.extra, *self.gate(exchange.scope, exchange.headers)]
            with self._deadlines.begin() as deadline:
                exchange.scope["state"]["deadline"] = deadline
                await self.app(exchange.scope, receive, exchange.send)
        except Exception as error:  # the last resort: nothing may reach the server
            await self._fail(exchange, error)

    def _cross_origin(self, exchange: "_Exchange") -> Answer | None:
        exchange.extra = [*exchange.extra, *self._origins.headers(exchange.headers)]
        return self._origins.preflight(exchange.method, exchange.headers)

    async def _fail(self, exchange: "_Exchange", error: Exception) -> None:
        """Answer with a problem if nothing was sent, else leave the response broken off."""
        slow = isinstance(error, TimeoutError) and ARRIVING in exchange.scope["state"]
        problem = slow_body() if slow else as_problem(error)
        if problem.kind in _REFUSALS:
            self.telemetry.refused.labels(problem.kind.slug).inc()
        if problem.kind is problems.INTERNAL:
            logger.error("request %s failed", exchange.request_id.decode(), exc_info=error)
        if exchange.status:
            raise error
        await problem_answer(problem, exchange.path)(exchange.scope, _nothing, exchange.send)

    def _record(self, exchange: "_Exchange") -> None:
        seconds = time.perf_counter() - exchange.started
        route = exchange.scope.get("path_template") or "unmatched"
        self.telemetry.request(route, exchange.method, exchange.status, seconds)
        if self._log is not None and self._log.line(exchange.fields(route, seconds)):
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._log.flush)

    def request_id(self, given: bytes | None) -> bytes:
        """The caller's id when it is harmless, else a new one."""
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given
        return b"%s-%x" % (self._prefix, next(self._numbers))


class _Exchange:
    """One request and its response as they pass through."""

    __slots__ = (
        "_send", "extra", "headers", "method", "path", "request_id", "scope", "sent_bytes", "started", "status",
    )  # fmt: skip

    def __init__(self, envelope: Envelope, scope: Any, send: Any) -> None:
        self.started = time.perf_counter()
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.scope: Any = {**scope, "method": _ASKED_AS[self.method]} if self.method in _ASKED_AS else scope
        self.headers = request_headers(scope)
        self.request_id = envelope.request_id(self.headers.get(b"x-request-id"))
        self.status = 0
        self.sent_bytes = 0
        self.extra: list[tuple[bytes, bytes]] = [_LAST_ANSWER] if envelope.draining else []
        self._send = send
        state = self.scope.setdefault("state", {})
        state["headers"] = self.headers
        state["runtime"] = envelope.runtime

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message["headers"],
                (b"x-request-id", self.request_id),
                *_STATIC_HEADERS,
                *self.extra,
            ]
            if DEPRECATED:
                message["headers"] += deprecation_headers(self.method, self.scope.get("path_template") or "")
        else:
            body = message.get("body", b"")
            self.sent_bytes += len(body)
            if self.method == "HEAD":
                message["body"] = b""
        await self._send(message)

    def fields(self, route: str, seconds: float) -> dict[str, Any]:
        """What the access log says; no query, body or key."""
        state = self.scope["state"]
        return {
            "time": timestamp(time.time()),
            "level": "info",
            "message": "request",
            "request_id": self.request_id.decode(),
            "method": self.method,
            "route": route,
            "path": self.path[:200],
            "status": self.status,
            "duration_ms": round(seconds * 1000, 3),
            "bytes": self.sent_bytes,
            "client": (self.scope.get("client") or ("",))[0],
            "key": state.get("key_name"),
        }


async def _nothing() -> Any:
    return {"type": "http.disconnect"}
