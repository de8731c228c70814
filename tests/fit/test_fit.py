"""From a card to an order: what is listed, in which order, with what met and what still open."""

import time
from decimal import Decimal

import msgspec
import pytest
from fit_requests import catalog, offered, reasons, request, sku, statuses
from msgspec import structs

from tonnage.errors import ContradictoryWorkload, UnknownName
from tonnage.fit import fit, search
from tonnage.units import GiB

MEMORY_ONLY = [
    {"requirement": "workload", "status": "met", "source": "load test", "date": "2026-09-01"},
]


def answer(**fields):
    return fit(catalog(), request(**fields))


def test_the_published_packages_are_listed_at_their_price_with_what_is_open_told_apart():
    found = answer(requirements={"duration": "3 days"})
    by_sku = {c.sku: c for c in found.candidates}
    small, large = by_sku["iteragpu:rtx-4090:1x:3d"], by_sku["iteragpu:rtx-6000-ada:1x:3d"]

    assert (Decimal("47.14"), Decimal("55.71")) == (small.price.for_duration, large.price.for_duration)
    assert small.rank < large.rank
    assert 14_000_000_000 + 6 * GiB == small.memory.required.expected
    assert statuses(small)["memory"] == "met"
    assert {"workload", "data_age"} <= set(small.missing)
    assert found.selected is None
    assert found.confirmations


def test_candidates_stand_by_price_then_headroom_then_name():
    skus = [
        sku("b", price="2"),
        sku("a", price="2"),
        sku("big", gpu="rtx-6000-ada", price="2"),
        sku("cheap", price="1"),
    ]
    found = answer(offer=offered(*skus))

    assert ["cheap", "big", "a", "b"] == [c.sku for c in found.candidates]
    assert [1, 2, 3, 4] == [c.rank for c in found.candidates]
    assert "1.00 against 2.00" in found.candidates[0].why
    assert "headroom" in found.candidates[1].why
    assert "name" in found.candidates[2].why


def test_only_a_candidate_with_every_requirement_met_is_selected():
    open_card = answer(offer=offered(sku()))
    confirmed = answer(offer=offered(sku()), evidence=MEMORY_ONLY)

    assert open_card.selected is None
    assert any(line.startswith("workload:") for line in open_card.confirmations)
    assert confirmed.selected.sku == "one"
    assert {"met"} == set(statuses(confirmed.selected).values())
    assert confirmed.confirmations == ()


def test_a_preference_never_offsets_an_exclusion():
    found = answer(offer=offered(sku("tiny", gpu="t4", price="0.01"), sku("fits", price="9")))

    assert ["fits"] == [c.sku for c in found.candidates]
    group = found.excluded[0]
    assert ("memory", 1, ("tiny",)) == (group.requirement, group.count, group.skus)
    assert "19.04 GiB" in group.reason
    assert group.example.status == "excluded"


def test_nothing_that_fits_is_a_result_with_the_change_that_would_help():
    found = answer(model={"parameters": 70_000_000_000}, offer=offered(sku("a"), sku("b", gpus_per_host=2)))

    assert (found.candidates, found.selected) == ((), None)
    assert {"/weights/format"} <= {a.field for a in found.alternatives}
    assert all(a.saves_bytes > 0 for a in found.alternatives if a.field == "/weights/format")


