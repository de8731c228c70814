"""A loose GPU name needs confirmation where the board of that name decides."""

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.catalog.namesakes import namesakes
from tonnage.estimate import estimate
from tonnage.spec.card import SizingCard
from tonnage.units import GiB


def answer(gpu, reserve):
    card = {
        "model": "Qwen/Qwen3-0.6B", "reserve": reserve, "placement": {"gpu": gpu},
        "serving": {"engine": "llama.cpp", "max_model_len": 4096, "engine_version": "b7000"},
    }  # fmt: skip
    return estimate(resolve(load_catalog(), msgspec.convert(card, SizingCard)))


@pytest.mark.parametrize(
    ("gpu", "reserve", "expected"),
    [
        ("a100", 2 * GiB, "met"),
        ("a100", 60 * GiB, "needs_confirmation"),
        ("a100", 90 * GiB, "excluded"),
        ("a100-80-sxm", 60 * GiB, "met"),
        ("v100", 2 * GiB, "met"),
        ("v100", 20 * GiB, "needs_confirmation"),
        ("v100-16", 20 * GiB, "excluded"),
        ("m3-max", 80 * GiB, "needs_confirmation"),
    ],
)
def test_a_verdict_of_a_loose_name_holds_for_every_board_of_that_name(gpu, reserve, expected):
    found = answer(gpu, reserve)
    assert expected == found.verdict
    assert expected == max((r.status for r in found.reasons), key=["met", "needs_confirmation", "excluded"].index)


def test_the_reason_names_the_boards():
    reason = answer("m3-max", 80 * GiB).reasons[-1].reason
    assert "Apple M3 Max 128GB is taken: met" in reason
    assert "Apple M3 Max 36GB: excluded" in reason


def test_boards_of_one_memory_leave_nothing_open():
    catalog = load_catalog()
    assert () == namesakes(catalog, "A100 80GB")
    assert () == namesakes(catalog, "h100-sxm")
    assert ["a100-40-sxm", "a100-40-pcie"] == [gpu.id for gpu in namesakes(catalog, "A100")]
    assert () == namesakes(catalog, "nothing of the kind")
