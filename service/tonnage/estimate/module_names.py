"""
Module names as quantization configs write them: dotted parts, globs and regular expressions, with layer numbers.

A config may come from a stranger. Names are looked up, not tried one by one; a regular expression that could take more
than polynomial time is not run, and what all of them together may take is counted before it is spent.
"""

import fnmatch
import re
from collections.abc import Iterable
from math import comb

from msgspec import Struct

from tonnage.errors import ContradictoryWorkload
from tonnage.kept import recent

_ROOTS = (
    "model.",
    "model.language_model.",
    "language_model.model.",
    "model.text_model.",
    "backbone.",
    "transformer.",
    "",
)
_LAYER_LISTS = ("layers", "h", "blocks")
MOST_NAMES = 8192
"""Entries of a list; published ones have some hundreds. [unitless]"""
_MOST_CHARACTERS = 400
"""Of a regular expression; longer ones are not read. [characters]"""
_MOST_REPEATS = 4
"""Unbounded repetitions of a regular expression; each multiplies its time by the length of a name. [unitless]"""
_MOST_STEPS = 50_000_000
"""Steps of up to 40 ns that the regular expressions of a list may take; published ones stay far below. [unitless]"""
_STEPS_OF_A_LOOK = 20
"""Looking whether a text stands in a path. [unitless]"""
_FEW = 16
"""Names up to which trying each is quicker than cutting a path into its parts. [unitless]"""


class Pattern(Struct, frozen=True):
    """One entry of a list of modules that is no plain name."""

    regex: re.Pattern[str]
    literal: str
    """Text that stands in everything it matches, "" when unknown."""
    repeats: int
    """Unbounded repetitions. [unitless]"""

    def steps(self, path: str) -> int:
        """Steps that matching may take at most, but for a factor. [unitless]"""
        return comb(len(path) + self.repeats, self.repeats)


class ModuleNames:
    """A list of modules."""

    def __init__(self, names: Iterable[str]) -> None:
        """
        A list of modules, compiled.

        Args:
            names: As a config or a format writes them; unreadable regular expressions match nothing.

        Raises:
            ContradictoryWorkload: More entries than any checkpoint has.
        """
        plain: set[str] = set()
        self._patterns: list[Pattern] = []
        for number, name in enumerate(names):
            if number >= MOST_NAMES:
                raise ContradictoryWorkload(
                    f"a list of modules has more than {MOST_NAMES} entries", pointer="/model/config/quantization_config"
                )
            if name.startswith("re:") or "*" in name or "?" in name:
                pattern = _compiled(name)
                self._patterns += [pattern] if pattern is not None else []
            else:
                plain.add(name.strip("."))
        self.plain = frozenset(plain)
        self._steps = 0

    def __bool__(self) -> bool:
        """Whether anything is listed."""
        return bool(self.plain or self._patterns)

    def only(self, names: frozenset[str]) -> bool:
        """Whether nothing else is listed."""
        return self.plain <= names and not self._patterns

    def match(self, paths: tuple[str, ...]) -> bool:
        """
        Whether any spelling of a module's full name is meant.

        Args:
            paths: Spellings.

        Returns:
            Whether an entry names it, or a part of it.

        Raises:
            ContradictoryWorkload: The regular expressions would take too long.
        """
        return self._has_plain(paths) or any(self._matches(pattern, paths) for pattern in self._patterns)

    def _has_plain(self, paths: tuple[str, ...]) -> bool:
        if len(self.plain) <= _FEW:
            return any(f".{name}." in f".{path}." for name in self.plain for path in paths)
        return any(not self.plain.isdisjoint(_parts(path)) for path in paths)

    def _matches(self, pattern: Pattern, paths: tuple[str, ...]) -> bool:
        for path in paths:
            possible = pattern.literal in path
            self._spend(pattern.steps(path) if possible else _STEPS_OF_A_LOOK)
            if possible and pattern.regex.match(path):
                return True
        return False

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise ContradictoryWorkload(
                "the regular expressions of quantization_config take too long: name the modules",
                pointer="/model/config/quantization_config",
            )


def _parts(path: str) -> Iterable[str]:
    """Every run of whole dotted parts of a path."""
    starts = [0, *(at + 1 for at, character in enumerate(path) if character == ".")]
    ends = [*(start - 1 for start in starts[1:]), len(path)]
    return (path[start:end] for number, start in enumerate(starts) for end in ends[number:])


@recent(1024)
def _compiled(name: str) -> Pattern | None:
    text = name[3:] if name.startswith("re:") else fnmatch.translate(name)
    looked_at = text if name.startswith("re:") else re.sub(r"\*+", ".*", name)
    shape = None if len(text) > _MOST_CHARACTERS else shape_of(looked_at)
    try:
        return None if shape is None else Pattern(re.compile(_greedy(text)), *shape)
    except (re.error, OverflowError, RecursionError):
        return None


def _greedy(text: str) -> str:
    """The same without "as little as possible", which changes how long a match takes but not whether there is one."""
    return re.sub(r"(?<!\\)([*+}])\?", r"\1", text)


_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[:=!]|\(\?<[=!]|\{\d*,?\d*\}|.", re.DOTALL)
_GROUPS = frozenset({"(", "(?:", "(?=", "(?!", "(?<=", "(?<!"})
_OPTIONAL = ("*", "?", "{")
_SPECIAL = frozenset("^$.|*+?()[{")


def shape_of(text: str) -> tuple[str, int] | None:
    """
    What a regular expression needs and how often it repeats.

    Args:
        text: Regular expression.

    Returns:
        The longest text that stands in everything it matches, and its unbounded repetitions; None for one that may take
        exponential time (a group that repeats), that looks back, or that repeats too often.
    """
    pieces = _PIECE.findall(text)
    depth = repeats = 0
    runs, alternatives = [""], False
    for piece, after in zip(pieces, [*pieces[1:], ""], strict=True):
        repeated = after in ("*", "+") or after.startswith("{")
        if piece in _GROUPS or piece.startswith("(?"):
            if piece not in _GROUPS or after == "?":
                return None
            depth += 1
        elif piece == ")":
            depth -= 1
            if repeated:
                return None
        elif piece in ("*", "+") or (piece.startswith("{") and len(piece) > 1):
            repeats += 1
        alternatives = alternatives or (piece == "|" and not depth)
        literal = _literal(piece)
        if literal is None or depth or after.startswith(_OPTIONAL):
            runs.append("")
        else:
            runs[-1] += literal
            runs += [""] if after == "+" else []
    if repeats > _MOST_REPEATS or re.search(r"\\[1-9]", text):
        return None
    if pieces[-2:] == [".", "*"] or pieces[-3:] == [".", "*", "$"]:
        repeats -= 1  # takes the rest, whatever it is
    return "" if alternatives else max(runs, key=len), repeats


def _literal(piece: str) -> str | None:
    if len(piece) == 1:
        return None if piece in _SPECIAL else piece
    return piece[1] if piece[0] == "\\" and not piece[1].isalnum() else None


@recent(16_384)
def module_paths(tensor_name: str, layer: int | None) -> tuple[str, ...]:
    """
    Full names that checkpoints give to the module of a tensor.

    Args:
        tensor_name: Name below the layer or below the model.
        layer: Layer number, None outside of layers.

    Returns:
        Module names without the trailing ".weight", by the roots in use.
    """
    module = tensor_name.removesuffix(".weight").removesuffix(".bias")
    if layer is None:
        return tuple(dict.fromkeys((module, *(root + module for root in _ROOTS))))
    return tuple(f"{root}{many}.{layer}.{module}" for root in _ROOTS for many in _LAYER_LISTS)