@pytest.mark.parametrize(
    ("package", "requirements", "name", "expected"),
    [
        ({"price": "5"}, {"duration": 10, "max_price": "49.99 USD"}, "price", "excluded"),
        ({"price": "5"}, {"duration": 10, "max_price": "50 USD"}, "price", "met"),
        ({"price": "5"}, {"duration": 10, "max_price": "50 EUR"}, "price", "needs_confirmation"),
        ({"offers": []}, {"duration": 10}, "price", "needs_confirmation"),
        ({"offer": {"as_of": None}}, {}, "data_age", "needs_confirmation"),
        ({"offer": {"as_of": "2024-01-01"}}, {"order_date": "2026-09-01"}, "data_age", "needs_confirmation"),
        ({"offer": {"as_of": "2024-01-01"}}, {"order_date": "2026-09-01", "max_price_age_days": 2000}, "data_age", "met"),
        ({"delivery_days": 9}, {"order_date": "2026-09-01", "delivery_by": "2026-09-08"}, "delivery", "excluded"),
        ({"delivery_days": 7}, {"order_date": "2026-09-01", "delivery_by": "2026-09-08"}, "delivery", "met"),
        ({"delivery_days": None}, {"order_date": "2026-09-01", "delivery_by": "2026-09-08"}, "delivery", "needs_confirmation"),
        ({}, {"delivery_by": "2026-09-08"}, "delivery", "needs_confirmation"),
        ({}, {"min_bandwidth": "2 TB/s"}, "bandwidth", "excluded"),
        ({}, {"min_bandwidth": "900 GB/s"}, "bandwidth", "met"),
        ({}, {"native_dtypes": ["fp8"]}, "native_dtypes", "met"),
        ({}, {"native_dtypes": ["fp4"]}, "native_dtypes", "excluded"),
        ({}, {"min_compute_capability": "9.0"}, "native_dtypes", "excluded"),
        ({"host_memory_bytes": "8 GiB"}, {"min_host_memory": "16 GiB"}, "host_memory", "excluded"),
        ({"host_memory_bytes": None}, {"min_host_memory": "16 GiB"}, "host_memory", "needs_confirmation"),
        ({"disk_bytes": "10 GiB"}, {"min_disk": "1 TB"}, "disk", "excluded"),
        ({"disk_bytes": "10 GiB"}, {}, "disk", "needs_confirmation"),
        ({"disk_bytes": None}, {}, "disk", "needs_confirmation"),
        ({}, {"min_headroom_fraction": 0.5}, "memory", "excluded"),
        ({}, {"min_headroom_fraction": 0.1}, "memory", "met"),
        ({}, {"quality": {"metric": "mmlu", "minimum": 0.6, "evidence": {"bf16": 0.65}}}, "quality", "met"),
        ({}, {"quality": {"metric": "mmlu", "minimum": 0.7, "evidence": {"bf16": 0.65}}}, "quality", "excluded"),
        ({}, {"quality": {"metric": "mmlu", "minimum": 0.7}}, "quality", "needs_confirmation"),
        ({}, {"throughput": {"minimum_tokens_per_second": 100, "evidence": {"one": 120}}}, "throughput", "met"),
        ({}, {"throughput": {"minimum_tokens_per_second": 100, "evidence": {"rtx-4090": 90}}}, "throughput", "excluded"),
        ({}, {"throughput": {"minimum_tokens_per_second": 100}}, "throughput", "needs_confirmation"),
        ({"offer": {"per": "term", "term_hours": 72}}, {"duration": "3 days"}, "term", "met"),
        ({"offer": {"per": "term", "term_hours": 72}}, {}, "term", "needs_confirmation"),
        ({"offer": {"kind": "capacity-block"}}, {"duration": "3 days"}, "term", "needs_confirmation"),
    ],
)  # fmt: skip
def test_each_requirement_is_judged_alone(package, requirements, name, expected):
    found = answer(offer=offered(sku(**package)), requirements=requirements)
    judged = [*found.candidates, *(g.example for g in found.excluded)][0]

    assert expected == statuses(judged)[name], reasons(judged)


@pytest.mark.parametrize(
    ("scope", "name", "expected"),
    [
        ({"regions": ["north"]}, "region", "met"),
        ({"regions": ["south"]}, "region", "excluded"),
        ({"providers": ["inline"]}, "provider", "met"),
    ],
)
def test_region_and_provider_are_requirements_too(scope, name, expected):
    found = answer(offer=offered(sku(), **scope))

    assert expected == statuses([*found.candidates, *(g.example for g in found.excluded)][0])[name]


def test_requirements_are_never_short_circuited():
    found = answer(
        offer=offered(sku(gpu="t4", price="99", region="south"), regions=["north"]),
        requirements={"duration": 1, "max_price": "1 USD", "min_bandwidth": "3 TB/s"},
    )
    judged = statuses(found.excluded[0].example)

    assert {"memory", "price", "region", "bandwidth"} <= {
        name for name, status in judged.items() if status == "excluded"
    }


def test_several_hosts_cost_several_times_and_are_offered_only_where_one_is_not_enough():
    big = {"parameters": 30_000_000_000}
    package = sku("host", gpu="h100-sxm", gpus_per_host=1, max_hosts=4, price="3")
    enough = answer(offer=offered(package), requirements={"duration": 10})
    needed = answer(model=big | {"parameters": 60_000_000_000}, offer=offered(package), requirements={"duration": 10})

    assert [(1, Decimal("30.00"))] == [(c.hosts, c.price.for_duration) for c in enough.candidates]
    assert (2, Decimal("60.00")) == (needed.candidates[0].hosts, needed.candidates[0].price.for_duration)


