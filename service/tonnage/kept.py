"""
What the process keeps between two questions, and where that ends.

Every cache is bounded by number. What the catalogue holds is small and soon all there; what callers describe
themselves may be large, and each cache holds it again. So it is weighed when it is first seen, and once the weights
reach the budget all caches are emptied together: one that kept its part would keep the rest alive.
"""

import gc
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar
from weakref import WeakSet

from tonnage.units import MiB

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

BUDGET_BYTES = 64 * MiB
"""What may be described before everything is forgotten. [bytes]"""

YOUNG = 20_000
"""Records made before the collector looks; a /fit over the whole catalogue makes about as many. [unitless]"""

_dictionaries: "WeakSet[Kept[Any, Any]]" = WeakSet()
_clear_functions: list[Callable[[], None]] = []
_weighed = 0


class Kept(dict[K, V]):
    """A dictionary of bounded length; the oldest goes first."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # in a set by identity

    def __init__(self, most: int) -> None:
        """
        An empty one.

        Args:
            most: Entries kept. [unitless]
        """
        super().__init__()
        self._most = most
        _dictionaries.add(self)

    def keep(self, key: K, value: V) -> V:
        """
        Hold a value, in place of the oldest when full.

        Args:
            key: What it is found by.
            value: What is held.

        Returns:
            The value.
        """
        if len(self) >= self._most:
            try:
                self.pop(next(iter(self)), None)
            except (StopIteration, RuntimeError):  # another thread emptied or filled it in between
                self.clear()
        self[key] = value
        return value


def recent(most: int) -> Callable[[F], F]:
    """
    Cache of a pure function by the values of its arguments; those not asked for longest go first.

    Args:
        most: Results kept. [unitless]

    Returns:
        Decorator.
    """

    def decorate(function: F) -> F:
        cached: Any = lru_cache(maxsize=most)(function)
        _clear_functions.append(cached.cache_clear)
        return cached  # type: ignore[no-any-return]  # as the function it stands for returns

    return decorate


def weigh(size: int) -> None:
    """
    Count what was described; everything is forgotten when the budget is spent.

    Args:
        size: About what all caches together will hold of it. [bytes]
    """
    global _weighed  # noqa: PLW0603  (one process, one budget)
    _weighed += size
    if _weighed > BUDGET_BYTES:
        forget()


def forget() -> None:
    """Empty every cache."""
    global _weighed  # noqa: PLW0603  (as above)
    _weighed = 0
    for dictionary in list(_dictionaries):
        dictionary.clear()
    for clear in _clear_functions:
        clear()


def settle() -> None:
    """
    What is kept by now stays: the collector need not walk through it again.

    It looks less often as well: one answer makes thousands of records that live until it is sent and hold no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)


__all__ = ["BUDGET_BYTES", "Kept", "forget", "recent", "settle", "weigh"]
