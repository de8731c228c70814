"""Results remembered by the identity of frozen objects, whose own hash would cost more than the lookup saves."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN = (int, str, float)


def remembered(maximum: int = 4096) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Cache a pure function of frozen objects and plain values.

    Positional arguments are keyed by identity and kept alive with the result, so that an identity cannot be
    reused; numbers and texts among them, and keyword arguments, are keyed by value (by identity where they have
    no hash). Cheapest with objects in positions and numbers in keywords. When full, everything is forgotten.

    Args:
        maximum: Results kept. [unitless]

    Returns:
        Decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        results: dict[tuple[Any, ...], tuple[R, tuple[Any, ...]]] = {}
        plain: set[int] = set()

        def key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
            named = tuple(v if _has_hash(v) else id(v) for v in kwargs.values())
            return (*(v if n in plain else id(v) for n, v in enumerate(args)), *kwargs, *named)

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                found = results.get(key_of(args, kwargs) if plain else (*map(id, args), *kwargs, *kwargs.values()))
            except TypeError:
                found = results.get(key_of(args, kwargs))
            if found is not None:
                return found[0]
            plain.update(n for n, v in enumerate(args) if isinstance(v, _PLAIN))
            if len(results) >= maximum:
                results.clear()
            result = function(*args, **kwargs)
            results[key_of(args, kwargs)] = (result, (args, kwargs))
            return result

        return cached

    return decorate


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
