"""What a traced number is made of, as a person would write it: a sum of laws, each so many times."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tonnage.explain.notation import Written, above, between, fraction, joined, name, number, tight
from tonnage.explain.traced import Applied, Labelled, Named, Number, Operation, Part, Traced, bare

DEEPEST_OPERATIONS = 5
"""Operations within operations of one formula; a law that walks through a table nests more. [unitless]"""


class Term(NamedTuple):
    """So many times one thing that is no sum itself."""

    times: Number
    of: Traced | None
    """None: a plain number, which `times` is."""


def terms(value: Traced | Number) -> tuple[Term, ...]:
    """
    A number as a sum of different terms.

    Args:
        value: The number.

    Returns:
        What is added before what is taken away; a plain number after what has a name.
    """
    counts: dict[int, Number] = {}
    whole: Number = 0
    found: dict[Any, list[Any]] = {}
    order = _children_last(value)
    if not order:
        return (Term(bare(value), None),)
    counts[id(value)] = 1
    for node in order:
        count = counts.pop(id(node), 0)
        if not count:
            continue
        parts = list(_parts(node))
        if not parts:
            entry = found.setdefault(key(node), [0, node])
            entry[0] += count
        for factor, part in parts:
            if isinstance(part, Traced):
                counts[id(part)] = counts.get(id(part), 0) + count * factor
            else:
                whole += count * factor * part
    listed = [Term(count, node) for count, node in found.values() if count and node.value]
    if whole or not listed:
        listed.append(Term(whole, None))
    return tuple(sorted(listed, key=lambda term: term.times < 0))


def is_tangled(value: Traced) -> bool:
    """
    Whether operations lie in operations deeper than a formula shows, sums of sums aside.

    Args:
        value: The number.

    Returns:
        True for what a simulation gives step by step.
    """
    depths: dict[int, int] = {}
    todo: list[tuple[Any, bool]] = [(value, False)]
    while todo:
        node, opened = todo.pop()
        if not isinstance(node, Traced) or is_atom(node) or (id(node) in depths and not opened):
            continue
        assert isinstance(node.origin, Operation)  # noqa: S101  (else it is an atom)
        if not opened:
            depths[id(node)] = 0
            todo += [(node, True), *((part, False) for part in node.origin.operands)]
            continue
        inside = max((depths.get(id(part), 0) for part in node.origin.operands), default=0)
        depths[id(node)] = inside + (not any(True for _ in _parts(node)))
    return depths.get(id(value), 0) > DEEPEST_OPERATIONS


def _children_last(value: Traced | Number) -> list[Traced]:
    """Sums before what they add, each once."""
    done: set[int] = set()
    after: list[Traced] = []
    todo: list[tuple[Any, bool]] = [(value, False)]
    while todo:
        node, opened = todo.pop()
        if opened:
            after.append(node)
        elif isinstance(node, Traced) and id(node) not in done:
            done.add(id(node))
            todo.append((node, True))
            todo += [(part, False) for _, part in _parts(node)]
    return after[::-1]


def _parts(node: Traced) -> Iterator[tuple[Number, Any]]:
    """What a sum adds, each with its factor; nothing for what is no sum, or told elsewhere."""
    if node.known_as:
        return
    match node.origin:
        case Operation("+", (first, second)):
            yield from ((1, first), (1, second))
        case Operation("−", (first, second)):
            yield from ((1, first), (-1, second))
        case Operation("neg", (first,)):
            yield -1, first
        case Operation("×", (Traced() as first, int() as second)) | Operation(
            "×", (int() as second, Traced() as first)
        ):
            yield second, first


def key(node: Traced) -> Any:
    """Equal for what is the same: a law applied to the same numbers, an operation on the same."""
    if node.known_as:
        return node.known_as, node.value
    match node.origin:
        case Applied(law, inputs):
            return law, tuple((known, repr(value)) for known, value in inputs.items())
        case Part(applied, part):
            return applied.law, part, tuple((known, repr(value)) for known, value in applied.inputs.items())
        case Named(known) | Labelled(known):
            return known, node.value
        case Operation(sign, operands):
            return sign, tuple(_key_of_sum(operand) if isinstance(operand, Traced) else operand for operand in operands)


def is_atom(node: Traced) -> bool:
    """Whether a number is what a law gives, one of what it gives, or told elsewhere."""
    return bool(node.known_as) or not isinstance(node.origin, Operation)


def _key_of_sum(value: Traced) -> Any:
    return tuple((term.times, None if term.of is None else key(term.of)) for term in terms(value))


def atoms(value: Traced | Number) -> tuple[Traced, ...]:
    """
    Laws and names that a number is made of.

    Args:
        value: The number.

    Returns:
        Each once, in the order they first appear.
    """
    found: dict[Any, Traced] = {}
    _collect(value, found)
    return tuple(found.values())


def _collect(value: Any, found: dict[Any, Traced]) -> None:
    for term in terms(value) if isinstance(value, Traced) else ():
        if term.of is None:
            continue
        if isinstance(term.of.origin, Operation) and not is_atom(term.of):
            for operand in term.of.origin.operands:
                _collect(operand, found)
        else:
            found.setdefault(key(term.of), term.of)


class Names:
    """Writes sums, with the names of their atoms or with their values."""

    def __init__(self, known: Mapping[Any, str] | None) -> None:
        """
        A writer.

        Args:
            known: Names by key; None: values.
        """
        self._known = known

    def __call__(self, value: Any) -> Written:
        """One number as it came about."""
        if not isinstance(value, Traced):
            return number(value)
        return _sum(self._term(term) for term in terms(value))

    def _term(self, term: Term) -> tuple[bool, Written]:
        negative = term.times < 0
        count = number(abs(term.times))
        if term.of is None:
            return negative, count
        one = self._one(term.of)
        return negative, one if abs(term.times) == 1 else joined("×", (count, tight(one)))

    def _one(self, node: Traced) -> Written:
        if is_atom(node):
            return number(node.value) if self._known is None else name(self._known.get(key(node), "?"))
        assert isinstance(node.origin, Operation)  # noqa: S101  (else it is an atom)
        return _operation(node.origin.sign, [self(operand) for operand in node.origin.operands])


def _sum(parts: Iterable[tuple[bool, Written]]) -> Written:
    written: Written | None = None
    for negative, part in parts:
        if written is None:
            written = joined("−", (Written("0", "<mn>0</mn>"), part)) if negative else part
        else:
            written = joined("−" if negative else "+", (written, part))
    assert written is not None  # noqa: S101  (a number is at least itself)
    return written


def _operation(sign: str, operands: list[Written]) -> Written:
    how = _WRITTEN.get(sign)
    if how is not None:
        return how(*operands)
    inside = joined(",", tuple(operands))
    return Written(f"{sign}({inside.text})", f"<mi>{sign}</mi>{between(inside, '(', ')').mathml}")


def _down(inside: Written) -> Written:
    return between(inside, "⌊", "⌋")


def _up(inside: Written) -> Written:
    return between(inside, "⌈", "⌉")


_WRITTEN: dict[str, Callable[..., Written]] = {
    "/": fraction,
    "//": lambda dividend, divisor: _down(fraction(dividend, divisor)),
    "ceil_div": lambda dividend, divisor: _up(fraction(dividend, divisor)),
    "round_up": lambda amount, multiple: joined("×", (_up(fraction(amount, multiple)), tight(multiple))),
    "floor": _down,
    "ceil": _up,
    "×": lambda *factors: joined("×", tuple(map(tight, factors))),
    "^": above,
}
