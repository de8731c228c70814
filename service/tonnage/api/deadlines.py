"""
Deadlines of requests, kept by one look at all of them instead of one timer each.

A request pays for putting itself into a dictionary and out again; a quarter of a second of patience more is the price.
Of many that are late together a few are ended at a time, and others have a turn before the next few.
"""

import asyncio
from types import TracebackType
from typing import Any

_LOOK_SECONDS = 0.25
_AT_ONCE = 2
"""Requests that are ended without a turn of others in between. [unitless]"""


class Deadline:
    """Time one request has; entered around its work."""

    __slots__ = ("_cancelling", "_keeper", "_task", "passed", "until")

    def __init__(self, keeper: "Deadlines", until: float) -> None:
        self._keeper = keeper
        self.until = until
        self.passed = False
        self._task: asyncio.Task[Any] | None = None

    def reschedule(self, until: float) -> None:
        """Give it until another time of the event loop's clock. [s]"""
        self.until = until

    def __enter__(self) -> "Deadline":
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        self._keeper.running[self] = self._task
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeper.running.pop(self, None)
        if self.passed and self._task is not None:
            left = self._task.uncancel()
            if left <= self._cancelling and kind is asyncio.CancelledError:
                raise TimeoutError from error


class Deadlines:
    """All requests that are running."""

    def __init__(self, seconds: float) -> None:
        self.running: dict[Deadline, asyncio.Task[Any] | None] = {}
        self._seconds = seconds
        self._look_seconds = min(_LOOK_SECONDS, seconds / 4)
        self._watched: asyncio.AbstractEventLoop | None = None

    def begin(self) -> Deadline:
        """Deadline of a request that begins now."""
        loop = asyncio.get_running_loop()
        if self._watched is not loop:
            self._watched = loop
            loop.call_later(self._look_seconds, self._look, loop)
        return Deadline(self, loop.time() + self._seconds)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what has had its time; stop looking once nothing runs."""
        now, late = loop.time(), 0
        for deadline, task in list(self.running.items()):
            if now > deadline.until and not deadline.passed and task is not None and task.get_loop() is loop:
                late += 1
                if late > _AT_ONCE:
                    break
                deadline.passed = True
                task.cancel()
        if late > _AT_ONCE:
            loop.call_soon(self._look, loop)
        elif self.running:
            loop.call_later(self._look_seconds, self._look, loop)
        elif self._watched is loop:
            self._watched = None
