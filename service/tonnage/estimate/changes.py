"""One change of a card at a time, named by the JSON pointer of its field, and the largest value that still passes."""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import ContradictoryWorkload
from tonnage.spec.card import Multimodal, SizingCard, TrainingLora
from tonnage.spec.report import Amount, Estimate, Verdict


class Tried(NamedTuple):
    """A changed card of an engine that claims by a fraction: what it requires tells what the change saves."""

    required: Amount
    verdict: Verdict | None


Reestimate = Callable[[SizingCard], Estimate | Tried]


def changed(card: SizingCard, pointer: str, value: Any) -> SizingCard:
    """
    The card with one field set.

    Args:
        card: Any card, also a fit request.
        pointer: JSON pointer of the field, such as "/serving/max_model_len".
        value: New value, of the field's own type.

    Returns:
        A copy; the rest is shared.

    Raises:
        ContradictoryWorkload: No card has that value there.
    """
    try:
        made: SizingCard = _with(card, pointer.strip("/").split("/"), value)
    except ValueError as error:
        raise ContradictoryWorkload(str(error), pointer=pointer) from error
    return made


def _with(node: Any, path: list[str], value: Any) -> Any:
    name, rest = path[0], path[1:]
    if not rest:
        return replace(node, **{name: value})
    inner = getattr(node, name)
    return replace(node, **{name: _with(_empty(name) if inner is None else inner, rest, value)})


def _empty(name: str) -> Struct:
    if name == "lora":
        return TrainingLora(rank=16)
    if name == "multimodal":
        return Multimodal()
    raise ValueError(f"{name} is not part of this card")


def stated(card: SizingCard, pointer: str) -> Any:
    """Value of a field as the card states it, None where it is left open or absent."""
    node: Any = card
    for name in pointer.strip("/").split("/"):
        node = getattr(node, name, None)
        if node is None:
            return None
    return node


def effective(card: SizingCard, estimate: Estimate, pointer: str) -> Any:
    """Value of a field as stated, or as the estimate says it assumed."""
    value = stated(card, pointer)
    if value is not None:
        return value
    wanted = pointer.strip("/").split("/")
    for assumption in estimate.assumptions:
        if assumption.field.strip("/").replace(".", "/").split("/")[-len(wanted) :] == wanted:
            return assumption.value
    last = wanted[-1]
    return next((a.value for a in estimate.assumptions if a.field.replace(".", "/").split("/")[-1] == last), None)


def largest(passes: Callable[[int], bool], *, low: int, high: int, step: int = 1) -> int | None:
    """
    Largest value that passes, found by halving.

    Args:
        passes: Whether a value is still served.
        low: Smallest value of interest.
        high: Largest value of interest.
        step: Grain of the answer; values are multiples of it, or `low`.

    Returns:
        A value that passes while the next multiple does not, None when `low` does not pass. Where passing is not
        monotonic (chunked prefill switches on with length) it is one such edge, and `high` is tried first.
    """
    if low > high or not passes(low):
        return None
    if passes(high):
        return high
    good, bad = low, high
    while bad - good > step:
        middle = (good + bad) // 2
        middle = max(good + 1, middle // step * step) if middle // step * step > good else middle
        if passes(middle):
            good = middle
        else:
            bad = middle
    return good if good == low else max(low, good // step * step)
