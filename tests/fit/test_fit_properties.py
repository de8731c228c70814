"""What must hold for every request: more never hurts, order never matters, a selection is complete."""

import random

from fit_requests import catalog, offered, request, sku
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage.fit import fit
from tonnage.spec.report import VERDICT_ORDER

GPUS = ["t4", "l4", "rtx-4090", "l40s", "rtx-6000-ada", "a100-80-sxm", "h100-sxm", "h200-sxm", "mi300x"]
PARAMETERS = st.integers(1, 200).map(lambda n: {"parameters": n * 10**9})
FORMATS = st.sampled_from(["bf16", "fp8-per-tensor", "awq-w4-g128"])
FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def one(found):
    """The only candidate, excluded or not."""
    return [*found.candidates, *(g.example for g in found.excluded)][0]


def memory_verdict(**fields):
    candidate = one(fit(catalog(), request(**fields)))
    return VERDICT_ORDER[next(r.status for r in candidate.requirements if r.name == "memory")], candidate


@FAST
@given(model=PARAMETERS, weight_format=FORMATS, pair=st.tuples(st.sampled_from(GPUS), st.sampled_from(GPUS)))
def test_more_memory_never_worsens_the_verdict(model, weight_format, pair):
    less, more = sorted(pair, key=lambda g: catalog().gpus.get(g).memory_usable_bytes)
    before, _ = memory_verdict(model=model, weights={"format": weight_format}, offer=offered(sku(gpu=less)))
    after, _ = memory_verdict(model=model, weights={"format": weight_format}, offer=offered(sku(gpu=more)))

    assert after <= before


@FAST
@given(model=PARAMETERS, gpu=st.sampled_from(GPUS), count=st.integers(1, 12))
def test_more_gpus_never_worsen_the_verdict(model, gpu, count):
    few, _ = memory_verdict(model=model, offer=offered(sku(gpu=gpu, gpus_per_host=count)))
    many, _ = memory_verdict(model=model, offer=offered(sku(gpu=gpu, gpus_per_host=count + 1)))

    assert many <= few


@FAST
@given(budget=st.integers(1, 60), more=st.integers(0, 60), price=st.integers(1, 9))
def test_more_budget_never_worsens_the_verdict(budget, more, price):
    def verdict(amount):
        limits = {"duration": 7, "max_price": f"{amount} USD"}
        return VERDICT_ORDER[
            one(fit(catalog(), request(offer=offered(sku(price=str(price))), requirements=limits))).status
        ]

    assert verdict(budget + more) <= verdict(budget)


@FAST
@given(
    seed=st.integers(0, 10**6),
    model=PARAMETERS,
    skus=st.lists(
        st.builds(
            lambda gpu, count, price, hosts: {
                "gpu": gpu,
                "gpus_per_host": count,
                "price": str(price),
                "max_hosts": hosts,
            },
            st.sampled_from(GPUS),
            st.sampled_from([1, 2, 4, 8]),
            st.integers(1, 5),
            st.sampled_from([1, 4]),
        ),
        min_size=2,
        max_size=8,
    ),
)
def test_the_order_of_the_catalogue_never_matters(seed, model, skus):
    listed = [sku(f"sku-{n}", **fields) for n, fields in enumerate(skus)]
    shuffled = list(listed)
    random.Random(seed).shuffle(shuffled)
    first, second = (fit(catalog(), request(model=model, offer=offered(*order))) for order in (listed, shuffled))

    assert [(c.sku, c.hosts, c.status, c.rank) for c in first.candidates] == [
        (c.sku, c.hosts, c.status, c.rank) for c in second.candidates
    ]
    assert [(g.requirement, g.count, g.example.sku) for g in first.excluded] == [
        (g.requirement, g.count, g.example.sku) for g in second.excluded
    ]
    assert first.alternatives == second.alternatives


@FAST
@given(model=PARAMETERS, weight_format=FORMATS, confirmed=st.booleans())
def test_a_selection_has_every_requirement_met(model, weight_format, confirmed):
    evidence = [{"requirement": "workload", "status": "met", "source": "load test"}] if confirmed else []
    found = fit(catalog(), request(model=model, weights={"format": weight_format}, evidence=evidence))

    assert found.selected is None or {"met"} == {r.status for r in found.selected.requirements}
    assert found.selected is not None or not any(c.status == "met" for c in found.candidates)
    for candidate in found.candidates:
        worst = max(VERDICT_ORDER[r.status] for r in candidate.requirements)
        assert worst == VERDICT_ORDER[candidate.status]


@FAST
@given(model=PARAMETERS, limit=st.integers(1, 50))
def test_candidates_are_sorted_by_price(model, limit):
    found = fit(catalog(), request(model=model, limit=limit, requirements={"duration": "3 days"}))
    prices = [c.price.for_duration for c in found.candidates if c.price is not None]

    assert sorted(prices) == prices
    assert len(found.candidates) <= limit


MODELS = ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-27b-it"]
TASKS = [
    {"serving": {"engine": "vllm", "max_model_len": 8192, "concurrency": 4}},
    {"serving": {"engine": "sglang", "max_model_len": 8192, "concurrency": 4}},
    {"training": {"framework": "trl", "method": "lora", "micro_batch_size": 1, "sequence_length": 2048}},
]
ORDERED = ["l4", "l40s", "a100-80-sxm", "h200-sxm"]


@FAST
@given(
    model=st.sampled_from(MODELS), task=st.sampled_from(TASKS), gpu=st.sampled_from(ORDERED), count=st.integers(1, 8)
)
def test_one_more_gpu_never_worsens_a_real_task(model, task, gpu, count):
    card = {"model": model, "weights": {}, "reserve": 0} | task
    few, _ = memory_verdict(**card, offer=offered(sku(gpu=gpu, gpus_per_host=count)))
    many, _ = memory_verdict(**card, offer=offered(sku(gpu=gpu, gpus_per_host=count + 1)))

    assert many <= few


@FAST
@given(
    model=st.sampled_from(MODELS), task=st.sampled_from(TASKS), step=st.integers(0, 2), count=st.sampled_from([1, 2, 4])
)
def test_the_next_larger_gpu_never_worsens_a_real_task(model, task, step, count):
    card = {"model": model, "weights": {}, "reserve": 0} | task
    before, _ = memory_verdict(**card, offer=offered(sku(gpu=ORDERED[step], gpus_per_host=count)))
    after, _ = memory_verdict(**card, offer=offered(sku(gpu=ORDERED[step + 1], gpus_per_host=count)))

    assert after <= before
