"""
What can be wrong with a question, as types with fields; HTTP is spoken in `api/problems.py` only.

"Does not fit" is a result, never an exception.
"""

import difflib
import re
from collections.abc import Iterable


class SizingError(Exception):
    """Base of everything a caller can do something about."""

    pointer: str
    """JSON pointer of the field in the request, "" when it is the whole card."""

    def __init__(self, detail: str, *, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


_JOINERS = re.compile(r"[-_ :]")
_MOST = 3


def _near(name: str, known: Iterable[str]) -> list[str]:
    """
    Names that hold the whole of another, shortest first, then near spellings, joiners and case aside.

    Of near spellings those with the same digits, then what the name begins with, then the others.
    """
    by_letters = {letters(k): k for k in sorted(known)}
    wanted = letters(name)
    close = difflib.get_close_matches(wanted, list(by_letters), n=_MOST, cutoff=0.5)
    holding = sorted((k for k in by_letters if len(wanted) > 1 and wanted in k), key=lambda k: (len(k), k))
    same = [k for k in close if _digits(k) == _digits(wanted)]
    begun = sorted((k for k in by_letters if wanted.startswith(k) and 2 * len(k) > len(wanted)), key=len)[-1:]
    found: dict[str, str] = {}
    for key in (*holding, *same, *begun, *close):
        found.setdefault(key.rpartition("/")[2], by_letters[key])
    return list(found.values())[:_MOST]


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def letters(name: str) -> str:
    """A name without case and joiners, as people confuse these. [unitless]"""
    return _JOINERS.sub("", name.lower())


class UnknownName(SizingError):
    """An id that no catalogue entry has."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, pointer: str = "") -> None:
        self.kind = kind
        self.name = name
        self.did_you_mean = _near(name, known)
        hint = f"; did you mean {', '.join(self.did_you_mean)}?" if self.did_you_mean else ""
        super().__init__(f"unknown {kind} {name!r}{hint}", pointer=pointer)


class ContradictoryWorkload(SizingError):
    """Fields that are each valid but cannot hold together, such as heads that tensor parallelism does not divide."""


class MissingFact(SizingError):
    """A required fact that neither the request nor the catalogue holds."""


class Unsupported(SizingError):
    """A valid question that this version has no law for; says what is supported."""

    def __init__(self, detail: str, supported: Iterable[str], *, pointer: str = "") -> None:
        self.supported = sorted(supported)
        super().__init__(f"{detail}; supported: {', '.join(self.supported)}", pointer=pointer)


class SourceUnavailable(SizingError):
    """A remote source of facts (the Hub) is disabled or does not answer."""


class CatalogError(Exception):
    """A data file that breaks its schema or its own rules; names file and path."""
