"""Sums of phases against the definition written out without regard to speed."""

from math import isqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.totals import (
    banded,
    device_peak,
    joined,
    largest_items,
    needed,
    summed,
    total,
)
from tonnage.spec.report import Amount, Counters, MemoryItem, Phase, PhaseItems, exactly

ORDER = ("allocated", "reserved", "device")


def item(component="weights", amount=1, counter="allocated", *, inside=False):
    amount = exactly(amount) if isinstance(amount, int) else Amount(*amount)
    return MemoryItem(
        component=component, bytes=amount, basis="exact", law="l", source="s", counter=counter, inside_budget=inside
    )


def phase(name, *items):
    return PhaseItems(phase=name, items=items)


# ---- the definition ----


def band(items, certain=lambda _: False):
    """Expected bytes add up; half-widths add as squares, but for items whose size does not matter to the sum."""
    size = sum(i.bytes.expected for i in items)
    below = isqrt(sum((i.bytes.expected - i.bytes.low) ** 2 for i in items if not certain(i)))
    above = isqrt(sum((i.bytes.high - i.bytes.expected) ** 2 for i in items if not certain(i)))
    return Amount(max(0, size - below), size, size + above)


def pool(found):
    return [i for i in found.items if i.inside_budget and i.component == "kv_cache"]


def counters(found, claimed):
    certain = (lambda i: i.inside_budget) if claimed and pool(found) else (lambda _: False)
    seen = [[i for i in found.items if ORDER.index(i.counter) <= place] for place in range(3)]
    return Counters(*(band(items, certain) for items in seen))


def beside(found):
    return band([i for i in found.items if i not in pool(found)])


def expectations(phases, claimed):
    """Largest total by counter, and the largest phase beside and without a claimed pool, the first of equals."""
    totals = [counters(p, claimed) for p in phases]
    places = range(len(phases))
    around = [place for place in places if claimed and pool(phases[place])]
    others = [place for place in places if place not in around]

    def first(among, size):
        return max(among, key=size, default=None)

    most = first(around, lambda n: beside(phases[n]).expected)
    other = first(others, lambda n: totals[n].device.expected)
    return {
        "totals": totals,
        "worst": first(places, lambda n: totals[n].device.expected),
        "allocated": largest([t.allocated for t in totals]),
        "reserved": largest([t.reserved for t in totals]),
        "beside_pool": None if most is None else (most, beside(phases[most])),
        "without_pool": None if other is None else (other, totals[other].device),
    }


def largest(amounts):
    """The largest expected amount, up to the highest high end of any."""
    found = max(amounts, key=lambda a: a.expected)
    return Amount(found.low, found.expected, max(a.high for a in amounts))


# ---- drawn phases ----

amounts = st.tuples(*[st.integers(0, 40)] * 3).map(sorted).map(tuple)
items = st.builds(
    item,
    st.sampled_from(["weights", "kv_cache", "activations"]),
    amounts,
    st.sampled_from(ORDER),
    inside=st.booleans(),
)
phases = st.lists(
    st.builds(lambda name, held: phase(name, *held), st.sampled_from(["load", "decode"]), st.lists(items, max_size=5)),
    min_size=1,
    max_size=4,
).map(tuple)


def distinct(found):
    """No item stands twice, so that a comparison cannot take one for the other."""
    return tuple(
        phase(p.phase, *(item(i.component, (i.bytes.low, i.bytes.expected, i.bytes.high), i.counter, inside=i.inside_budget)
                         for i in dict.fromkeys(p.items)))
        for p in found
    )  # fmt: skip


@given(phases.map(distinct), st.booleans())
def test_sums_are_those_of_the_definition(found, claimed):
    expected, answer = expectations(found, claimed), summed(found, claimed)

    assert expected["totals"] == [p.total for p in answer.phases]
    assert [(p.phase, p.items) for p in found] == [(p.phase, p.items) for p in answer.phases]
    assert answer.worst is answer.phases[expected["worst"]]
    if not claimed:
        assert answer.highest == largest([t.device for t in expected["totals"]])
    assert answer.device == expected["totals"][expected["worst"]].device
    assert (expected["allocated"], expected["reserved"]) == (answer.allocated, answer.reserved)
    assert (expected["beside_pool"], expected["without_pool"]) == (answer.beside_pool, answer.without_pool)


@given(phases.map(distinct), st.booleans())
def test_the_device_counter_alone_is_that_of_the_whole_sum(found, claimed):
    whole, alone = summed(found, claimed), device_peak(found, claimed)

    assert (whole.device, whole.beside_pool, whole.without_pool, whole.highest) == (
        alone.device,
        alone.beside_pool,
        alone.without_pool,
        alone.highest,
    )


@given(st.lists(items, max_size=6))
def test_a_total_without_a_claim_gives_every_item_its_band(held):
    held = list(dict.fromkeys(held))

    assert counters(phase("load", *held), False) == total(held)