def test_interruptible_and_marketplace_packages_stand_apart_until_they_are_asked_for():
    spot, market = sku("spot", offer={"kind": "spot"}), sku("market", offer={"kind": "marketplace"})
    apart = answer(offer=offered(spot, market, sku("firm")))
    asked = answer(offer=offered(spot, market, sku("firm"), allow={"spot": True, "marketplace": True}))

    assert (["firm"], 2) == ([c.sku for c in apart.candidates], apart.considered.apart)
    assert {"firm", "market", "spot"} == {c.sku for c in asked.candidates}
    assert statuses(next(c for c in asked.candidates if c.sku == "market"))["price"] == "needs_confirmation"


def test_the_callers_record_decides_what_facts_leave_open():
    excluded = answer(
        offer=offered(sku()),
        evidence=[{"requirement": "memory", "sku": "one", "status": "excluded", "source": "it crashed"}],
    )
    contradiction = answer(
        offer=offered(sku(gpu="t4")),
        evidence=[{"requirement": "memory", "gpu": "t4", "status": "met", "source": "it ran"}],
    )

    assert excluded.excluded[0].requirement == "memory"
    assert statuses(contradiction.candidates[0])["memory"] == "needs_confirmation"
    assert "the facts say" in reasons(contradiction.candidates[0])["memory"]


def test_a_stated_layout_is_the_only_one_tried():
    found = answer(placement={"tensor_parallel_size": 2}, offer=offered(sku("one"), sku("two", gpus_per_host=2)))

    assert ["two"] == [c.sku for c in found.candidates]
    assert 2 == found.candidates[0].placement.tensor_parallel_size
    assert "takes 2 GPUs" in found.excluded[0].reason


def test_a_stated_layout_that_the_framework_is_not_known_to_run_is_confirmed_as_estimate_asks():
    training = {"framework": "axolotl", "method": "lora", "sequence_length": 1024, "micro_batch_size": 1}
    two = sku("two", gpu="h100-sxm", gpus_per_host=2)
    stated = {"model": "Qwen/Qwen2.5-7B-Instruct", "training": training, "placement": {"pipeline_parallel_size": 2}}
    found = answer(**stated, offer=offered(two))

    assert "needs_confirmation" == statuses(found.candidates[0])["placement"]
    assert "axolotl is not known to run pipeline parallelism" in reasons(found.candidates[0])["placement"]


def test_a_stated_gpu_narrows_the_offer():
    found = answer(placement={"gpu": "rtx-6000-ada"})

    assert {"rtx-6000-ada"} == {c.gpu for c in found.candidates}


@pytest.mark.parametrize(
    ("offer", "pointer"),
    [
        ({"skus": ["nonsense"]}, "/offer/skus/0"),
        ({"gpus": ["rtx-4090", "rtx-40900"]}, "/offer/gpus/1"),
        ({"providers": ["nobody"]}, "/offer/providers/0"),
        ({"inline": [{"id": "x", "gpu": "nonsense"}]}, "/offer/inline/0/gpu"),
        ({"allow": {"weight_formats": ["nonsense"]}}, "/offer/allow/weight_formats"),
    ],
)
def test_names_that_do_not_exist_are_refused_where_they_stand(offer, pointer):
    with pytest.raises(UnknownName) as refused:
        answer(offer=offer)

    assert pointer == refused.value.pointer


def test_two_currencies_in_one_request_contradict_each_other():
    with pytest.raises(ContradictoryWorkload):
        answer(requirements={"max_price": "5 EUR", "currency": "USD"})


def test_formats_are_told_apart_and_each_has_its_own_estimate():
    found = answer(offer=offered(sku(), allow={"weight_formats": ["bf16", "fp8-block-128x128"]}))
    sizes = {c.weights_format: c.memory.required.expected for c in found.candidates}

    assert sizes["fp8-block-128x128"] < sizes["bf16"]


def test_the_same_question_has_the_same_digest_and_another_question_another():
    first, again, other = (answer(offer=offered(sku()), limit=n) for n in (5, 5, 6))

    assert first.digest == again.digest
    assert first.digest != other.digest


