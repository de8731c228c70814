"""Device maps against those of the libraries themselves: 5 models on 2, 3, 4 and 8 GPUs by two rules."""

import json
from pathlib import Path

import pytest

from tonnage.architecture import read_config
from tonnage.catalog import load_catalog
from tonnage.estimate.serving.transformers_resident import Loading, residents

BOOK = json.loads((Path(__file__).parents[2] / "measured" / "device_maps.json").read_text())


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.mark.parametrize("recorded", BOOK["maps"], ids=lambda m: f"{m['model']}-{m['devices']}-{m['rule']}")
def test_every_layer_lands_where_the_library_puts_it(recorded, catalog):
    found = residents(
        read_config(BOOK["models"][recorded["model"]]),
        catalog.formats.get("bf16", ""),
        catalog.formats.entries,
        dtype="",
        loading=Loading(0.0, False, False, recorded["rule"] == "transformers"),
        devices=recorded["devices"],
        known_bytes=None,
    )
    layers = [len(part.layers) for part in found]
    empty = [0] * (recorded["devices"] - len(layers))

    assert recorded["layers"] == layers + empty
    assert recorded["head"] == next(n for n, part in enumerate(found) if part.head)
