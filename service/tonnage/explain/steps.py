"""A traced number as steps: each law it is made of with its own formula, then the sum."""

from collections import Counter
from typing import Any

from tonnage.explain.formula import hides, lines_of, step
from tonnage.explain.notation import name, number
from tonnage.explain.second import law_functions, merged, opened, plain
from tonnage.explain.sums import Names, atoms, is_atom, is_tangled, key, terms
from tonnage.explain.traced import Applied, Labelled, Named, Operation, Part, Traced
from tonnage.spec.report import Step

MOST_OPENED = 6
"""Sums of more different laws than this show each law by its last line only. [unitless]"""
MOST_IN_BRACKETS = 2
"""Sums of more terms than this take a step of their own where they are a factor. [unitless]"""
MOST_ENTRIES = 24
"""Tables that a law adds up are written out up to this length. [unitless]"""
_DEEPEST = 3


def steps_of(value: Traced, title: str) -> tuple[tuple[Step, ...], tuple[Applied, ...]]:
    """
    How a number came about.

    Args:
        value: The number.
        title: Its name.

    Returns:
        Steps, the last of which gives the number; the applications of laws it is made of.
    """
    telling, known_as = _Telling(), value.known_as
    value.known_as = ""
    try:
        telling.tell(value, title, depth=0)
    finally:
        value.known_as = known_as
    return tuple(telling.steps), tuple(telling.applied)


class _Telling:
    """Steps so far, and the names that laws have in them."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.applied: list[Applied] = []
        self._names: dict[Any, str] = {}
        self._taken: Counter[str] = Counter()
        self._told: set[Any] = set()

    def tell(self, value: Traced, title: str, *, depth: int) -> None:
        """All steps of a number."""
        for factor in _long_factors(value):
            if factor is not value:
                self.tell(factor, "sum", depth=depth)
                factor.known_as = "sum"
        made = atoms(value)
        alone = _alone(value)
        for atom in made:
            self._tell_atom(atom, title if alone else "", depth=depth, short=len(made) > MOST_OPENED)
        if alone and self.steps and self.steps[-1].name == name(title).text and self.steps[-1].value == value.value:
            return
        names = {key(atom): self._name(atom) for atom in made}
        if alone and names[key(made[0])] == title:
            names = {key(made[0]): _plain_name(made[0])}
        self.steps.append(step(title, Names(names)(value), Names(None)(value), value.value))

    def _tell_atom(self, atom: Traced, title: str, *, depth: int, short: bool) -> None:
        origin = atom.origin
        if atom.known_as or isinstance(origin, Named) or key(atom) in self._told:
            return
        self._told.add(key(atom))
        title = title or self._name(atom)
        self._names.setdefault(key(atom), title)
        if isinstance(origin, Labelled):
            if isinstance(origin.of, Traced) and depth < _DEEPEST:
                self.tell(origin.of, title, depth=depth if depth == 0 else depth + 1)
            return
        applied = origin.applied if isinstance(origin, Part) else origin
        assert isinstance(applied, Applied)  # noqa: S101  (an atom is no operation)
        if depth == 0:
            self.applied.append(applied)
        if not short and depth < _DEEPEST:
            self._tell_inputs(applied, depth=depth)
        law = law_functions()[applied.law]
        lines = () if isinstance(origin, Part) else lines_of(law, plain(applied.inputs), title)
        says = bool(lines) and not _says_nothing(lines[-1])
        if (not says or hides(law)) and self._tell_opened(applied, origin, atom, title, depth=depth):
            return
        if says:
            self.steps += lines[-1:] if short else lines

    def _tell_inputs(self, applied: Applied, *, depth: int) -> None:
        """Inputs that are the result of a law, or computed from one, where that is short to say."""
        for known, given in applied.inputs.items():
            if isinstance(given, Traced) and given.value and len(terms(given)) <= 3 and len(atoms(given)) <= 3:
                before = len(self.steps)
                self.tell(given, known, depth=depth + 1)
                if _says_nothing(self.steps[-1]):  # a name for a name
                    del self.steps[before:]

    def _tell_opened(self, applied: Applied, origin: Any, atom: Traced, title: str, *, depth: int) -> bool:
        """A law that no single expression shows, from within; one that only looks a number up has nothing to show."""
        applied = merged(applied)
        inside = None if _is_long(applied) else opened(applied)
        if isinstance(origin, Part) and inside is not None:
            inside = _part(inside, origin.name)
        if isinstance(inside, Traced) and inside.value == atom.value and depth < _DEEPEST and not is_tangled(inside):
            self.tell(inside, title, depth=depth + 1)
            return True
        return False

    def _name(self, atom: Traced) -> str:
        found = self._names.get(key(atom))
        if found is None:
            first = _plain_name(atom)
            self._taken[first] += 1
            found = first if self._taken[first] == 1 else f"{first} ({self._taken[first]})"
            self._names[key(atom)] = found
        return found


def _alone(value: Traced) -> bool:
    """Whether a number is one law's, once."""
    found = terms(value)
    return len(found) == 1 and found[0].times == 1 and found[0].of is not None and is_atom(found[0].of)


def _long_factors(value: Traced) -> list[Traced]:
    """Sums that are a factor of the whole and too long for a bracket."""
    found = terms(value)
    if len(found) > MOST_IN_BRACKETS:
        return [value]
    product = found[0].of.origin if len(found) == 1 and found[0].of is not None and not is_atom(found[0].of) else None
    if not isinstance(product, Operation) or product.sign != "×":
        return []
    return [long for one in product.operands if isinstance(one, Traced) for long in _long_factors(one)]


def _is_long(applied: Applied) -> bool:
    """Whether a law walks through a table that no line has room for."""
    return any(isinstance(given, tuple | list) and len(given) > MOST_ENTRIES for given in applied.inputs.values())


def _says_nothing(last: Step) -> bool:
    """Whether a law's only line is the number itself under another name."""
    return last.numbers == number(last.value).text


def _part(result: Any, name: str) -> Any:
    return getattr(result, name) if hasattr(result, "_fields") else result[int(name) - 1]


def _plain_name(atom: Traced) -> str:
    if atom.known_as:
        return atom.known_as
    match atom.origin:
        case Named(known) | Labelled(known):
            return known
        case Part(applied, part):
            return f"{applied.law.rpartition('.')[2]}, {part}"
        case Applied(law):
            return law.rpartition(".")[2]
    raise TypeError(atom.origin)
