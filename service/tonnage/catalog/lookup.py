"""Names and aliases -> entries, whatever their case, with did_you_mean for what nobody is called."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from tonnage.errors import CatalogError, UnknownName, letters


class Entry(Protocol):
    """What an index holds."""

    @property
    def id(self) -> str:
        """Name of the record. [unitless]"""
        ...


E = TypeVar("E", bound=Entry)
Names = Callable[[E], Iterable[str]]

_VENDOR = re.compile(r"^(nvidia|amd|intel|google|aws)[ _-]+(geforce[ _-]+)?|^geforce[ _-]+")
_JOINER = re.compile(r"[ _-]+")


def plain_fold(name: str) -> str:
    """Spelling in which names are compared: case, and "_", "-" or a blank, make no difference. [unitless]"""
    return _JOINER.sub("-", name.strip().lower())


def model_fold(name: str) -> str:
    """Repository ids differ by case only. [unitless]"""
    return name.strip().lower()


def gpu_fold(name: str) -> str:
    """Boards are written with and without vendor, blanks and hyphens: "NVIDIA GeForce RTX 4090", "rtx4090". [unitless]"""
    return _JOINER.sub("", _VENDOR.sub("", name.strip().lower()))


NEAR = 24
"""Names a misspelt one is compared with letter by letter. [unitless]"""


class Spellings:
    """Names by the letter triples they hold."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._holders: dict[str, list[int]] = {}
        for number, name in enumerate(self._names):
            for triple in _triples(name):
                self._holders.setdefault(triple, []).append(number)

    def near(self, name: str, limit: int) -> list[str]:
        """
        Names that share the largest part of their triples with another.

        Args:
            name: Spelling nobody has.
            limit: How many at most. [unitless]

        Returns:
            Best first.
        """
        shared = Counter(number for triple in _triples(name) for number in self._holders.get(triple, ()))
        ranked = sorted(shared, key=lambda number: -shared[number] / (len(self._names[number]) + len(name)))
        return [self._names[number] for number in ranked[:limit]]


def _triples(name: str) -> set[str]:
    padded = f"  {name.lower()} "
    return {padded[start : start + 3] for start in range(len(padded) - 2)}


def own_aliases(entry: Any) -> Iterable[str]:
    """Aliases of a record that has such a field. [unitless]"""
    return getattr(entry, "aliases", ())


class Entries(dict[str, E]):
    """Records of one kind by id. Never changed once made, so results are remembered by which one it is."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # dict declares that it has none


class Index(Generic[E]):
    """Records of one kind by id and alias, in the order of the data files."""

    def __init__(
        self,
        kind: str,
        entries: Iterable[E],
        *,
        fold: Callable[[str], str] = plain_fold,
        aliases: Names[E] = own_aliases,
        nicknames: Names[E] = own_aliases,
    ) -> None:
        """
        Index over records.

        Args:
            kind: What the records are, for messages.
            entries: The records.
            fold: Spelling in which names are compared.
            aliases: Names that belong to one record only; a second holder is an error.
            nicknames: Names that count only where exactly one record claims them.
        """
        self.kind = kind
        self.entries: Entries[E] = Entries((entry.id, entry) for entry in entries)
        self._fold = fold
        self._names: dict[str, E] = {}
        self._folded: dict[str, E] = {}
        for entry in self:
            self._add(entry.id, entry)
        for entry in self:
            for alias in aliases(entry):
                self._add(alias, entry)
        self._add_nicknames(nicknames)
        self._spellings: Spellings | None = None

    def _add(self, name: str, entry: E) -> None:
        holder = self._folded.setdefault(self._fold(name), entry)
        if holder.id != entry.id:
            raise CatalogError(f"{self.kind} {entry.id!r}: the name {name!r} already belongs to {holder.id!r}")
        self._names[name] = entry

    def _add_nicknames(self, nicknames: Names[E]) -> None:
        claims: dict[str, list[tuple[str, E]]] = {}
        for entry in self:
            for name in nicknames(entry):
                claims.setdefault(self._fold(name), []).append((name, entry))
        for folded, claimed in claims.items():
            name, entry = claimed[0]
            if folded not in self._folded and all(other.id == entry.id for _, other in claimed):
                self._folded[folded] = self._names[name] = entry

    def find(self, name: str) -> E | None:
        """Record of that id or alias, None without one."""
        return self._names.get(name) or self._folded.get(self._fold(name))

    def get(self, name: str, pointer: str = "") -> E:
        """
        Record of that id or alias.

        Args:
            name: As the caller spells it.
            pointer: JSON pointer of the field it stands in.

        Returns:
            The record.

        Raises:
            UnknownName: With the closest names there are.
        """
        entry = self._names.get(name) or self.find(name)
        if entry is None:
            raise UnknownName(self.kind, name, self.near(name), pointer=pointer)
        return entry

    def near(self, name: str, limit: int = NEAR) -> list[str]:
        """Names that share most with a misspelt one: few enough to be compared letter by letter. [unitless]"""
        if self._spellings is None:
            self._spellings = Spellings(self._names)
        wanted = letters(name)
        holding = [known for known in self._names if len(wanted) > 1 and wanted in letters(known)]
        return [*self._spellings.near(name, limit), *sorted(holding, key=len)[:limit]]

    def names(self) -> list[str]:
        """Every id and alias. [unitless]"""
        return list(self._names)

    def __iter__(self) -> Iterator[E]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None
