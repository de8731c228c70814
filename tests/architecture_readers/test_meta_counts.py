"""
Siblings and odd settings that no catalogue entry has, against what transformers builds on the meta device.

Golden data and the script that makes it: golden/meta_counts.json, tests/oracles/meta_counts.py.
"""

import json
from pathlib import Path

import pytest

from tonnage.architecture import parameters_by_component, read_config
from tonnage.estimate.caches import layer_cache_bytes_per_token, plain_kv_format

ROWS = {
    row["label"]: row
    for row in json.loads((Path(__file__).parent / "golden" / "meta_counts.json").read_text(encoding="utf-8"))["rows"]
}
CACHED_OTHERWISE = {
    "deepseek_v32 small with indexer": "transformers keeps index keys outside its layers' keys and values",
    "glm_moe_dsa with shared indexers": "transformers keeps index keys outside its layers' keys and values",
    "falcon 11B": "transformers repeats the keys and values of this layout for every head before it keeps them",
    "deepseek_v4 small": "transformers keeps window and compressed entries in classes of their own",
}


def test_there_are_enough_of_them():
    assert len(ROWS) >= 40


@pytest.mark.parametrize("label", ROWS)
def test_the_count_is_what_transformers_builds(label):
    counts = ROWS[label]["counts"]
    model = read_config({"architectures": counts["architectures"], **ROWS[label]["config"]})
    assert counts["total"] == model.parameters_total
    assert counts["routed_experts"] == parameters_by_component(model).get("routed_experts", 0)


@pytest.mark.parametrize(
    "label",
    [
        n
        for n, row in ROWS.items()
        if row["counts"]["cache_elements_per_token"] is not None and n not in CACHED_OTHERWISE
    ],
)
def test_the_cache_per_token_is_what_transformers_keeps(label):
    layers = read_config(ROWS[label]["config"]).layers
    bf16 = plain_kv_format("bf16")
    kept = sum(layer_cache_bytes_per_token(group.layer, bf16, bf16) * group.count for group in layers)
    assert 2 * ROWS[label]["counts"]["cache_elements_per_token"] == kept
