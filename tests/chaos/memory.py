"""Very many cards of which no two are alike: memory must have an end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from tests.chaos.load import ESTIMATE, Load
from tests.chaos.replica import Replica
from tests.chaos.report import Row

_LINES = 1000
_LIMIT_MIB = 300
"""The chart's limit is 384 MiB."""
_ENGINES = ("vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "transformers", "tgi", "mlx")
_MODELS = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it")
_DESCRIBED = 10
"""One card in so many describes its architecture. [unitless]"""


async def distinct_cards(folder: Path, cards: int) -> Row:
    row = Row(f"{cards:,} cards of which no two are alike")
    service = await asyncio.to_thread(lambda: Replica(folder, deadline_seconds=60).wait_until_ready())
    most = first = service.resident_mib()
    answered = 0
    try:
        async with (
            Load(service.port, lambda: ESTIMATE, connections=2, pause=0.1) as load,
            httpx.AsyncClient() as client,
        ):
            for start in range(0, cards, _LINES):
                lines = "\n".join(json.dumps(_card(number)) for number in range(start, min(cards, start + _LINES)))
                answer = await client.post(
                    f"{service.url}/estimate?fields=required",
                    content=lines.encode(),
                    headers={"content-type": "application/x-ndjson"},
                    timeout=600,
                )
                answered += answer.text.count('"required"')
                most = max(most, service.resident_mib())
    finally:
        service.kill()
    row.count(load)
    row.expect(answered == cards, f"{answered:,} answered")
    row.expect(most < _LIMIT_MIB, f"resident {first:.0f} MiB before, {most:.0f} MiB at most")
    return row


def _card(number: int) -> dict[str, Any]:
    placement = {"gpu": "h100-sxm"}
    if number % _DESCRIBED == 0:
        return {"model": {"config": _config(number)}, "placement": placement} | _work(number // _DESCRIBED)
    return {"model": _MODELS[number % len(_MODELS)], "placement": placement} | _work(number)


def _config(number: int) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 8,
        "num_key_value_heads": 8, "num_hidden_layers": 4 + number // _DESCRIBED % 90, "vocab_size": 32_000 + number,
        "torch_dtype": "bfloat16", "note": "x" * (number // _DESCRIBED % 50 * 1000),
    }  # fmt: skip


def _work(number: int) -> dict[str, Any]:
    if number % 4 == 3:
        method = ("full", "lora", "qlora")[number % 3]
        return {"training": {"method": method, "micro_batch_size": 1 + number % 32, "sequence_length": 128 + number}}
    engine = _ENGINES[number % len(_ENGINES)]
    return {"serving": {"engine": engine, "max_model_len": 1024 + number}}
