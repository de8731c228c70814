"""Which models a GPU serves, over the whole catalogue."""

import msgspec
from fit_requests import catalog

from tonnage.fit import models
from tonnage.spec.card import SizingCard


def card(gpu, **serving):
    body = {"model": "any", "serving": {"engine": "vllm", "max_model_len": 4096} | serving, "placement": {"gpu": gpu}}
    return msgspec.convert(body, SizingCard)


def test_met_models_stand_first_and_largest_before_smaller():
    found = models(catalog(), card("l4"))
    order = [(f.verdict != "met", -f.parameters) for f in found]

    assert sorted(order) == order
    assert any(f.model == "meta-llama/Llama-3.2-3B" and f.verdict == "met" for f in found)
    assert all(f.required.low <= 23 * 2**30 for f in found)


def test_a_larger_gpu_serves_every_model_that_a_smaller_one_does():
    small, large = ({f.model for f in models(catalog(), card(gpu)) if f.verdict == "met"} for gpu in ("l4", "l40s"))

    assert small <= large


def test_a_card_without_a_gpu_has_no_answer():
    assert () == models(catalog(), card(None), among=["meta-llama/Llama-3.2-3B"])
