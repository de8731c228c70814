"""Results remembered by the identity of frozen objects, whose own hash would cost more than the lookup saves."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN = (int, str, float, bool, type(None))


def remembered(maximum: int = 4096) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Cache a pure function of frozen objects.

    Objects are keyed by identity and kept alive with the result, so an identity cannot be reused;
    plain values are keyed by value. When full, everything is forgotten.

    Args:
        maximum: Results kept. [unitless]

    Returns:
        Decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        results: dict[tuple[Any, ...], tuple[R, tuple[Any, ...]]] = {}

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            values = (*args, *kwargs.values())
            key = (*(v if isinstance(v, _PLAIN) else id(v) for v in values), *kwargs)
            found = results.get(key)
            if found is None:
                if len(results) >= maximum:
                    results.clear()
                found = results[key] = (function(*args, **kwargs), values)
            return found[0]

        return cached

    return decorate
