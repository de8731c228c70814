"""Parts of a card that cannot hold together are refused with the field and what would hold."""

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.errors import ContradictoryWorkload
from tonnage.estimate import estimate
from tonnage.spec.card import SizingCard

CATALOG = load_catalog()
DENSE, MIXTURE = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B"
VLLM, SGLANG = {"engine": "vllm", "max_model_len": 4096}, {"engine": "sglang", "max_model_len": 4096}
EXPERTS = "/placement/expert_parallel_size"


def answer(model, **fields):
    return estimate(resolve(CATALOG, msgspec.convert({"model": model, **fields}, SizingCard)))


def refused(model, **fields):
    with pytest.raises(ContradictoryWorkload) as caught:
        answer(model, **fields)
    return caught.value


def test_a_shared_prefix_longer_than_the_input_is_refused():
    traffic = VLLM | {"concurrency": 8, "input_tokens": 1000, "output_tokens": 100}
    error = refused(DENSE, serving=traffic | {"shared_prefix_tokens": 1001})

    assert "/serving/shared_prefix_tokens" == error.pointer
    assert "1001" in error.detail
    assert "1000" in error.detail
    assert answer(DENSE, serving=traffic | {"shared_prefix_tokens": 1000}).phases


@pytest.mark.parametrize(
    ("model", "serving", "size", "words"),
    [
        (MIXTURE, VLLM, 2, "here 4"),
        (MIXTURE, VLLM, 3, "here 4"),
        (MIXTURE, VLLM, 8, "here 4"),
        (MIXTURE, VLLM | {"enable_expert_parallel": True}, 2, "here 4"),
        (MIXTURE, VLLM | {"enable_expert_parallel": False}, 4, "enable_expert_parallel is false"),
        (DENSE, VLLM, 4, "without routed experts"),
        (DENSE, SGLANG, 4, "without routed experts"),
        (MIXTURE, SGLANG, 3, "does not divide"),
        (MIXTURE, SGLANG, 8, "does not divide"),
    ],
)  # fmt: skip
def test_an_expert_parallel_size_that_the_engine_would_not_run_is_refused(model, serving, size, words):
    error = refused(model, serving=serving, placement={"tensor_parallel_size": 4, "expert_parallel_size": size})

    assert EXPERTS == error.pointer
    assert words in error.detail


def test_expert_parallelism_switched_on_for_a_dense_model_is_refused():
    error = refused(DENSE, serving=VLLM | {"enable_expert_parallel": True})

    assert "/serving/enable_expert_parallel" == error.pointer


@pytest.mark.parametrize(("serving", "size"), [(VLLM, 4), (VLLM | {"enable_expert_parallel": True}, 1), (SGLANG, 2)])
def test_an_expert_parallel_size_that_the_engine_runs_is_answered(serving, size):
    assert answer(MIXTURE, serving=serving, placement={"tensor_parallel_size": 4, "expert_parallel_size": size}).phases


def test_an_expert_parallel_size_in_training_divides_the_ranks_and_needs_experts():
    job = {"framework": "megatron", "method": "full"}

    assert (
        EXPERTS == refused(DENSE, training=job, placement={"data_parallel_size": 4, "expert_parallel_size": 4}).pointer
    )
    assert (
        EXPERTS
        == refused(MIXTURE, training=job, placement={"data_parallel_size": 4, "expert_parallel_size": 3}).pointer
    )
    assert answer(MIXTURE, training=job, placement={"data_parallel_size": 4, "expert_parallel_size": 4}).phases


@pytest.mark.parametrize("method", ["full", "galore", "lisa"])
@pytest.mark.parametrize("base", ["awq-w4-g128", "gptq-w4-g128-sym", "bnb-nf4", "bnb-int8"])
def test_a_quantized_base_is_not_trained_itself(method, base):
    error = refused(DENSE, weights={"format": base}, training={"method": method})

    assert "/weights/format" == error.pointer
    assert "lora or qlora" in error.detail


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_base_in_a_gguf_format_is_refused_as_trainers_dequantize_it(method):
    error = refused(DENSE, weights={"format": "gguf-q4-k-m"}, training={"method": method})

    assert "/weights/format" == error.pointer
    assert "dequantized" in error.detail


@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("base", ["awq-w4-g128", "gptq-w4-g128-sym", "bnb-nf4", "bnb-int8"])
def test_adapters_train_on_a_quantized_base(method, base):
    assert answer(DENSE, weights={"format": base}, training={"method": method}).phases
