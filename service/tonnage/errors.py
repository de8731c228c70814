"""
What can be wrong with a question, as types with fields; HTTP is spoken in `api/problems.py` only.

"Does not fit" is a result, never an exception.
"""

import difflib
from collections.abc import Iterable


class SizingError(Exception):
    """Base of everything a caller can do something about."""

    pointer: str
    """JSON pointer of the field in the request, "" when it is the whole card."""

    def __init__(self, detail: str, *, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


class UnknownName(SizingError):
    """An id that no catalogue entry has."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, pointer: str = "") -> None:
        known = sorted(known)
        close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=3, cutoff=0.5)
        by_lower = {k.lower(): k for k in known}
        self.kind = kind
        self.name = name
        self.did_you_mean: list[str] = list(dict.fromkeys(by_lower[c] for c in close))
        hint = f"; did you mean {', '.join(self.did_you_mean)}?" if close else ""
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
