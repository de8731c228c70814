"""Steps of vision-language models beside recorded allocations of the real classes."""

import json
from functools import cache
from pathlib import Path

import pytest
from oracle_runs import answer

BOOK = json.loads((Path(__file__).parents[2] / "oracles" / "tower_runs.json").read_text())
LIMIT = 0.006
"""Largest error of a peak. [fraction]"""
LANGUAGE = ["q_proj", "k_proj", "v_proj", "o_proj"]


def words(run):
    training = run["training"]
    return " ".join([
        run["family"], f"{run['images']} images", "frozen" * run["frozen"], training["method"],
        training.get("gradient_checkpointing", ""),
    ])  # fmt: skip


@cache
def found(place):
    """The answer of a run; the optimizer has no states."""
    run = BOOK["runs"][place]
    side = 14 * round(run["patches"] ** 0.5)
    images = {"per_sample": run["images"], "height": side, "width": side, "freeze_vision_tower": run["frozen"]}
    training = {"gradient_checkpointing": "none", "sequence_lengths": "fixed", "cross_entropy": "full"} | run[
        "training"
    ]
    training |= {"framework": "transformers", "optimizer": "sgd", "compute_dtype": "bf16", "images": images}
    if "lora" in training:
        training["lora"] = {"rank": 16, "dropout": 0.0, "target_modules": LANGUAGE}
    return answer(
        {"model": {"config": BOOK["configs"][run["family"]]}, "weights": {"format": "bf16"}, "training": training}
    )


def peak(place, name):
    return next(p for p in found(place).phases if p.phase == name).total.allocated.expected


PLACES = [pytest.param(place, id=words(run)) for place, run in enumerate(BOOK["runs"])]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["forward", "backward"])
def test_the_peak_of_a_step_with_images_is_the_recorded_one(place, name):
    recorded = BOOK["runs"][place]["figures"][2 if name == "forward" else 3]

    assert abs(peak(place, name) / recorded - 1) <= LIMIT, (peak(place, name) - recorded, recorded)


@pytest.mark.parametrize("place", PLACES)
def test_what_trains_is_counted_exactly(place):
    assert BOOK["runs"][place]["figures"][0] == found(place).model.parameters.trainable
