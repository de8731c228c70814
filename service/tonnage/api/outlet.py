"""
Where log lines leave the process: a thread of their own, so that a full pipe, a stopped terminal or a slow disk never
holds up a request or the exit.
"""

import os
import threading
from collections import deque
from collections.abc import Callable

from tonnage.units import MiB

HELD_BYTES = MiB
"""What may wait for the reader; more is dropped and counted."""


class Outlet:
    """One file descriptor, written by one thread that starts with the first lines."""

    def __init__(self, descriptor: int, dropped: Callable[[int], None] | None = None) -> None:
        self._descriptor = descriptor
        self._count_dropped = dropped or (lambda _lines: None)
        self._waiting: deque[bytes] = deque()
        self._held = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, lines: bytes) -> None:
        """
        Take lines over without waiting for anything.

        Args:
            lines: Whole lines; dropped and counted when too much waits already.
        """
        with self._changed:
            if self._held and self._held + len(lines) > HELD_BYTES:
                self._count_dropped(lines.count(b"\n"))
                return
            self._waiting.append(lines)
            self._held += len(lines)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_for_ever, name="log", daemon=True)
                self._thread.start()

    def drain(self, seconds: float) -> bool:
        """Wait until everything is written, at most this long; whether it is. [s]"""
        with self._changed:
            return self._changed.wait_for(lambda: not self._held, seconds)

    def _write_for_ever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                lines = self._waiting.popleft()
            written = self._written(lines)
            with self._changed:
                self._held -= len(lines)
                if written < len(lines):
                    self._count_dropped(lines[written:].count(b"\n"))
                self._changed.notify_all()

    def _written(self, lines: bytes) -> int:
        """How much of the lines went out before an error; all of it without one. [bytes]"""
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            pass
        return len(lines) - len(left)
