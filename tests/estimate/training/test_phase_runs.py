"""What happens between steps beside recorded allocations: the Trainer's evaluation loop, PEFT's merge."""

import json
from functools import cache
from pathlib import Path

import pytest
from oracle_runs import answer

BOOK = json.loads((Path(__file__).parents[2] / "oracles" / "phase_runs.json").read_text())
LIMIT = 0.002
"""Largest error of the phase's peak. [fraction]"""


def words(run):
    return " ".join([run["family"], run["phase"], *(str(v) for v in run["training"].values())])


@cache
def found(place):
    """The answer of a run; nothing is resident but weights, so the optimizer has no states."""
    run = BOOK["runs"][place]
    training = {"gradient_checkpointing": "none", "sequence_lengths": "fixed", "cross_entropy": "full"} | run[
        "training"
    ]
    training |= {"framework": "transformers", "optimizer": "sgd"}
    card = {"model": {"config": BOOK["configs"][run["family"]]}, "weights": {"format": training["weight_dtype"]}}
    if "lora" in training:
        lora = {"dropout": 0.0} | training["lora"]
        training["method"] = "dora" if lora.pop("dora", False) else "lora"
        training["lora"] = lora
    if run["phase"] == "merge":
        card["failure"] = {"phase": "merge"}
    return answer(card | {"training": training})


def peak(place):
    phase = BOOK["runs"][place]["phase"]
    return next(p for p in found(place).phases if p.phase == phase).total.allocated.expected


PLACES = [pytest.param(place, id=words(run)) for place, run in enumerate(BOOK["runs"])]


@pytest.mark.parametrize("place", PLACES)
def test_the_peak_between_steps_is_the_recorded_one(place):
    recorded = BOOK["runs"][place]["figures"][2]

    assert abs(peak(place) / recorded - 1) <= LIMIT, (peak(place) - recorded, recorded)


@pytest.mark.parametrize("place", PLACES)
def test_what_trains_is_counted_exactly(place):
    assert BOOK["runs"][place]["figures"][0] == found(place).model.parameters.trainable
