"""Cards of fine-tuning jobs and their answers, for the tests of this folder."""

from functools import cache

import msgspec

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate import estimate
from tonnage.estimate.training.settings import settings
from tonnage.spec.card import SizingCard

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip
PARAMETERS = 8_030_261_248


@cache
def catalog():
    return load_catalog()


def card(config=LLAMA, *, placement=None, weights="bf16", more=None, **training):
    """The card of a job; whatever it leaves open is the framework's default."""
    stated = {"micro_batch_size": 1, "sequence_length": 2048, "sequence_lengths": "fixed"} | training
    request = {"model": {"config": config}, "weights": {"format": weights}, "training": stated}
    return msgspec.convert(request | {"placement": placement or {}} | (more or {}), SizingCard)


def workload(*args, **training):
    return resolve(catalog(), card(*args, **training))


def job(*args, **training):
    """The resolved settings of a job."""
    return settings(workload(*args, **training))


def answer(*args, **training):
    return estimate(workload(*args, **training))


def phase(found, name):
    return next(p for p in found.phases if p.phase == name)


def item(found, component, name="backward"):
    """Expected bytes of a component in a phase, 0 without one. [bytes]"""
    return sum(i.bytes.expected for i in phase(found, name).items if i.component == component)


def allocated(found, name=None):
    return (found.peak if name is None else phase(found, name).total).allocated.expected
