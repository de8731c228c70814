"""Measured peaks take the estimate's place by their own counter, and disagreements are explained."""

import pytest
from msgspec import structs
from toy_physics import item, made

from tonnage.evidence.reconcile import read_parts, reconciled
from tonnage.spec import report
from tonnage.spec.card import Measurement
from tonnage.units import GiB

ITEMS = (
    item("weights", 10 * GiB, basis="exact"),
    item("activations", 4 * GiB, basis="calibrated", spread=GiB),
    item("fragmentation", 1 * GiB, basis="assumed", spread=GiB // 2, counter="reserved"),
    item("device_context", GiB // 2, counter="device"),
)


def measured(counter, size, **more):
    return Measurement(counter=counter, peak_bytes=size, **more)


def after(*measurements, gpu="l4", **more):
    return reconciled(made(ITEMS, **more), measurements, gpu=gpu)


def test_a_device_reading_is_the_requirement():
    assert report.exactly(18 * GiB) == after(measured("device", 18 * GiB)).required


@pytest.mark.parametrize(
    ("counter", "outside"),
    [("allocated", (GiB, 3 * GiB // 2, 2 * GiB)), ("reserved", (GiB // 2, GiB // 2, GiB // 2))],
)
def test_what_a_counter_does_not_see_stays_estimated(counter, outside):
    required = after(measured(counter, 16 * GiB)).required

    assert tuple(16 * GiB + part for part in outside) == (required.low, required.expected, required.high)


def test_the_largest_of_several_measurements_counts():
    assert 19 * GiB == after(measured("device", 12 * GiB), measured("device", 19 * GiB)).required.expected


def test_a_reading_of_another_gpu_changes_nothing():
    assert made(ITEMS).required == after(measured("device", 19 * GiB, gpu="h100-sxm")).required


def test_a_claimed_pool_is_not_the_requirement():
    assert made(ITEMS).required == after(measured("device", 19 * GiB), claimed=18 * GiB).required


@pytest.mark.parametrize(("size", "verdict"), [(19 * GiB, "met"), (21 * GiB, "excluded")])
def test_the_verdict_follows_the_measurement(size, verdict):
    answer = after(measured("device", size))

    assert verdict == answer.verdict
    assert "measured" in answer.reasons[0].reason


def test_a_disagreement_names_the_item_that_most_likely_explains_it():
    row = report.Measured(
        phase="backward",
        counter="allocated",
        measured_bytes=18 * GiB,
        estimated=report.exactly(14 * GiB),
        agrees=False,
        note="off",
    )
    answer = reconciled(made(ITEMS, measured=(row,)), (), gpu=None)

    assert answer.measured[0].note == "off; activations (calibrated, laws.toy) most likely explains it"


def test_lines_of_a_log_stand_beside_their_items():
    rows = read_parts(made(ITEMS, phase="load"), {"weights_bytes": 10 * GiB, "peak_reserved_bytes": 30 * GiB})

    assert [(True, "allocated"), (False, "reserved")] == [(r.agrees, r.counter) for r in rows]


def test_the_pool_of_a_log_stands_beside_the_cache():
    cache = report.KvCache(bytes_per_token=1, state_bytes_per_sequence=0, pool=report.exactly(5 * GiB))
    rows = read_parts(made(ITEMS, kv_cache=cache), {"kv_available_bytes": 5 * GiB})

    assert [True] == [r.agrees for r in rows]


def test_what_an_allocator_gives_back_is_not_added_to_a_measured_peak():
    estimate = made(ITEMS)
    lean = structs.replace(estimate, required=report.exactly(estimate.peak.allocated.expected + GiB // 2))
    required = reconciled(lean, (measured("allocated", 16 * GiB),), gpu="l4").required

    assert 16 * GiB + GiB // 2 == required.expected
