"""One input at a time, with a clock."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from tonnage.errors import CatalogError, SizingError

REFUSALS = (SizingError, ValueError, CatalogError)

PATIENCE_SECONDS = 5.0
"""Of processor time; an input that takes longer hangs. [s]"""


class HangError(BaseException):
    """An input that did not end."""


@contextlib.contextmanager
def clock() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def answered(target: Callable[[bytes], None], data: bytes) -> bool:
    """Whether the input was answered, False when it was refused; every other end is raised."""
    with clock():
        try:
            target(data)
        except REFUSALS:
            return False
        return True
