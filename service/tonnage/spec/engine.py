"""
Engine and framework profiles: budgets, defaults and constants by release, read from data files.

`catalog/data/engines/<engine>.toml` and `catalog/data/frameworks/<framework>.toml` hold a header and
`[[release]]` tables, oldest first. A release holds until the next begins; ranges cannot overlap. A table states
what changed: what it leaves out carries over from the one before (`carried_over`).
"""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common head of a release; each engine's own fields stand in `spec/engines/<engine>.py`."""

    __hash__ = object.__hash__  # one record per load: results are remembered by identity, not by its content

    since: str
    """First version it holds for: "0.17.0", or "b6000" for llama.cpp builds."""
    since_date: str
    """Publication date of that version, for callers who state a date as version. [ISO date]"""
    source: str


class Hardware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Accelerators an engine or framework runs on: established, possible with a plugin or branch, or not at all."""

    __hash__ = object.__hash__  # one record per load: results are remembered by identity, not by its content

    established: tuple[str, ...]
    """Vendors."""
    possible: tuple[str, ...] = ()
    """Vendors whose support is a plugin or branch, whose memory is not modelled."""
    minimum_compute_capability: str | None = None
    """Oldest NVIDIA generation that published packages are built for."""
    possible_compute_capability: str | None = None
    """Oldest that it is reported to run on otherwise; absent: on none."""
    possible_how: str = ""
    """What that takes."""
    source: str


class Image(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published container image of an engine, for the accelerators it is made for."""

    vendor: str = "nvidia"
    gpus: tuple[str, ...] = ()
    """Beginnings of GPU ids; none: all of the vendor."""
    registry: str = "Docker Hub"
    repository: str
    tag: str
    """With {version} in place of the engine's version."""
    since: str | None = None
    """First and last version whose tags are named so; none: all."""
    until: str | None = None
    starts: int = 0
    """Words of the command that the image begins with by itself. [unitless]"""
    serves_alone: bool = False
    """The image takes no model: it serves, and is told over its port."""
    arguments: tuple[str, ...] = ()
    """What the server needs to be reached from outside the container."""
    port: int
    cache: str | None = None
    """Where the image keeps what it downloads."""
    source: str


class Profile(Struct, frozen=True, kw_only=True):
    """One engine or framework: the head of its file, and its releases, oldest first."""

    id: str
    name: str
    known_until: str
    """Newest version whose behaviour was checked; a newer one is answered with the newest release, uncertainly."""
    known_until_date: str
    """Publication date of `known_until`. [ISO date]"""
    source: str
    aliases: tuple[str, ...] = ()
    notes: str | None = None
    hardware: Hardware | None = None
    images: tuple[Image, ...] = ()
    tags: dict[str, str] = {}
    """Names under which the engine's own library has models -> ids of the catalogue."""
    tag_format: str | None = None
    """Format those are packed in, where the model itself has none."""
    releases: tuple[Any, ...] = ()
    """Records of `spec.engines.<engine>.RELEASE`."""


R = TypeVar("R", bound=Release)


def carried_over(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """
    Release tables as written, each completed by the one before it.

    Args:
        tables: Oldest first; a nested table is completed key by key.

    Returns:
        Complete tables, in the same order.
    """
    complete: list[dict[str, Any]] = []
    for table in tables:
        complete.append(_completed(complete[-1] if complete else {}, table))
    return complete


def _completed(before: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    nested = {k: _completed(before[k], v) for k, v in table.items() if isinstance(v, dict) and k in before}
    return {**before, **table, **nested}


_LAST = 1_000_000
"""Patch of a version without one: "0.7" is the last of its line, as "2024-09" is the end of that month."""
_DATE = re.compile(r"20\d\d(-\d\d){0,2}")


_VERSION = re.compile(r"[vbr]?\d.*|(nightly|main|master|latest|dev|head|stable|edge)([.+_-].*)?", re.IGNORECASE)


def is_version(text: str) -> bool:
    """Whether a text is a release, a build, a date, or a name of what is newest, such as "main"."""
    return _VERSION.fullmatch(text) is not None


def version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version in order, release suffixes dropped: "0.8.5.post1" -> (0, 8, 5). [unitless]"""
    head = re.split(
        r"(?:\.?(?:post|rc|dev|alpha|beta)|[-+_a]\D)", version.removeprefix("v").removeprefix("b"), maxsplit=1
    )[0]
    return tuple(int(n) for n in re.findall(r"\d+", head))


def pick_release(
    releases: Sequence[R], version: str | None, *, known_until: str | None = None, known_until_date: str | None = None
) -> tuple[R, bool]:
    """
    The release that a stated version falls in.

    Args:
        releases: Oldest first.
        version: As the caller states it; a date is compared with publication dates; None is the newest.
        known_until: Newest version that was checked; None: no upper bound.
        known_until_date: Its publication date. [ISO date]

    Returns:
        Release, and whether it is certain: False for a version older than the first, newer than is known, or without a
        number ("nightly").
    """
    if version is None:
        return releases[-1], True
    if _DATE.fullmatch(version):
        padded = version + "-99" * (3 - len(version.split("-")))
        fitting = [r for r in releases if r.since_date <= padded]
        known = known_until_date is None or version <= known_until_date
    else:
        key = version_key(version)
        first = key + (_LAST,) * (3 - len(key))
        fitting = [r for r in releases if not key or version_key(r.since) <= first]
        known = bool(key) and (known_until is None or not is_newer(key, version_key(known_until)))
    return (fitting[-1], known) if fitting else (releases[0], False)


def is_newer(version: tuple[int, ...], known: tuple[int, ...]) -> bool:
    """Whether a version lies beyond the known one; "0.8" known covers every 0.8.x. [unitless]"""
    return version[: len(known)] > known
