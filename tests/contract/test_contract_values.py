"""Numbers that the first issue of the project and its three published articles fix."""

from decimal import Decimal
from typing import Any

import pytest

from tonnage.library import estimate, fit
from tonnage.units import GB, GiB, format_size, parse_size

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"


def served(model: Any, **placement: Any) -> Any:
    return estimate({"model": model, "serving": {"engine": "vllm", "max_model_len": 4096}, "placement": placement})


def weights(answer: Any) -> int:
    return sum(item.bytes.expected for item in answer.gpus[0].items if item.component == "weights")


def test_llama_8b_has_its_published_parameters_and_bytes() -> None:
    answer = estimate({"model": LLAMA_8B, "weights": {"format": "bf16"}})

    assert (8_030_261_248, 16_060_522_496) == (answer.model.parameters.total, weights(answer))


@pytest.mark.parametrize(
    ("model", "ranks", "expected"),
    [
        (LLAMA_8B, 1, 131_072),
        (LLAMA_8B, 4, 32_768),
        ("meta-llama/Llama-3.1-70B", 1, 327_680),
        ("deepseek-ai/DeepSeek-V3", 1, 70_272),
        ("deepseek-ai/DeepSeek-V3", 8, 70_272),
        ("Qwen/Qwen3-30B-A3B", 1, 98_304),
    ],
)
def test_the_cache_of_a_token_on_a_rank(model: str, ranks: int, expected: int) -> None:
    assert expected == served(model, tensor_parallel_size=ranks).kv_cache.bytes_per_token


def test_qwen3_30b_has_its_published_parameters() -> None:
    assert 30_532_122_624 == estimate({"model": "Qwen/Qwen3-30B-A3B"}).model.parameters.total


def test_sliding_and_full_layers_of_gpt_oss_are_told_apart() -> None:
    assert "12 sliding attention (128) + 12 full attention" in estimate({"model": "openai/gpt-oss-20b"}).model.layers


def test_seven_billion_at_16_bit_with_a_reserve() -> None:
    answer = estimate({"model": {"parameters": 7_000_000_000}, "weights": {"format": "bf16"}, "reserve": "6 GiB"})

    assert 14_000_000_000 == weights(answer)
    assert ("13.04 GiB", "19.04 GiB") == (format_size(weights(answer)), format_size(answer.required.expected))
    assert 14_000_000_000 + 6 * GiB == answer.required.low == answer.required.high


def test_twenty_four_gb_are_22_35_gib() -> None:
    assert "22.35 GiB" == format_size(24 * GB) == format_size(parse_size("24 GB"))


@pytest.mark.parametrize(
    ("parameters", "weight_format", "bits", "text", "cards", "hosts"),
    [
        (405_000_000_000, "bf16", 16, "905.2 GiB", 38, 10),
        (405_000_000_000, "ggml-q4_0", 4, "226.3 GiB", 10, 3),
        (70_000_000_000, "ggml-q4_0", 4, "39.1 GiB", 2, 1),
    ],
)
def test_the_rule_of_parameters_times_bits(
    parameters: int, weight_format: str, bits: int, text: str, cards: int, hosts: int
) -> None:
    rule = estimate({"model": {"parameters": parameters}, "weights": {"format": weight_format}}).rules_of_thumb
    found = rule["parameters_times_bits"]

    assert (bits, cards, hosts) == (found["bits"], found["cards_of_24_gib"], found["hosts_of_4_cards"])
    assert text == f"{found['bytes'] / GiB:.1f} GiB"
    assert "1.2" in found["rule"]


def test_the_rule_for_adapters() -> None:
    card = {
        "model": {"parameters": 7_000_000_000, "trainable_parameters": 500_000_000},
        "weights": {"format": "bf16"},
        "training": {"method": "lora"},
    }
    rule = estimate(card).rules_of_thumb["lora_adam"]

    assert (14_000_000_000, 500_000_000) == (rule["base_bytes"], rule["trainable_parameters"])
    assert 21_600_000_000 == rule["bytes"]


def test_a_rule_stands_beside_the_estimate_and_does_not_make_it() -> None:
    answer = served(LLAMA_8B, gpu="l40s")

    assert answer.rules_of_thumb["parameters_times_bits"]["bytes"] != answer.required.expected


def test_the_published_packages_are_listed_by_price() -> None:
    card = {
        "model": {"parameters": 7_000_000_000},
        "weights": {"format": "bf16"},
        "reserve": "6 GiB",
        "requirements": {"duration": "3 days"},
        "limit": 200,
    }
    found = {c.sku: c for c in fit(card).candidates}
    small, large = found["iteragpu:rtx-4090:1x:3d"], found["iteragpu:rtx-6000-ada:1x:3d"]

    assert [Decimal("47.14"), Decimal("55.71")] == [Decimal(c.price.for_duration) for c in (small, large)]
    assert {"USD"} == {c.price.currency for c in (small, large)}
    assert small.rank < large.rank
    assert {"met", "needs_confirmation"} == {r.status for r in small.requirements}
