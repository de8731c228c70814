"""Recorded runs of tests/oracles/fake_training.py as requests of POST /estimate."""

import json
from functools import cache
from pathlib import Path
from unittest.mock import patch

import msgspec

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate import estimate
from tonnage.estimate.training import solve
from tonnage.estimate.training.bands import TO_THE_END
from tonnage.spec.card import SizingCard

BOOK = json.loads((Path(__file__).parents[2] / "oracles" / "training_runs.json").read_text())
RUNS = BOOK["runs"]
PHASES = ("forward", "backward", "optimizer_step")


@cache
def catalog():
    return load_catalog()


def answer(request):
    return estimate(resolve(catalog(), msgspec.convert(request, SizingCard)))


def name(run):
    """A run in words, by what it states."""
    training = run["training"]
    lora = training.get("lora", {})
    stated = [str(v) for k, v in training.items() if k not in ("lora", "micro_batch_size")]
    stated += [f"{k} {v}" for k, v in lora.items() if k not in ("rank", "target_modules")]
    return " ".join([run["model"], *stated, *(k for k in run if k not in ("model", "training", "figures"))])


def request(run):
    """The card that describes a run; None where no framework of ours does that."""
    if run.get("autocast") is False and run.get("kbit_fp32") is False:
        return None
    training = BOOK["usual"] | run["training"]
    quantized = training["method"] == "qlora"
    stored = run.get("weights", "bnb-nf4-dq") if quantized else training["weight_dtype"]
    fixed = {"framework": framework(run, quantized), "cross_entropy": "full"}
    training = {"gradient_checkpointing": "none"} | training | fixed
    training["sequence_lengths"] = "varying" if run.get("padded") else "fixed"
    if run.get("reentrant"):
        training["framework_version"] = "4.57"
    if quantized:
        del training["weight_dtype"]
    if "lora" in training:
        lora = {"dropout": 0.0} | training["lora"]
        if lora.pop("dora", False):
            training["method"] = "dora"
        training["lora"] = lora
    return {"model": {"config": BOOK["configs"][run["model"]]}, "weights": {"format": stored}, "training": training}


def framework(run, quantized):
    """Who trains that way: Trainer, TRL with autocast over a 16-bit base, axolotl with a 16-bit rest around 4-bit linears."""
    if run.get("kbit_fp32") is False:
        return "axolotl"
    return "trl" if run.get("autocast") and not quantized else "transformers"


@cache
def compared():
    """Every run that a card describes, beside its answer; padded ones beside that of a batch which reaches the length."""
    asked = ((run, request(run)) for run in RUNS)
    return [(run, at_the_cap(card) if run.get("padded") else answer(card)) for run, card in asked if card is not None]


def at_the_cap(card):
    """The answer if the longest sample has the stated length, which a card cannot say of varying ones."""
    with patch.object(solve, "reach_of", lambda job: TO_THE_END):
        return answer(card)