def test_an_inline_package_stands_in_for_the_catalogues_own():
    name = "iteragpu:rtx-4090:1x:3d"
    found = answer(offer={"inline": [sku(name, price="0.5")], "skus": [name]})

    assert [Decimal("0.5")] == [c.price.amount for c in found.candidates]


def test_a_measured_peak_takes_the_place_of_the_estimate():
    measurement = {"counter": "device", "peak_bytes": "15 GiB", "gpu": "rtx-4090"}
    found = answer(offer=offered(sku(), sku("other", gpu="rtx-6000-ada")), measurements=[measurement])
    by_sku = {c.sku: c for c in found.candidates}

    assert by_sku["one"].memory.measured
    assert (15 + 6) * GiB == by_sku["one"].memory.required.expected
    assert not by_sku["other"].memory.measured


def test_todays_run_is_judged_and_gets_its_remedies():
    found = answer(
        model={"parameters": 20_000_000_000},
        current={"gpu": "rtx-4090"},
        failure={"phase": "load", "message": "Tried to allocate 2.00 GiB"},
        offer=offered(sku(gpu="h100-sxm")),
    )

    assert found.current.candidate.status == "excluded"
    assert "/weights/format" in {r.field for r in found.current.remedies}
    assert found.diagnosis.phase == "load"
    assert 2 * GiB == found.diagnosis.read["requested_bytes"]


def test_every_change_is_alone_and_priced_by_a_new_estimate():
    found = answer(offer=offered(sku(), sku("two", gpus_per_host=2, price="3"), sku("big", gpu="l40s", price="2")))
    hardware = {a.field: a for a in found.alternatives if a.field.startswith("/placement/gpu")}

    assert {"two", "big"} == {a.sku for a in hardware.values()}
    assert all(a.price is not None for a in hardware.values())
    assert structs.asdict(found.considered)["candidates"] == 3


def test_a_card_that_was_asked_before_is_answered_alike():
    first = answer(offer=offered(sku()), requirements={"duration": 1})
    other = answer(
        offer=offered(sku(), sku("two", gpus_per_host=2)), requirements={"duration": 2}, failure={"phase": "load"}
    )
    again = answer(offer=offered(sku()), requirements={"duration": 1})

    assert first == again
    assert other.diagnosis.phase == "load"
    assert again.diagnosis is None


def test_a_larger_budget_of_headroom_asks_for_its_own_estimates():
    free = answer(offer=offered(sku()))
    spare = answer(offer=offered(sku()), requirements={"min_headroom_fraction": 0.5})

    assert (["met"], "excluded") == (
        [r.status for r in free.candidates[0].requirements if r.name == "memory"],
        spare.excluded[0].example.status,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"requirements": {"delivery_by": "2026-02-31"}},
        {"requirements": {"order_date": "2026-13-01"}},
        {"requirements": {"duration": "0 days"}},
        {"requirements": {"duration": "3 days\n"}},
        {"requirements": {"max_price": "NaN USD"}},
        {"offer": offered(sku(offer={"as_of": "2025-02-29"}))},
        {"offer": offered(sku(price="NaN"))},
        {"offer": offered(sku(price="Infinity"))},
        {"offer": offered(sku(price="-1"))},
        {"offer": offered(sku(offer={"per": "term"}))},
        {"offer": offered(sku(offer={"term_hours": 3}))},
        {"evidence": [{"requirement": "memory", "status": "met", "source": "x", "sku": "a", "gpu": "b"}]},
        {"current": {}},
        {"limit": 0},
    ],
)
def test_what_cannot_be_meant_is_refused_on_entry(fields):
    with pytest.raises(msgspec.ValidationError):
        request(**fields)


def test_a_request_for_very_many_estimates_is_refused_rather_than_worked_off(monkeypatch):
    monkeypatch.setattr(search, "MOST_ESTIMATES", 3)

    with pytest.raises(ContradictoryWorkload, match="more than 3 estimates"):
        answer()


def test_orders_of_hundreds_of_gpus_are_answered_soon():
    many = [sku(f"s{n}", gpu="l4", gpus_per_host=n) for n in range(700, 720)]
    began = time.process_time()
    answer(model="meta-llama/Llama-3.1-405B", weights={}, serving={"engine": "vllm"}, offer=offered(*many))

    assert time.process_time() - began < 5
