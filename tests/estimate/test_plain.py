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
