"""
Items summed by phase and counter.

Items of one phase add up; phases are compared, never added. Independent bands add as the root of their squares,
so that a sum of many small uncertainties stays narrow enough to decide on. Inside a budget that an engine claims
as a whole only the sum is certain, whatever its parts are.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from tonnage.estimate.identity_cache import remembered
from tonnage.spec.report import Amount, Counters, GpuLoad, MemoryItem, Phase, PhaseItems

Sum = tuple[int, int, int]
"""Expected bytes of items, and the squares of their half-widths below and above."""


class Summed(NamedTuple):
    """The phases of one load with their totals, and what the load is judged by."""

    phases: tuple[Phase, ...]
    worst: Phase
    """Phase of the largest device total."""
    allocated: Amount
    reserved: Amount
    highest: Amount
    """Largest device total; its band is that of the largest of all phases."""
    items: tuple[MemoryItem, ...]
    """Each component's largest items over the phases."""
    beside_pool: tuple[int, Amount] | None
    """Of the phases with a claimed pool the one that is largest without it: its place, and its device total without."""
    without_pool: tuple[int, Amount] | None
    """Of the phases without one the largest: its place, and its device total."""

    @property
    def device(self) -> Amount:
        """Largest device total. [bytes]"""
        return self.worst.total.device


class DevicePeak(NamedTuple):
    """The same by the device counter alone, for comparing many layouts."""

    device: Amount
    beside_pool: tuple[int, Amount] | None
    without_pool: tuple[int, Amount] | None
    highest: Amount


@remembered(1024)
def summed(phases: tuple[PhaseItems, ...], claimed: bool) -> Summed:
    """
    Totals of every phase of one load.

    Args:
        phases: Items by phase; an engine hands out the same tuple for cards that differ only in their traffic.
        claimed: The engine claims a pool.

    Returns:
        Phases with totals, the peak by counter, and what it is without the pool.
    """
    totals: list[Phase] = []
    worst = beside = without = -1
    largest = largest_beside = largest_without = -1
    for place, phase in enumerate(phases):
        around_pool = claimed and _has_pool(phase.items)
        counters, pool = _sums(phase.items, around_pool=around_pool)
        totals.append(Phase(phase=phase.phase, total=counters, items=phase.items))
        device = counters.device.expected
        if device > largest:
            largest, worst = device, place
        if not around_pool and device > largest_without:
            largest_without, without = device, place
        elif around_pool and device - pool > largest_beside:
            largest_beside, beside = device - pool, place
    counted = [phase.total for phase in totals]
    return Summed(
        phases=tuple(totals),
        worst=totals[worst],
        allocated=_largest([c.allocated for c in counted]),
        reserved=_largest([c.reserved for c in counted]),
        highest=totals[worst].total.device if claimed else _largest([c.device for c in counted]),
        items=largest_items(totals),
        beside_pool=None if beside < 0 else (beside, _beside_pool(phases[beside].items)),
        without_pool=None if without < 0 else (without, totals[without].total.device),
    )


@remembered(16_384)
def device_peak(phases: tuple[PhaseItems, ...], claimed: bool) -> DevicePeak:
    """
    What `summed` finds for the device counter.

    Args:
        phases: Items by phase.
        claimed: The engine claims a pool.

    Returns:
        The peak, and what it is without the pool.
    """
    peak, beside, without = (-1, 0, 0), (-1, 0, 0), (-1, 0, 0)
    beside_place = without_place = -1
    sums = [_device_sums(phase.items, claimed) for phase in phases]
    for place, (at, rest) in enumerate(sums):
        if at[0] > peak[0]:
            peak = at
        if rest is None and at[0] > without[0]:
            without_place, without = place, at
        elif rest is not None and rest[0] > beside[0]:
            beside_place, beside = place, rest
    device = banded(*peak)
    return DevicePeak(
        device,
        None if beside_place < 0 else (beside_place, banded(*beside)),
        None if without_place < 0 else (without_place, banded(*without)),
        device if claimed else _largest([banded(*at) for at, _ in sums]),
    )


def device_total(items: Iterable[MemoryItem]) -> Amount:
    """Device total of one moment, every item with its own band. [bytes]"""
    return banded(*_device_sums(items, False)[0])


def _device_sums(items: Iterable[MemoryItem], claimed: bool) -> tuple[Sum, Sum | None]:
    """
    Sums of a phase over all counters.

    Returns:
        With the band of a claimed pool (inside its budget only the sum is certain), and without the pool where there is one.
    """
    size = pool = below = above = inside_below = inside_above = pool_below = pool_above = 0
    has_pool = False
    for item in items:
        amount = item.bytes
        expected = amount.expected
        size += expected
        under, over = expected - amount.low, amount.high - expected
        if not item.inside_budget:
            if under or over:
                below += under * under
                above += over * over
        elif item.component == "kv_cache":
            has_pool = True
            pool += expected
            pool_below += under * under
            pool_above += over * over
        elif under or over:
            inside_below += under * under
            inside_above += over * over
    if claimed and has_pool:
        return (size, below, above), (size - pool, below + inside_below, above + inside_above)
    return (size, below + inside_below + pool_below, above + inside_above + pool_above), None


def needed(found: Summed | DevicePeak, demand: Amount) -> Amount:
    """
    Device peak with the claimed pool replaced by what the demand needs of it.

    Args:
        found: Totals of the load.
        demand: What the demand needs. [bytes]

    Returns:
        Device memory that the load needs. [bytes]
    """
    if found.beside_pool is None:
        return found.device
    place, rest = found.beside_pool
    if found.without_pool is not None:
        other_place, other = found.without_pool
        ahead = other.expected - rest.expected - demand.expected
        if ahead > 0 or (ahead == 0 and other_place < place):
            return other
    return joined(rest, demand)


