"""Engines with one qkv matrix hold keys and values of every layer."""

from functools import cache

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate.fused_projections import with_whole_projections
from tonnage.spec.card import SizingCard


@cache
def catalog():
    return load_catalog()


def model_of(name):
    request = {"model": name, "serving": {"engine": "vllm"}, "placement": {"gpu": "h200-sxm"}}
    return resolve(catalog(), msgspec.convert(request, SizingCard)).model


def added(name):
    model = model_of(name)
    layers = (with_whole_projections(model).layers, model.layers)
    whole, stored = (sum(t.elements * len(g.indices) for g in groups for t in g.layer.tensors) for groups in layers)
    return whole - stored


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("google/gemma-4-31B-it", 10 * 4 * 512 * 5376),
        ("google/gemma-4-E4B-it", 2 * 2560 * (15 * 2 * 256 + 3 * 2 * 512)),
    ],
)
def test_what_the_checkpoint_leaves_out_is_held(name, elements):
    """31B: the values of ten layers are their keys; E4B: 18 layers read the cache of an earlier one."""
    assert elements == added(name)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "microsoft/Phi-3.5-mini-instruct"])
def test_nothing_is_added_to_models_that_store_all(name):
    model = model_of(name)

    assert with_whole_projections(model) is model
