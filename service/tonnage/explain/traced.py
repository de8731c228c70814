"""Numbers that remember how they came about: results of laws, and what is computed from them."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

Number: TypeAlias = int | float


class Applied(NamedTuple):
    """One application of a law."""

    law: str
    """Its name, as items say it."""
    inputs: Mapping[str, Any]
    result: Any


class Part(NamedTuple):
    """One of several numbers that a law gives together."""

    applied: Applied
    name: str


class Named(NamedTuple):
    """A number that a law is given, by the name it has there."""

    name: str


class Labelled(NamedTuple):
    """A part of a sum that has a name of its own, such as the weights of one component."""

    name: str
    of: "Traced | Number"


class Operation(NamedTuple):
    """An operation on numbers, some of which are traced."""

    sign: str
    operands: "tuple[Traced | Number, ...]"


Origin: TypeAlias = Applied | Part | Named | Labelled | Operation


class Traced:
    """
    A number with its origin; it computes, compares and prints as the number does.

    Args:
        value: The number.
        origin: What it is the result of.
    """

    __slots__ = ("known_as", "origin", "value")

    def __init__(self, value: Number, origin: Origin) -> None:
        self.value = value
        self.origin = origin
        self.known_as = ""
        """Name under which it is told elsewhere: that of an item, of a sum."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return str(self.value)

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        return format(self.value, how)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return operator.index(cast("int", self.value))

    def __float__(self) -> float:
        return float(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == bare(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < bare(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= bare(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > bare(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= bare(other))


def bare(value: Any) -> Any:
    """The number without its origin; anything else as it is."""
    return value.value if isinstance(value, Traced) else value


def computed(sign: str, function: Callable[..., Any], *operands: Any) -> Any:
    """
    Apply an operation to numbers, and remember it when one of them is traced.

    Args:
        sign: What the operation is called.
        function: What it does to plain numbers.
        operands: Numbers.

    Returns:
        The result, traced when an operand is; what is no number stays as it is.
    """
    kept = _unchanged(sign, operands)
    if kept is not None:
        return kept
    result = function(*map(bare, operands))
    if isinstance(result, bool) or not isinstance(result, int | float) or not any(map(is_traced, operands)):
        return result
    return Traced(result, Operation(sign, operands))


_WHOLE_IN_FLOAT = 2**53


def _unchanged(sign: str, operands: tuple[Any, ...]) -> Any:
    """What adding nothing, or taking something once, leaves as it is."""
    match sign, operands:
        case ("+" | "−", (Traced() as kept, 0)) | ("+", (0, Traced() as kept)):
            return kept
        case ("×", (Traced() as kept, 1)) | ("×", (1, Traced() as kept)):
            return kept if abs(kept.value) < _WHOLE_IN_FLOAT else None
        case ("//", (Traced() as kept, 1)):
            return kept if isinstance(kept.value, int) else None
        case (("floor" | "ceil" | "round"), (Traced() as kept,)):
            return kept if isinstance(kept.value, int) else None
    return None


def is_traced(value: Any) -> bool:
    """Whether a value is a number with an origin."""
    return isinstance(value, Traced)


_BINARY = {
    "add": ("+", operator.add), "sub": ("−", operator.sub), "mul": ("×", operator.mul),
    "truediv": ("/", operator.truediv), "floordiv": ("//", operator.floordiv), "mod": ("mod", operator.mod),
    "pow": ("^", operator.pow),
}  # fmt: skip
_UNARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "neg": ("neg", operator.neg), "abs": ("abs", abs), "round": ("round", round), "ceil": ("ceil", math.ceil),
    "floor": ("floor", math.floor), "trunc": ("floor", math.trunc),
}  # fmt: skip


def _binary(sign: str, function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (
        lambda self, other: computed(sign, function, self, other),
        lambda self, other: computed(sign, function, other, self),
    )


def _unary(sign: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *digits: computed(sign, function, self, *digits)


for _name, (_sign, _function) in _BINARY.items():
    _straight, _reflected = _binary(_sign, _function)
    setattr(Traced, f"__{_name}__", _straight)
    setattr(Traced, f"__r{_name}__", _reflected)
for _name, (_sign, _function) in _UNARY.items():
    setattr(Traced, f"__{_name}__", _unary(_sign, _function))
