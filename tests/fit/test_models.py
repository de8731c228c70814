"""Which models a GPU serves, over the whole catalogue."""

import msgspec
import pytest
from fit_requests import catalog

from tonnage.catalog import resolve
from tonnage.errors import SizingError, UnknownName
from tonnage.estimate import estimate
from tonnage.fit import models
from tonnage.spec.fit_models import ModelsRequest
from tonnage.units import BILLION


def asked(gpu, more=None, **serving):
    body = {"serving": {"engine": "vllm", "max_model_len": 4096} | serving, "placement": {"gpu": gpu}, "limit": 500}
    return msgspec.convert(body | (more or {}), ModelsRequest)


def test_met_models_stand_first_and_largest_before_smaller():
    found = models(catalog(), asked("l4"))
    order = [(f.verdict != "met", -f.parameters) for f in found.models]

    assert sorted(order) == order
    assert list(range(1, len(found.models) + 1)) == [f.rank for f in found.models]
    assert any(f.model == "meta-llama/Llama-3.2-3B" and f.verdict == "met" for f in found.models)
    assert all(f.required.low <= found.usable_bytes for f in found.models)


def test_a_larger_gpu_serves_every_model_that_a_smaller_one_does():
    small, large = (
        {f.model for f in models(catalog(), asked(gpu)).models if f.verdict == "met"} for gpu in ("l4", "l40s")
    )

    assert small <= large


def test_each_verdict_is_that_of_estimate():
    request = asked("l40s", {"q": "qwen3", "include_excluded": True})

    for found in models(catalog(), request).models:
        alone = estimate(resolve(catalog(), request.card(found.model)))
        assert (found.model, alone.verdict, alone.required) == (found.model, found.verdict, found.required)
        assert found.reason


def test_only_models_within_the_bounds_are_looked_at():
    found = models(
        catalog(), asked("h200-sxm", {"q": "QWEN", "min_parameters": 7 * BILLION, "max_parameters": 9 * BILLION})
    )

    assert found.models
    assert all("qwen" in f.model.lower() and 7 * BILLION <= f.parameters <= 9 * BILLION for f in found.models)


def test_what_does_not_fit_is_counted_and_listed_only_when_asked_for():
    more = {"models": ["meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.2-1B"]}
    without, with_them = (
        models(catalog(), asked("l4", more)),
        models(catalog(), asked("l4", more | {"include_excluded": True})),
    )

    assert (1, 1) == (without.considered.excluded, len(without.models))
    assert ["met", "excluded"] == [f.verdict for f in with_them.models]


def test_models_that_the_card_cannot_be_put_to_are_counted_by_reason():
    found = models(catalog(), asked("h100-sxm", {"placement": {"gpu": "h100-sxm", "tensor_parallel_size": 8}}))

    assert sum(group.count for group in found.not_estimated) == found.considered.not_estimated
    assert all(group.reason and group.example for group in found.not_estimated)


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"placement": {"gpu": "l44"}}, "/placement/gpu"),
        ({"weights": {"format": "fp9"}}, "/weights/format"),
        ({"models": ["meta-llama/Llama-3.2-3B", "nobody/nothing"]}, "/models/1"),
    ],
)
def test_an_unknown_name_is_refused_where_it_stands(more, pointer):
    with pytest.raises(UnknownName) as refused:
        models(catalog(), asked("l4", more))

    assert pointer == refused.value.pointer


def test_settings_that_suit_no_model_are_refused_with_the_reason_of_the_first():
    seven = {"placement": {"gpu": "l4", "tensor_parallel_size": 7}, "q": "Llama-3.2-3B"}

    with pytest.raises(SizingError, match="divisible"):
        models(catalog(), asked("l4", seven))


def test_a_card_without_a_gpu_is_refused():
    with pytest.raises(msgspec.ValidationError, match=r"placement\.gpu"):
        asked(None)


def test_the_digest_is_that_of_the_question():
    first, again, other = (models(catalog(), asked(gpu, {"q": "Llama-3.2"})).digest for gpu in ("l4", "l4", "l40s"))

    assert first == again != other
