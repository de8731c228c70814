"""What the process keeps between questions has an end, whatever strangers describe."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tonnage import evidence, fit, kept
from tonnage.catalog import Catalog, load_catalog
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitRequest
from tonnage.spec.model import Model

ENGINES = ["vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "transformers", "tgi", "mlx"]
GPU = {"gpu": "h100-sxm"}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(None)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    kept.forget()
    yield
    kept.forget()


def described(number: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000 + number, "torch_dtype": "bfloat16",
    } | more  # fmt: skip


def ask(catalog: Catalog, model: object, **more: object) -> None:
    card = {"model": model, "placement": GPU} | more
    evidence.estimate(catalog, msgspec.convert(card, SizingCard))


def alive() -> int:
    """Models of callers that something still holds."""
    gc.collect()
    return sum(isinstance(thing, Model) and thing.source == "config of the request" for thing in gc.get_objects())


def test_the_oldest_entry_goes_first() -> None:
    cache: kept.Kept[int, str] = kept.Kept(2)
    for number in range(3):
        assert str(number) == cache.keep(number, str(number))

    assert {1: "1", 2: "2"} == cache


def test_threads_that_fill_and_empty_a_cache_at_once_see_no_error() -> None:
    cache: kept.Kept[int, int] = kept.Kept(3)
    errors: list[Exception] = []

    def fill(start: int) -> None:
        try:
            for number in range(start, start + 20_000):
                cache.keep(number, number)
                if not number % 50:
                    kept.forget()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=fill, args=(100_000 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors


def test_forgetting_lets_go_of_every_described_model(catalog: Catalog) -> None:
    for number, engine in enumerate(ENGINES):
        ask(catalog, {"config": described(number)}, serving={"engine": engine, "max_model_len": 2048})
    for number, method in enumerate(["full", "lora", "qlora"], 100):
        ask(catalog, {"config": described(number)}, training={"method": method})
    ask(catalog, {"config": described(200)}, training={"method": "lora"}, failure={"phase": "backward"})
    request = {"model": {"config": described(300)}, "serving": {"engine": "vllm"}, "offer": {"gpus": ["l40s"]}}
    fit.fit(catalog, msgspec.convert(request, FitRequest))
    assert alive()

    kept.forget()

    assert 0 == alive()


def test_described_models_are_forgotten_when_the_budget_is_spent(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "BUDGET_BYTES", 1_000_000)
    most = 0
    for number in range(120):
        ask(catalog, {"config": described(number)}, serving={"engine": ENGINES[number % 8], "max_model_len": 2048})
        most = max(most, alive() if number % 20 == 19 else 0)

    assert 0 < most < 60


def test_a_large_description_weighs_more(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "BUDGET_BYTES", 1_000_000)
    for number in range(6):
        ask(catalog, {"config": described(number, note="x" * 60_000)})

    assert alive() < 3


def test_long_lists_of_settings_weigh_too(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(kept, "BUDGET_BYTES", 1_000_000)
    monkeypatch.setattr(kept, "forget", lambda: forgotten.append(1))
    for number in range(10):
        names = [f"q{number}_{n}" + "x" * 150 for n in range(50)]
        training = {"method": "lora", "lora": {"rank": 8, "target_modules": [*names, "q_proj"]}}
        try:
            ask(catalog, "Qwen/Qwen3-0.6B", training=training)
        except Exception:  # names that are no linear may be refused after they were weighed
            continue

    assert forgotten
