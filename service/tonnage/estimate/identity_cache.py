"""Results of pure functions, remembered by their arguments. Facts and models hash by identity, so a key costs next to nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Any, ParamSpec, TypeVar, cast

from tonnage.kept import recent

P = ParamSpec("P")
R = TypeVar("R")


class _Same:
    """Stands for one object that has no hash, and keeps it alive so that its identity is not reused."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing


_watched: dict[int, dict[Any, Any]] = {}
"""Results of the threads that compute everything anew, each for itself; empty as long as nobody watches."""


@contextmanager
def afresh() -> Iterator[None]:
    """Within, this thread computes what it had remembered anew, so that the laws it applies can be watched."""
    _watched[get_ident()] = {}
    try:
        yield
    finally:
        del _watched[get_ident()]


def results_of_this_thread() -> dict[Any, Any] | None:
    """What this thread has computed within `afresh`; None outside it."""
    return _watched.get(get_ident()) if _watched else None


def once(found: dict[Any, Any], function: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    """
    Result of a call within `afresh`: the first of equal calls computes.

    Args:
        found: Results of this thread.
        function: Pure function.
        args: Its positional arguments.
        kwargs: The others.

    Returns:
        Its result.
    """
    key = (function, tuple(map(_keyed, args)), tuple((name, _keyed(value)) for name, value in kwargs.items()))
    if key not in found:
        found[key] = function(*args, **kwargs)
    return cast("R", found[key])


def remembered(maximum: int = 4096) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Cache a pure function of frozen objects and plain values.

    Arguments are keyed by their own hash: by value for numbers, texts and small structs, by identity for a `Model`,
    a `WeightFormat`, a `Gpu` or a release. What has no hash (a plain dict) is keyed by identity too, at some cost.

    Args:
        maximum: Results kept; those not asked for longest go first. [unitless]

    Returns:
        Decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        by_hash = recent(maximum)(function)

        @recent(maximum)
        def by_identity(*args: Any, **kwargs: Any) -> R:
            return function(*map(_bare, args), **{name: _bare(value) for name, value in kwargs.items()})

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            if _watched and (found := results_of_this_thread()) is not None:
                return once(found, function, args, kwargs)
            try:
                return by_hash(*args, **kwargs)
            except TypeError:
                if all(map(_has_hash, (*args, *kwargs.values()))):
                    raise
            return by_identity(*map(_keyed, args), **{name: _keyed(value) for name, value in kwargs.items()})

        return cached

    return decorate


def _keyed(value: Any) -> Any:
    return value if _has_hash(value) else _Same(value)


def _bare(value: Any) -> Any:
    return value.thing if isinstance(value, _Same) else value


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
