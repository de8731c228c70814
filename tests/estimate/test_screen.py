"""Comparing many layouts looks at the device counter alone and must find what the whole judgement finds."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.estimate.accounts import decisive
from tonnage.estimate.assemble import judge, screen
from tonnage.estimate.totals import summed, total
from tonnage.spec.report import Account, Amount, GpuLoad, MemoryItem, PhaseItems

SIZES = st.integers(0, 10**11)


@st.composite
def bands(draw):
    low, expected, high = sorted(draw(st.tuples(SIZES, SIZES, SIZES)))
    return Amount(low, expected, high)


@st.composite
def items(draw):
    return MemoryItem(
        component=draw(st.sampled_from(["weights", "kv_cache", "activations"])),
        bytes=draw(bands()),
        basis="derived",
        law="l",
        source="s",
        counter=draw(st.sampled_from(["allocated", "reserved", "device"])),
        inside_budget=draw(st.booleans()),
    )


@st.composite
def accounts(draw):
    phase = st.builds(PhaseItems, st.sampled_from(["load", "decode"]), st.lists(items(), max_size=5).map(tuple))
    load = st.builds(
        lambda phases, demand, needed: GpuLoad(
            ranks=(0,), stage=0, phases=tuple(phases), demand_kv=demand, needed=needed
        ),
        st.lists(phase, min_size=1, max_size=4),
        st.none() | bands(),
        st.none() | bands(),
    )
    claimed = draw(st.none() | st.just(1))
    return Account(loads=tuple(draw(st.lists(load, min_size=1, max_size=3))), claimed_bytes=claimed)


@settings(deadline=None)
@given(account=accounts(), reserve=SIZES, fraction=st.sampled_from([0.0, 0.2]))
def test_screening_finds_what_judging_finds(account, reserve, fraction):
    workload = SimpleNamespace(reserve_bytes=reserve, reserve_fraction=fraction)
    judged, screened = judge(workload, account), screen(workload, decisive(account))

    assert judged.required == screened.required
    assert judged.claim == screened.claim


@settings(deadline=None)
@given(account=accounts())
def test_totals_of_a_load_are_the_sums_of_its_phases(account):
    claimed = account.claimed_bytes is not None
    for load in account.loads:
        for phase in summed(load.phases, claimed).phases:
            pool = any(i.inside_budget and i.component == "kv_cache" for i in phase.items)

            assert sum(i.bytes.expected for i in phase.items) == phase.total.device.expected
            assert total(phase.items, claimed=claimed and pool) == phase.total
