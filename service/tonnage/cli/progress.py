"""A line on the terminal for whatever takes longer than a second; silent in pipelines."""

import sys
import threading
import time
from types import TracebackType

_PATIENCE = 1.0
"""How long nothing is shown. [s]"""
_TICK = 0.2
"""How often the line changes. [s]"""
_WIDTH = 20
"""Of the bar. [characters]"""
_CLEAR = "\r\x1b[K"


class Progress:
    """Counts what is done and says so on standard error, where that is a terminal."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self._done += count

    def line(self, seconds: float) -> str:
        """
        What the terminal shows.

        Args:
            seconds: Since the start. [s]

        Returns:
            Bar, count, share, speed and what is left, as far as they are known.
        """
        if not self._done:
            return f"{self._what} {seconds:.0f} s"
        speed = self._done / seconds
        if not self._total:
            return f"{self._what} {self._done:,}, {speed:,.0f} a second"
        bar = "#" * (_WIDTH * self._done // self._total)
        left = (self._total - self._done) / speed
        return (
            f"{self._what} [{bar:.<{_WIDTH}}] {self._done:,} of {self._total:,} ({100 * self._done // self._total} %), "
            f"{speed:,.0f} a second, {left:.0f} s left"
        )

    def _show(self) -> None:
        if self._over.wait(_PATIENCE):
            return
        while not self._over.wait(_TICK):
            sys.stderr.write(_CLEAR + self.line(time.monotonic() - self._started))
            sys.stderr.flush()
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()
