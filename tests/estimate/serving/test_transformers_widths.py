"""Prefill widths against traced runs of the library, 38 small models of 30 types."""

import json
from pathlib import Path

import pytest

from tonnage.architecture import read_config
from tonnage.estimate import caches
from tonnage.estimate.caches import plain_kv_format
from tonnage.estimate.serving.transformers_widths import Execution, width
from tonnage.laws.generate import INDEX_BYTES

TRACES = json.loads((Path(__file__).parents[2] / "measured" / "generate_traces.json").read_text())["traces"]
IDS_OF_THE_TRACE = 8
FP32_ROUTING = {"mixtral", "deepseek_v3", "glm4_moe"}
LOOSE = {
    "falcon": 0.55, "gpt_bigcode": 0.45, "qwen2_moe": 0.25, "stablelm": 0.12, "gpt2": 0.1, "exaone4": 0.07, "olmo2": 0.14,
    "qwen3_5_text": 0.06,
}  # fmt: skip
"""Older models with code of their own, and what the law does not tell apart."""
BF16 = plain_kv_format("bf16")


@pytest.mark.parametrize("trace", TRACES, ids=[f"{t['config']['model_type']}-{n}" for n, t in enumerate(TRACES)])
def test_width_and_cache_are_those_of_the_trace(trace):
    model = read_config(trace["config"])
    execution = Execution(2, False, True, 4 if model.model_type in FP32_ROUTING else 2)
    found = width(model, execution, None).per_token - INDEX_BYTES + IDS_OF_THE_TRACE
    cached = caches.token_bytes(model, BF16, BF16)

    assert trace["bytes_per_token"] == pytest.approx(found + cached, rel=LOOSE.get(model.model_type, 0.025))
