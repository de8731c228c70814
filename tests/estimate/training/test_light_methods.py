"""Light methods and optimizers beside what PEFT and the optimizers' own packages make of a model."""

import json
from pathlib import Path

import pytest
from asking import answer, item

BOOK = json.loads((Path(__file__).parents[2] / "oracles" / "light_methods.json").read_text())


@pytest.mark.parametrize(("family", "method", "trained"), BOOK["trainable"])
def test_what_trains_is_counted_exactly(family, method, trained):
    lora = {} if method == "ia3" else {"lora": {"rank": BOOK["virtual_tokens"]}}
    found = answer(BOOK["configs"][family], method=method, sequence_length=512, **lora)

    assert trained == found.model.parameters.trainable


@pytest.mark.parametrize(("optimizer", "kept"), BOOK["states"].items())
def test_states_are_those_of_the_optimizer_itself(optimizer, kept):
    found = answer(
        BOOK["small"],
        weights="fp32",
        optimizer=optimizer,
        weight_dtype="fp32",
        compute_dtype="fp32",
        sequence_length=512,
    )

    assert kept == item(found, "optimizer_states", "optimizer_step")
