"""Any card of real names and allowed settings is answered or refused with a reason, never with a 500."""

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.cards import Cards
from tests.api.conftest import in_process

from tonnage.api.app import Application, create_app
from tonnage.api.settings import Settings
from tonnage.catalog import load_catalog
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitRequest
from tonnage.spec.report import Amount

EXAMPLES = int(os.environ.get("FUZZ_CARDS", "60"))
CATALOG = load_catalog()
MODELS = [
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3",
    "openai/gpt-oss-20b", "google/gemma-3-27b-it", "mistralai/Mistral-7B-Instruct-v0.3", "openai/whisper-large-v3",
    "google-bert/bert-base-uncased", "state-spaces/mamba-130m-hf", "Qwen/Qwen2.5-VL-7B-Instruct",
]  # fmt: skip
CARDS = Cards(CATALOG, [name for name in MODELS if name in CATALOG.models])
slow = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


ODD_KEYS = ["hidden_size", "num_hidden_layers", "text_config", "layer_types", "rope_scaling", "sliding_window"]
ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200_000) | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ODD_KEYS), inner, max_size=3),
)
KINDS = ["llama", "qwen3", "deepseek_v3", "gemma3", "gpt_oss", "mamba2", "qwen2_5_vl", "nothing"]


@pytest.fixture(scope="module")
def service() -> Application:
    return create_app(Settings(access_log=False, deadline_seconds=600))


def asked(app: Application, path: str, body: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with in_process(app) as client:
            return await client.post(path, json=body)

    return asyncio.run(ask())


def amounts(node: Any) -> Iterator[dict[str, int]]:
    if isinstance(node, dict):
        if set(node) == set(Amount.__struct_fields__):
            yield node
        for child in node.values():
            yield from amounts(child)
    elif isinstance(node, list):
        for child in node:
            yield from amounts(child)


def check(answer: httpx.Response, body: Any) -> None:
    assert answer.status_code in (200, 409, 422), json.dumps(body)
    if answer.status_code == 200:
        for amount in amounts(answer.json()):
            assert amount["low"] <= amount["expected"] <= amount["high"], json.dumps(body)
    else:
        assert answer.json()["detail"]


@slow
@given(CARDS.of(SizingCard))
def test_any_estimate_is_answered_or_refused(service: Application, body: Any) -> None:
    check(asked(service, "/estimate", body), body)


@slow
@given(
    CARDS.of(SizingCard, without=frozenset({"training"})),
    st.sampled_from(["vllm", "transformers", "sglang", "llama.cpp"]),
)
def test_any_serving_card_is_answered_or_refused(service: Application, body: Any, engine: str) -> None:
    body = body | {"serving": (body.get("serving") or {}) | {"engine": engine}}
    check(asked(service, "/estimate", body), body)


@settings(slow, max_examples=max(5, EXAMPLES // 6))
@given(CARDS.of(FitRequest))
def test_any_fit_is_answered_or_refused(service: Application, body: Any) -> None:
    check(asked(service, "/fit", body | {"limit": 2}), body)


@slow
@given(ODD_VALUES, st.sampled_from(KINDS), st.data())
def test_any_config_is_answered_or_refused(service: Application, value: Any, kind: str, data: st.DataObject) -> None:
    known = next((dict(m.config) for m in CATALOG.models if m.config.get("model_type") == kind), {"model_type": kind})
    keys = data.draw(st.lists(st.sampled_from(sorted(known)), max_size=3))
    config = json.loads(msgspec.json.encode(known | dict.fromkeys(keys, value)))
    body = {"model": {"config": config}, "serving": {"engine": "vllm"}, "placement": {"gpu": "h100-sxm"}}
    check(asked(service, "/estimate", body), body)
