"""How one item follows from the laws it is made of."""

import inspect
from collections.abc import Iterator
from typing import Any, cast

from tonnage.explain.docstrings import parsed
from tonnage.explain.formula import step
from tonnage.explain.notation import Written, number
from tonnage.explain.second import law_functions, plain
from tonnage.explain.steps import steps_of
from tonnage.explain.traced import Applied, Traced, bare
from tonnage.spec.report import Basis, Derivation, MemoryItem, PutIn, Step

_CONSTANTS: dict[Basis, str] = {
    "measured": "measured", "calibrated": "calibrated on logs", "assumed": "assumed", "user": "as stated",
    "unknown": "unknown", "exact": "counted", "derived": "constant",
}  # fmt: skip


def derivation(item: MemoryItem) -> Derivation:
    """
    How one item follows.

    Args:
        item: The item, its expected size traced.

    Returns:
        Steps that end in its size.
    """
    size = cast("Traced | int", item.bytes.expected)
    steps, applied = _told(item, size)
    main = next((one for one in applied if one.law == item.law), applied[0] if applied else None)
    law = main.law if main is not None else item.law
    return Derivation(
        component=item.component,
        law=item.law,
        expected_bytes=bare(size),
        detail=item.detail,
        summary=parsed(law_functions()[law]).summary if law in law_functions() else "",
        steps=steps,
        inputs=() if main is None else tuple(_inputs(main)),
        exact=bool(steps) and steps[-1].value == size,
        note="" if any(_computes(one) for one in steps) else _known(item),
    )


def _known(item: MemoryItem) -> str:
    word = _CONSTANTS[item.basis]
    return item.source if item.source.startswith(f"{word}:") else f"{word}: {item.source}"


def _computes(one: Step) -> bool:
    return one.numbers != number(one.value).text


def _told(item: MemoryItem, size: Traced | int) -> tuple[tuple[Step, ...], tuple[Applied, ...]]:
    if isinstance(size, Traced):
        return steps_of(size, item.component)
    return (_constant(item, size),), ()


def _constant(item: MemoryItem, size: int) -> Step:
    word = _CONSTANTS[item.basis]
    return step(item.component, Written(word, f"<mtext>{word}</mtext>"), number(size), size)


def _inputs(applied: Applied) -> Iterator[PutIn]:
    law = law_functions()[applied.law]
    described = {entry.name: entry for entry in parsed(law).inputs}
    for known in inspect.signature(law).parameters:
        if known in described:
            value = _shown(plain(applied.inputs[known]))
            yield PutIn(name=known, value=value, unit=described[known].unit, meaning=described[known].description)


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return number(value).text.strip("()")
    return value if isinstance(value, str) else f"{len(value)} entries" if hasattr(value, "__len__") else str(value)
