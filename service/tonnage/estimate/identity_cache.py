"""Results of pure functions, remembered by their arguments. Facts and models hash by identity, so a key costs next to nothing."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

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


def remembered(maximum: int = 4096) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Cache a pure function of frozen objects and plain values.

    Arguments are keyed by their own hash: by value for numbers, texts and small structs, by identity for a `Model`,
    a `WeightFormat`, a `Gpu` or a release. Of a function that takes a mapping, what has no hash (a plain dict) is keyed by
    identity too, at some cost.

    Args:
        maximum: Results kept; those not asked for longest go first. [unitless]

    Returns:
        Decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        by_hash = recent(maximum)(function)
        if not _takes_mapping(function):
            return by_hash

        @recent(maximum)
        def by_identity(*args: Any, **kwargs: Any) -> R:
            return function(*map(_bare, args), **{name: _bare(value) for name, value in kwargs.items()})

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return by_hash(*args, **kwargs)
            except TypeError:
                if all(map(_has_hash, (*args, *kwargs.values()))):
                    raise
            return by_identity(*map(_keyed, args), **{name: _keyed(value) for name, value in kwargs.items()})

        return cached

    return decorate


def _takes_mapping(function: Callable[..., Any]) -> bool:
    """Whether a parameter is a mapping, or may be anything."""
    annotations = [parameter.annotation for parameter in signature(function).parameters.values()]
    return any(
        part is Parameter.empty or get_origin(part) in _MAPPINGS for a in annotations for part in (a, *get_args(a))
    )


_MAPPINGS = (dict, Mapping)


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
