"""What an engine or framework cannot run is excluded by its own bounds, whatever fits."""

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.estimate import estimate
from tonnage.spec.card import SizingCard

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
GPT_OSS = "openai/gpt-oss-20b"


@pytest.fixture(scope="module")
def answer():
    catalog = load_catalog()

    def make(gpu, model=LLAMA, weight_format=None, **fields):
        card = {"model": model, "placement": {"gpu": gpu}, **fields}
        if weight_format:
            card["weights"] = {"format": weight_format}
        return estimate(resolve(catalog, msgspec.convert(card, SizingCard)))

    return make


def excluded(found):
    return {reason.field: reason.reason for reason in found.reasons if reason.status == "excluded"}


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_a_checkpoint_in_mxfp4_is_its_gguf_file_and_fits_a_t4(answer, engine):
    found = answer("t4", GPT_OSS, serving={"engine": engine, "max_model_len": 8192})
    assumed = next(a for a in found.assumptions if a.field == "weights.format")
    assert ("met", "gguf-mxfp4") == (found.verdict, assumed.value)
    assert "stored in mxfp4" in assumed.why


@pytest.mark.parametrize(
    ("engine", "gpu", "weight_format", "expected"),
    [
        ("llama.cpp", "t4", "mxfp4", None),
        ("transformers", "t4", "mxfp4", None),
        ("transformers", "v100-32", "mxfp4", "mxfp4 needs 7.5"),
        ("vllm", "t4", "mxfp4", "mxfp4 needs 8.0"),
        ("tensorrt-llm", "a100-80-sxm", "mxfp4", "mxfp4 needs 9.0"),
        ("tensorrt-llm", "a100-80-sxm", "fp8-per-tensor", "fp8-per-tensor needs 8.9"),
        ("tensorrt-llm", "h100-sxm", "fp8-per-tensor", None),
        ("tensorrt-llm", "a100-80-sxm", "nvfp4", "nvfp4 needs 10.0"),
        ("tensorrt-llm", "h100-sxm", "nvfp4", "nvfp4 needs 10.0"),
        ("tensorrt-llm", "b200-sxm", "nvfp4", None),
        ("vllm", "a100-80-sxm", "nvfp4", None),
    ],
)
def test_each_engine_has_its_own_bound_for_a_format(answer, engine, gpu, weight_format, expected):
    model = GPT_OSS if weight_format == "mxfp4" else LLAMA
    found = excluded(answer(gpu, model, weight_format, serving={"engine": engine, "max_model_len": 2048}))
    reason = found.get("/weights/format")
    assert reason is None if expected is None else reason.startswith(expected)


@pytest.mark.parametrize(
    ("engine", "gpu", "expected", "words"),
    [
        ("vllm", "gtx-1080", "needs_confirmation", "built from source"),
        ("vllm", "v100-32", None, ""),
        ("sglang", "t4", "needs_confirmation", "some kernels"),
        ("sglang", "v100-32", "excluded", "sglang needs compute capability 7.5"),
        ("tgi", "gtx-1080", "excluded", "tgi needs compute capability 7.0"),
    ],
)
def test_a_generation_older_than_the_packages_is_confirmed_where_it_is_reported_to_run(
    answer, engine, gpu, expected, words
):
    found = answer(gpu, "Qwen/Qwen3-0.6B", serving={"engine": engine, "max_model_len": 2048, "dtype": "float16"})
    reasons = [r for r in found.reasons if r.field == "/serving/engine"]

    assert ([expected] if expected else []) == [r.status for r in reasons]
    assert all(words in r.reason for r in reasons)


@pytest.mark.parametrize(("gpu", "expected"), [("t4", True), ("v100-32", True), ("a100-80-sxm", False)])
def test_tensorrt_llm_needs_ampere(answer, gpu, expected):
    found = answer(gpu, "Qwen/Qwen3-0.6B", serving={"engine": "tensorrt-llm", "max_model_len": 2048})
    assert expected == ("/serving/engine" in excluded(found))


@pytest.mark.parametrize(
    ("area", "fields"),
    [
        ("serving", {"engine": "transformers", "input_tokens": 512, "output_tokens": 64}),
        ("training", {"method": "lora", "framework": "trl", "sequence_length": 512}),
    ],
)
def test_flash_attention_2_needs_ampere_and_the_reason_names_the_way_out(answer, area, fields):
    field = f"/{area}/attn_implementation"
    for gpu, kernel, expected in (
        ("t4", "flash_attention_2", True), ("v100-32", "flash_attention_2", True), ("t4", "sdpa", False),
        ("a100-80-sxm", "flash_attention_2", False),
    ):  # fmt: skip
        found = answer(gpu, "Qwen/Qwen3-0.6B", **{area: {**fields, "attn_implementation": kernel}})
        reason = excluded(found).get(field, "")
        assert expected == reason.endswith("state sdpa"), (gpu, kernel)
