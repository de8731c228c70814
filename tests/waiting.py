"""
How tests wait: for what comes sooner or later, never for a length of time that a faster or slower machine would change.

`SECONDS` is the patience with what never came; no test passes or fails by how much of it was used.
"""

import asyncio
import functools
import itertools
import os
import selectors
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

SECONDS = 60.0

_PORTS = range(12_000, 32_000)
"""Below those that the kernel gives to outgoing connections, so that none of them takes a port that was found free."""
_next_port = itertools.count(os.getpid() * 997)
"""Processes that run tests side by side begin far from each other."""


def free_port() -> int:
    """A port that nothing listens on, and that no other call here is given soon."""
    for number in itertools.islice(_next_port, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")


def wait_for(condition: Callable[[], object]) -> None:
    """Until a condition holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


async def until(condition: Callable[[], object]) -> None:
    """Until a condition holds, while the event loop runs."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


class _Skipping(selectors.DefaultSelector):
    """Instead of waiting for a timer it moves the clock."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(0)
        if not events:
            self.passed += timeout
        return events


class _StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only while everybody sleeps, and then to the next timer at once."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.passed


def in_still_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test without sockets whose sleeps and time-outs last exactly as long as it says, and no real time."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=_StillLoop) as runner:
            runner.run(test(*arguments, **named))  # type: ignore[arg-type]

    return run
