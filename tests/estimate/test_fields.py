"""Some fields of an answer are those of the whole answer, however they are made."""

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate import estimate, fields_of
from tonnage.estimate.assemble import WITHOUT_ITEMS
from tonnage.spec.card import SizingCard
from tonnage.spec.report import Estimate

CATALOG = load_catalog()
FORMATS = {"llama.cpp": "gguf-q4-k-m", "ollama": "gguf-q8-0", "mlx": "mlx-4bit-g64"}
ENGINES = ("vllm", "sglang", "llama.cpp", "ollama", "transformers", "tensorrt-llm", "tgi", "mlx")
NUMBERS = (
    {},
    {"max_model_len": 4096, "concurrency": 48, "input_tokens": 900, "output_tokens": 300},
    {"max_model_len": 65_536, "concurrency": 2},
)


def card(gpu, **parts):
    return msgspec.convert(
        {"model": "meta-llama/Llama-3.1-8B-Instruct", "placement": {"gpu": gpu}, **parts}, SizingCard
    )


def served():
    for engine in ENGINES:
        for gpu in ("a10", "h200-sxm", None) if engine != "mlx" else ("apple-m3-max-128", None):
            for numbers in NUMBERS:
                weights = {"format": FORMATS.get(engine)}
                yield card(gpu, serving={"engine": engine, **numbers}, weights=weights, reserve="1 GiB")


def others():
    for framework in ("transformers", "axolotl", "unsloth"):
        yield card("rtx-4090", training={"framework": framework, "method": "lora", "sequence_length": 4096})
    yield card("h100-sxm", training={"method": "full"}, reserve={"fraction": 0.1})
    yield card("a100", serving={"engine": "vllm"})
    yield card("t4")


@pytest.mark.parametrize("cards", [served, others])
def test_fields_alone_are_those_of_the_whole_estimate(cards):
    for one in cards():
        workload = resolve(CATALOG, one)
        whole = estimate(workload)

        assert {name: getattr(whole, name) for name in WITHOUT_ITEMS} == fields_of(workload, WITHOUT_ITEMS)
        assert {"peak": whole.peak, "verdict": whole.verdict} == fields_of(workload, ("peak", "verdict"))


def test_what_needs_no_items_is_part_of_an_estimate():
    assert {"required", "verdict", "reasons", "kv_cache"} < WITHOUT_ITEMS < set(Estimate.__struct_fields__)
