"""Weights alone, of a card that states neither serving nor training."""

import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.errors import ContradictoryWorkload
from tonnage.estimate import estimate
from tonnage.spec.card import ModelCard, SizingCard, Training, TrainingLora, WeightsCard
from tonnage.units import GiB

CATALOG = load_catalog()


def counted(kind: str):
    card = SizingCard(model=ModelCard(parameters=7_000_000_000), weights=WeightsCard(format=kind))
    return estimate(resolve(CATALOG, card)).required.expected / GiB


@pytest.mark.parametrize(("kind", "expected"), [("bf16", 13.04), ("Q4_K_M", 3.99), ("Q8_0", 6.93)])
def test_a_bare_count_in_a_gguf_file_type_takes_its_average_width(kind, expected):
    assert expected == pytest.approx(counted(kind), abs=0.01)


def test_an_adapter_for_full_fine_tuning_is_refused_rather_than_left_out():
    card = SizingCard(model="Qwen/Qwen3-8B", training=Training(method="full", lora=TrainingLora(rank=16)))

    with pytest.raises(ContradictoryWorkload, match="method lora"):
        estimate(resolve(CATALOG, card))


@pytest.mark.parametrize("kind", ["bnb-nf4", "awq-w4-g128", "fp8-per-tensor"])
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-72B"])
def test_the_band_of_a_bare_count_holds_models_whose_embedding_stays_wide(kind, model):
    catalog = load_catalog()
    known = estimate(resolve(catalog, SizingCard(model=model, weights=WeightsCard(format=kind))))
    count = known.model.parameters.total
    bare = estimate(resolve(catalog, SizingCard(model=ModelCard(parameters=count), weights=WeightsCard(format=kind))))

    assert bare.required.low < known.required.expected < bare.required.high
    assert bare.required.expected == pytest.approx(known.required.expected, rel=0.25)


def test_a_format_for_experts_says_so_to_a_model_without_any():
    found = estimate(resolve(load_catalog(), SizingCard(model="Qwen/Qwen3-8B", weights=WeightsCard(format="mxfp4"))))

    assert ["/weights/format"] == [f.field for f in found.reasons if "experts only" in f.reason]
