"""
One shared Redis that may be absent, slow, hung or wrong, and must never be felt.

No command waits longer than the time-out and none is repeated. After a few failures in a row Redis is left alone, after a
few slow replies only what nobody waits for goes on; a background probe asks when all is well again, so that no request
pays for finding out.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from msgspec import Struct
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

logger = logging.getLogger("tonnage.redis")

T = TypeVar("T")

State = Literal["none", "connecting", "up", "down"]

_PROBE_SECONDS = 1.0
"""How long a probe may wait; it holds up nobody. [s]"""
_PROBES = 3
"""Replies of which the quickest counts: one may be late because this process was busy. [unitless]"""
_SLOW_PART = 0.25
"""Of the time-out: a reply that takes longer costs more than the work it saves. [fraction]"""
_SENTINEL = "redis+sentinel://"
_CLUSTER = "redis+cluster://"


class LinkSettings(Struct, frozen=True, kw_only=True):
    """How Redis is reached."""

    url: str
    timeout_seconds: float = 0.05
    connections: int = 16
    failures: int = 3
    """Failures in a row after which it is left alone. [unitless]"""
    pause_seconds: float = 2.0
    """Between probes while it is. [s]"""

    @property
    def slow_seconds(self) -> float:
        """A reply that takes longer is not worth the wait. [s]"""
        return self.timeout_seconds * _SLOW_PART


class RedisLink:
    """The way to Redis, with its state."""

    def __init__(
        self,
        settings: LinkSettings,
        on_state: Callable[[State], None] = lambda _: None,
        client: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state: State = "connecting" if settings.url else "none"
        self.last_error = ""
        self._settings = settings
        self._on_state = on_state
        self._client: Any = client
        self._clock = clock
        self._failures = 0
        self._slow = 0
        """Slow replies in a row. [unitless]"""
        self._wake = asyncio.Event()
        self._prober: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether asking is worth a try."""
        return self.state == "up"

    @property
    def prompt(self) -> bool:
        """Whether it is worth one where somebody waits."""
        return self.state == "up" and self._slow < self._settings.failures

    def start(self) -> None:
        """Begin to look for Redis; called once the event loop runs."""
        if self.state != "none" and self._prober is None:
            self._prober = asyncio.create_task(self._probe_for_ever())

    async def close(self) -> None:
        """End the connections."""
        if self._prober is not None:
            self._prober.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._prober
            self._prober = None
        if self._client is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await asyncio.wait_for(self._client.aclose(), _PROBE_SECONDS)

    async def ask(self, command: Callable[[Any], Awaitable[T]], *, patience_seconds: float | None = None) -> T | None:
        """
        The reply of one command.

        Args:
            command: Function from the client to the reply.
            patience_seconds: Longest wait where nobody waits for it, and nothing is slow, never less than the link's own;
                that when omitted. [s]

        Returns:
            The reply; None when Redis is not usable or fails.

        Raises:
            LookupError: It failed just now, for the caller to count; its state is kept here.
        """
        if not (self.prompt if patience_seconds is None else self.usable):
            return None
        started = self._clock()
        try:
            async with asyncio.timeout(max(patience_seconds or 0, self._settings.timeout_seconds)):
                reply = await command(self._client)
        except (RedisError, OSError, TimeoutError, ValueError, TypeError, AttributeError) as error:
            self._failed(error)
            raise LookupError(str(error) or type(error).__name__) from error
        self._failures = 0
        if patience_seconds is None:
            self._took(self._clock() - started)
        return reply

    def _took(self, seconds: float) -> None:
        self._slow = self._slow + 1 if seconds > self._settings.slow_seconds else 0
        if self._slow == self._settings.failures:
            logger.warning("redis is slow: look-ups go without it")
            self._wake.set()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self.last_error = type(error).__name__
        if self._failures >= self._settings.failures and self.state == "up":
            self._become("down")
            self._wake.set()

    def _become(self, state: State) -> None:
        if state != self.state:
            logger.warning("redis is %s%s", state, f" after {self.last_error}" if state == "down" else "")
        self.state = state
        self._on_state(state)

    async def _probe_for_ever(self) -> None:
        while True:
            seconds = await self._answers()
            if seconds is not None and seconds <= self._settings.timeout_seconds:
                self._failures = 0
                self._slow = 0 if seconds <= self._settings.slow_seconds else self._settings.failures
                self._become("up")
                if self.prompt:
                    self._wake.clear()
                    await self._wake.wait()
            elif self.state != "down":
                self._become("down")
            await asyncio.sleep(self._settings.pause_seconds)

    async def _answers(self) -> float | None:
        """Seconds that the quickest of a few replies takes; None without one."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                if self._client is None:
                    self._client = client_of(self._settings)
                await self._client.ping()
                return min([await self._seconds_of(self._client.ping) for _ in range(_PROBES)])
        except (RedisError, OSError, TimeoutError, ValueError, TypeError, AttributeError) as error:
            self.last_error = type(error).__name__
            return None

    async def _seconds_of(self, command: Callable[[], Awaitable[object]]) -> float:
        started = self._clock()
        await command()
        return self._clock() - started


def client_of(settings: LinkSettings) -> Any:
    """
    Client for an address.

    Args:
        settings: With a redis://, rediss://, unix://, redis+sentinel://host:port,host:port/service/db or
            redis+cluster://host:port,host:port address.

    Returns:
        Asynchronous client without retries.

    Raises:
        ValueError: The address has another form.
    """
    if settings.url.startswith(_SENTINEL):
        return _sentinel_client(settings)
    if settings.url.startswith(_CLUSTER):
        return _cluster_client(settings)
    pool = BlockingConnectionPool.from_url(
        settings.url, max_connections=settings.connections, timeout=settings.timeout_seconds, **_limits(settings)
    )
    return Redis(connection_pool=pool)


def _limits(settings: LinkSettings) -> dict[str, Any]:
    return {
        "socket_timeout": settings.timeout_seconds,
        "socket_connect_timeout": settings.timeout_seconds,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "health_check_interval": 0,
    }


def _sentinel_client(settings: LinkSettings) -> Any:
    credentials, nodes, rest = _parts(settings.url.removeprefix(_SENTINEL))
    service, _, database = rest.partition("/")
    if not service:
        raise ValueError("a sentinel address names its service: redis+sentinel://host:26379/mymaster/0")
    sentinel: Any = Sentinel(nodes, sentinel_kwargs=_limits(settings), **_limits(settings))  # type: ignore[no-untyped-call]
    return sentinel.master_for(service, db=int(database or 0), max_connections=settings.connections, **credentials)


def _cluster_client(settings: LinkSettings) -> Any:
    credentials, nodes, _ = _parts(settings.url.removeprefix(_CLUSTER))
    return RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in nodes],
        socket_timeout=settings.timeout_seconds,
        socket_connect_timeout=settings.timeout_seconds,
        retry=Retry(NoBackoff(), 0),
        max_connections=settings.connections,
        require_full_coverage=False,
        **credentials,
    )


def _parts(address: str) -> tuple[dict[str, Any], list[tuple[str, int]], str]:
    """Credentials, nodes and what follows the first slash."""
    hosts, _, rest = address.partition("/")
    user, at, hosts_only = hosts.rpartition("@")
    credentials: dict[str, Any] = {}
    if at:
        name, _, password = user.partition(":")
        credentials = {"password": password} | ({"username": name} if name else {})
    nodes = []
    for node in (hosts_only if at else hosts).split(","):
        host, _, port = node.rpartition(":")
        nodes.append((host, int(port)))
    return credentials, nodes, rest
