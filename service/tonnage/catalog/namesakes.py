"""Boards that share a loose name and differ in memory: "A100" is one of 40 GB as well as one of 80."""

import re

from msgspec.structs import replace

from tonnage.catalog.contents import Catalog
from tonnage.catalog.lookup import gpu_fold
from tonnage.spec.facts import Gpu
from tonnage.units import GB

_APART = frozenset({"laptop"})
"""Words of ids that nobody leaves out of a name."""


def namesakes(catalog: Catalog, name: str) -> tuple[Gpu, ...]:
    """
    What else a name may stand for.

    Args:
        catalog: The facts.
        name: As a card states it.

    Returns:
        Boards of another nominal memory than the one that is taken; none for a name of one board.
    """
    taken = _taken(catalog, name)
    if taken is None:
        return ()
    others = [g for g in _listed(catalog, name, taken) if g.memory_nominal_bytes != taken.memory_nominal_bytes]
    return (*others, *(_sold_with(taken, memory) for memory in taken.other_memory_bytes))


def boards_of(catalog: Catalog, name: str) -> tuple[Gpu, ...]:
    """
    Boards of the catalogue that a loose name stands for.

    Args:
        catalog: The facts.
        name: As a request states it.

    Returns:
        The one that is taken and all others of that name, whatever their memory and form; none for a name of one board.
    """
    taken = _taken(catalog, name)
    if taken is None:
        return ()
    return (taken, *(g for g in _listed(catalog, name, taken) if g is not taken))


def _taken(catalog: Catalog, name: str) -> Gpu | None:
    """The board a loose name is taken for."""
    return None if catalog.gpus.find(name) is not None else catalog.gpu_defaults.get(gpu_fold(name))


def _listed(catalog: Catalog, name: str, taken: Gpu) -> list[Gpu]:
    """Boards whose ids hold every word of the name."""
    spelled = next(n for n in taken.default_for if gpu_fold(n) == gpu_fold(name))
    words = [word.removesuffix("gb") for word in re.split(r"[^a-z0-9]+", spelled.lower()) if word]
    return [g for g in catalog.gpus if set(words) <= set(g.id.split("-")) and not _APART & set(g.id.split("-"))]


def _sold_with(gpu: Gpu, memory: int) -> Gpu:
    """The same chip with another memory, of which the same part is usable."""
    return replace(
        gpu,
        name=f"{gpu.name.rpartition(' ')[0]} {memory // GB}GB",
        memory_nominal_bytes=memory,
        memory_device_bytes=None,
        memory_usable_bytes=gpu.memory_usable_bytes * memory // gpu.memory_nominal_bytes,
        memory_usable_expected_bytes=None,
    )