# ---- single rules ----


def test_the_first_of_equal_phases_is_the_worst():
    found = summed((phase("load", item(amount=5)), phase("decode", item(amount=5))), False)

    assert ("load", (0, exactly(5))) == (found.worst.phase, found.without_pool)
    assert (0, exactly(5)) == device_peak((phase("load", item(amount=5)), phase("decode", item(amount=5))), False)[2]


def test_the_first_of_equal_phases_with_a_pool_stands_beside_it():
    same = [
        phase(name, item(amount=5), item("kv_cache", size, inside=True)) for name, size in (("load", 3), ("decode", 9))
    ]

    assert (0, exactly(5)) == summed(tuple(same), True).beside_pool
    assert (0, exactly(5)) == device_peak(tuple(same), True).beside_pool


def test_empty_phases_are_phases_all_the_same():
    found = summed((phase("load"),), False)

    assert (exactly(0), (0, exactly(0)), None) == (found.device, found.without_pool, found.beside_pool)
    assert (exactly(0), None, (0, exactly(0)), exactly(0)) == device_peak((phase("load"),), False)
    only_pool = (phase("load", item("kv_cache", 0, inside=True)),)
    assert (0, exactly(0)) == summed(only_pool, True).beside_pool == device_peak(only_pool, True).beside_pool


def test_a_pool_outside_the_budget_is_no_claimed_pool():
    found = summed((phase("load", item("kv_cache", 5)),), True)

    assert (None, (0, exactly(5))) == (found.beside_pool, found.without_pool)


@pytest.mark.parametrize("claimed", [True, False])
def test_the_band_of_a_budget_counts_unless_a_pool_fills_it(claimed):
    parts = (item("weights", (70, 100, 130), inside=True), item("kv_cache", (160, 200, 240), inside=True))
    found = summed((phase("load", *parts),), claimed).device

    assert (exactly(300) if claimed else Amount(250, 300, 350)) == found


def test_a_band_reaches_no_lower_than_nothing():
    assert Amount(0, 5, 5) == banded(5, 49, 0)
    assert Amount(0, 5, 12) == banded(5, 25, 49)
    assert Amount(1, 5, 5) == banded(5, 16, 0)


def test_two_amounts_alive_together_add_their_squares():
    assert Amount(25, 30, 43) == joined(Amount(7, 10, 15), Amount(16, 20, 32))


# ---- the pool replaced by the demand ----


def loads(other, rest, *, other_first=False):
    with_pool = phase("decode", item(amount=rest), item("kv_cache", 1000, inside=True))
    without = phase("load", item(amount=other))
    return (without, with_pool) if other_first else (with_pool, without)


@pytest.mark.parametrize("find", [summed, device_peak])
@pytest.mark.parametrize(
    ("other", "first", "expected"),
    [(29, False, 30), (31, False, 31), (30, False, 30), (30, True, 30)],
)
def test_what_is_needed_is_the_demand_beside_the_rest_or_a_larger_phase(find, other, first, expected):
    found = find(loads(other, 10, other_first=first), True)

    assert expected == needed(found, Amount(15, 20, 25)).expected


@pytest.mark.parametrize("find", [summed, device_peak])
def test_of_equals_the_earlier_phase_decides_what_is_needed(find):
    demand = Amount(15, 20, 25)

    assert Amount(25, 30, 35) == needed(find(loads(30, 10), True), demand)
    assert exactly(30) == needed(find(loads(30, 10, other_first=True), True), demand)


@pytest.mark.parametrize("find", [summed, device_peak])
def test_without_a_claimed_pool_all_is_needed_and_with_nothing_but_one_the_demand(find):
    assert exactly(30) == needed(find((phase("load", item(amount=30)),), True), exactly(99))
    only = find((phase("decode", item(amount=10), item("kv_cache", 1000, inside=True)),), True)
    assert exactly(30) == needed(only, exactly(20))


# ---- largest items ----


def at(name, *held):
    return Phase(phase=name, total=total(held), items=held)


def test_of_a_component_all_items_of_its_largest_phase_are_kept():
    two = (item("weights", 3), item("weights", 4), item("logits", 1))
    found = largest_items([at("load", item("weights", 6)), at("decode", *two), at("idle", item("weights", 7))])

    assert [("weights", 3), ("weights", 4), ("logits", 1)] == [(i.component, i.bytes.expected) for i in found]


def test_a_component_of_no_size_is_kept():
    assert ["weights"] == [i.component for i in largest_items([at("load", item("weights", 0))])]


def test_of_phases_with_a_pool_the_one_with_most_beside_it_counts_not_the_one_with_the_largest_pool():
    found = tuple(
        phase(name, item(amount=rest), item("kv_cache", size, inside=True))
        for name, rest, size in (("load", 10, 1), ("decode", 5, 100))
    )

    assert (0, exactly(10)) == summed(found, True).beside_pool == device_peak(found, True).beside_pool
