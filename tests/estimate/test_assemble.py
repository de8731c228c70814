"""Totals, peak, requirement and verdict follow from the items alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.assemble import compare, largest_items, total
from tonnage.spec.report import Amount, MemoryItem, Phase, exactly


def item(component, amount, counter="allocated", *, inside=False):
    if isinstance(amount, int):
        amount = exactly(amount)
    return MemoryItem(
        component=component, bytes=amount, basis="exact", law="l", source="s", counter=counter, inside_budget=inside
    )


amounts = st.tuples(*[st.integers(0, 2**50)] * 3).map(lambda t: Amount(*sorted(t)))
items = st.lists(
    st.builds(
        item, st.sampled_from(["weights", "kv_cache"]), amounts, st.sampled_from(["allocated", "reserved", "device"])
    )
)


def test_each_counter_holds_the_one_inside_it():
    sums = total([item("weights", 100), item("fragmentation", 10, "reserved"), item("device_context", 5, "device")])

    assert (100, 110, 115) == (sums.allocated.expected, sums.reserved.expected, sums.device.expected)


def test_independent_bands_combine_as_the_root_of_squares():
    sums = total([item("weights", Amount(70, 100, 130)), item("activations", Amount(60, 100, 140))])

    assert Amount(150, 200, 250) == sums.allocated


def test_inside_a_claimed_budget_only_the_sum_is_certain():
    parts = [item("weights", Amount(70, 100, 130), inside=True), item("kv_cache", Amount(170, 200, 230), inside=True)]

    assert exactly(300) == total(parts, claimed=True).device
    assert total(parts).device.low < 300


@given(items)
def test_bands_never_cross_and_counters_nest(parts):
    sums = total(parts)

    assert sum(p.bytes.expected for p in parts) == sums.device.expected
    assert sums.allocated.expected <= sums.reserved.expected <= sums.device.expected
    for amount in (sums.allocated, sums.reserved, sums.device):
        assert amount.low <= amount.expected <= amount.high


@given(items)
def test_a_sum_is_never_surer_than_its_least_certain_item_nor_wider_than_all_together(parts):
    sums = total(parts).device
    widths = [p.bytes.high - p.bytes.expected for p in parts]

    assert max(widths, default=0) - 1 <= sums.high - sums.expected <= sum(widths) + 1


@pytest.mark.parametrize(
    ("amount", "verdict"),
    [(Amount(8, 9, 10), "met"), (Amount(8, 9, 11), "needs_confirmation"), (Amount(11, 12, 13), "excluded")],
)
def test_verdict_looks_at_the_ends_of_the_band(amount, verdict):
    assert verdict == compare(amount, 10)


def test_a_component_is_its_largest_over_the_phases_and_phases_are_never_added():
    phases = [
        Phase(phase="load", total=total([item("weights", 5)]), items=(item("weights", 5),)),
        Phase(phase="decode", total=total([item("weights", 7)]), items=(item("weights", 7), item("logits", 1))),
    ]

    assert {"weights": 7, "logits": 1} == {i.component: i.bytes.expected for i in largest_items(phases)}
