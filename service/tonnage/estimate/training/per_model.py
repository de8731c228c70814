"""Results remembered for a model (or another record) by its identity, and for everything else by value."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from tonnage.kept import Kept

M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")


def per_model(
    maximum: int = 4096,
) -> Callable[[Callable[Concatenate[M, P], R]], Callable[Concatenate[M, P], R]]:
    """
    Cache of a pure function whose first argument is a model, or another record that is made once.

    It is kept alive with the result, so that its identity cannot be reused; the other arguments are hashed.

    Args:
        maximum: Results kept. [unitless]

    Returns:
        Decorator.
    """

    def decorate(function: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
        results: Kept[tuple[Any, ...], tuple[R, M]] = Kept(maximum)

        @wraps(function)
        def cached(model: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
            key = (id(model), args, tuple(kwargs.values()))
            found = results.get(key)
            if found is None:
                found = results.keep(key, (function(model, *args, **kwargs), model))
            return found[0]

        return cached

    return decorate