def load_needs(load: GpuLoad, found: Summed | DevicePeak, *, claimed: bool) -> Amount:
    """
    What a GPU must really hold.

    Args:
        load: Its phases, and what it needs where the account says so itself.
        found: Totals of the load.
        claimed: The engine claims a pool.

    Returns:
        Device peak, with the claimed pool replaced by what the demand needs of it. [bytes]
    """
    if load.needed is not None:
        return load.needed
    return found.device if load.demand_kv is None or not claimed else needed(found, load.demand_kv)


def total(items: Iterable[MemoryItem], *, claimed: bool = False) -> Counters:
    """
    Sum of the items of one moment by counter.

    Args:
        items: Items alive together.
        claimed: Whether the engine's pool is among them: inside its budget only the sum is certain.

    Returns:
        Allocated, reserved and device totals; bands combine as independent ones do.
    """
    return _sums(items, around_pool=claimed)[0]


def _sums(items: Iterable[MemoryItem], *, around_pool: bool) -> tuple[Counters, int]:
    """
    Totals of a moment, and the claimed pool in it.

    Args:
        items: Items alive together.
        around_pool: A claimed pool is among them: its budget has no band of its own.

    Returns:
        Totals by counter; size of the pool. [bytes]
    """
    allocated = reserved = device = pool = 0
    below = reserved_below = device_below = above = reserved_above = device_above = 0
    for item in items:
        amount, counter = item.bytes, item.counter
        expected = amount.expected
        if counter == "allocated":
            allocated += expected
        elif counter == "reserved":
            reserved += expected
        else:
            device += expected
        if around_pool and item.inside_budget:
            if item.component == "kv_cache":
                pool += expected
            continue
        low, high = amount.low, amount.high
        if low == high:
            continue
        below_squared, above_squared = (expected - low) ** 2, (high - expected) ** 2
        if counter == "allocated":
            below += below_squared
            above += above_squared
        elif counter == "reserved":
            reserved_below += below_squared
            reserved_above += above_squared
        else:
            device_below += below_squared
            device_above += above_squared
    first = second = third = banded(allocated, below, above)
    if reserved or reserved_below or reserved_above:
        allocated, below, above = allocated + reserved, below + reserved_below, above + reserved_above
        second = third = banded(allocated, below, above)
    if device or device_below or device_above:
        third = banded(allocated + device, below + device_below, above + device_above)
    return Counters(first, second, third), pool


def _beside_pool(items: Iterable[MemoryItem]) -> Amount:
    """Device total of a moment without its claimed pool, every item with its own band. [bytes]"""
    size = below = above = 0
    for item in items:
        if item.inside_budget and item.component == "kv_cache":
            continue
        amount = item.bytes
        expected = amount.expected
        size += expected
        below += (expected - amount.low) ** 2
        above += (amount.high - expected) ** 2
    return banded(size, below, above)


def largest_items(phases: Sequence[Phase]) -> tuple[MemoryItem, ...]:
    """Each component's largest item over the phases; of one component all items of its largest phase."""
    distinct = {id(item): item for phase in phases for item in phase.items}.values()
    if len(distinct) == len({item.component for item in distinct}):
        return tuple(distinct)
    if any(len(phase.items) != len({item.component for item in phase.items}) for phase in phases):
        return _largest_sums(phases)
    largest: dict[str, MemoryItem] = {}
    for item in distinct:
        found = largest.get(item.component)
        if found is None or item.bytes.expected > found.bytes.expected:
            largest[item.component] = item
    return tuple(largest.values())


def _largest_sums(phases: Iterable[Phase]) -> tuple[MemoryItem, ...]:
    """The same where a phase holds several items of one component."""
    largest: dict[str, int] = {}
    held: dict[str, tuple[MemoryItem, ...]] = {}
    for phase in phases:
        sizes: dict[str, int] = {}
        for item in phase.items:
            component = item.component
            sizes[component] = sizes.get(component, 0) + item.bytes.expected
        for component, size in sizes.items():
            if size > largest.get(component, -1):
                largest[component], held[component] = size, phase.items
    return tuple([item for component, items in held.items() for item in items if item.component == component])


def joined(rest: Amount, demand: Amount) -> Amount:
    """Two independent amounts alive together. [bytes]"""
    if demand.low == demand.high:
        size = demand.expected
        return Amount(rest.low + size, rest.expected + size, rest.high + size)
    below = (rest.expected - rest.low) ** 2 + (demand.expected - demand.low) ** 2
    above = (rest.high - rest.expected) ** 2 + (demand.high - demand.expected) ** 2
    return banded(rest.expected + demand.expected, below, above)


def banded(expected: int, below_squared: int, above_squared: int) -> Amount:
    """Amount of a sum and the squares of its half-widths. [bytes]"""
    if not below_squared and not above_squared:
        return Amount(expected, expected, expected)
    below = _root(below_squared)
    above = below if above_squared == below_squared else _root(above_squared)
    return Amount(expected - below if expected > below else 0, expected, expected + above)


_root = lru_cache(4096)(isqrt)  # neighbouring phases mostly have the same bands


def _has_pool(items: Iterable[MemoryItem]) -> bool:
    return "kv_cache" in [item.component for item in items if item.inside_budget]


def _largest(amounts: list[Amount]) -> Amount:
    """The largest of several phases; its high end is the highest of them all, since any may turn out to be the largest."""
    largest = amounts[0]
    expected, highest = largest.expected, largest.high
    for amount in amounts:
        if amount.expected > expected:
            largest, expected = amount, amount.expected
        highest = max(highest, amount.high)
    return largest if highest == largest.high else Amount(largest.low, expected, highest)
