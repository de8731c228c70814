"""
How many requests a caller has sent in the last minute, over all replicas, without waiting for anything.

Each replica counts for itself and twice a second exchanges sums with Redis in one pipeline, so a request never waits
for Redis and a lost Redis only makes the count this replica's own. The window slides: of the minute before, the part
that still lies within the last 60 seconds counts.
"""

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tonnage.adapters.redis_link import RedisLink

WINDOW_SECONDS = 60
SYNC_SECONDS = 0.5
_KEY_PREFIX = "tonnage:rate:"
_MAX_CALLERS = 50_000
_MAX_SYNCED = 1_000
"""Callers whose counts one exchange carries. [unitless]"""


class Standing(Struct, frozen=True):
    """Where a caller stands after one more request."""

    allowed: bool
    remaining: int
    reset_seconds: int
    """Until the count has fallen noticeably. [s]"""


class _Tally:
    """One caller's counts."""

    __slots__ = ("before", "others", "own", "unsent", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.own = 0
        self.others = 0
        """Of the other replicas in this window, as of the last exchange."""
        self.before = 0
        """Of all replicas in the window before."""
        self.unsent = 0

    def turn(self, window: int) -> None:
        if window != self.window:
            self.before = self.own + self.others if window == self.window + 1 else 0
            self.own = self.others = self.unsent = 0
            self.window = window


class RateCounter:
    """Counts by caller."""

    def __init__(self, link: RedisLink, limit: int, clock: Callable[[], float] = time.time) -> None:
        self._link = link
        self._limit = limit
        self._clock = clock
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()
        self._syncer: asyncio.Task[None] | None = None

    @property
    def limit(self) -> int:
        """Requests in a minute; 0: no limit. [unitless]"""
        return self._limit

    def start(self) -> None:
        """Begin to exchange counts; called once the event loop runs."""
        if self._limit and self._syncer is None and self._link.state != "none":
            self._syncer = asyncio.create_task(self._sync_for_ever())

    async def close(self) -> None:
        """End the exchange."""
        if self._syncer is not None:
            self._syncer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._syncer

    def count(self, caller: str) -> Standing:
        """
        Count one request.

        Args:
            caller: Name of a key, or an address.

        Returns:
            Whether it is within the limit, and what is left. A refused request is not counted.
        """
        now = self._clock()
        window, into = divmod(now, WINDOW_SECONDS)
        tally = self._tally(caller, int(window))
        recent = tally.own + tally.others + tally.before * (1 - into / WINDOW_SECONDS)
        if recent + 1 > self._limit:
            return Standing(False, 0, self._wait(tally, into, recent))
        tally.own += 1
        tally.unsent += 1
        return Standing(True, max(0, math.floor(self._limit - recent - 1)), math.ceil(WINDOW_SECONDS - into))

    def _tally(self, caller: str, window: int) -> _Tally:
        tally = self._tallies.get(caller)
        if tally is None:
            tally = self._tallies[caller] = _Tally(window)
            if len(self._tallies) > _MAX_CALLERS:
                self._tallies.popitem(last=False)
        else:
            self._tallies.move_to_end(caller)
        tally.turn(window)
        return tally

    def _wait(self, tally: _Tally, into: float, recent: float) -> int:
        """Seconds until one more request would be within the limit, if no other comes."""
        left = WINDOW_SECONDS - into
        excess = recent + 1 - self._limit
        if tally.before and excess * WINDOW_SECONDS / tally.before <= left:
            return math.ceil(excess * WINDOW_SECONDS / tally.before)
        counted = tally.own + tally.others
        return math.ceil(left + WINDOW_SECONDS * max(0.0, 1 - (self._limit - 1) / counted))

    async def _sync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            with contextlib.suppress(LookupError):
                await self.exchange()

    async def exchange(self) -> None:
        """Tell Redis the new counts of this replica and hear those of the others."""
        window = int(self._clock() // WINDOW_SECONDS)
        active = [(name, tally) for name, tally in self._tallies.items() if tally.window == window and tally.unsent]
        active = active[-_MAX_SYNCED:]
        if not active or not self._link.usable:
            return
        sent = [tally.unsent for _, tally in active]
        replies = await self._link.ask(
            lambda client: _add(client, window, [name for name, _ in active], sent), patience_seconds=SYNC_SECONDS
        )
        for (_, tally), unsent, total in zip(active, sent, replies or [], strict=False):
            if tally.window == window and isinstance(total, int):
                tally.unsent -= unsent
                tally.others = max(0, total - (tally.own - tally.unsent))


async def _add(client: Any, window: int, names: list[str], counts: list[int]) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for name, count in zip(names, counts, strict=True):
        key = f"{_KEY_PREFIX}{window}:{name}"
        pipeline.incrby(key, count)
        pipeline.expire(key, 2 * WINDOW_SECONDS)
    replies = await pipeline.execute(raise_on_error=False)
    return list(replies[::2])
