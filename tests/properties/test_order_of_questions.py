"""What is remembered is never taken for something else: an answer does not depend on the questions before it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.catalog import load_catalog, resolve
from tonnage.errors import SizingError
from tonnage.estimate import estimate
from tonnage.spec.card import SizingCard

MODELS = ["meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"]
GPUS = ["h100-sxm", "l40s", "t4", None]
LENGTHS = [None, 300, 4096, 4097, 40_000]
SERVING = st.fixed_dictionaries(
    {"engine": st.sampled_from(["vllm", "sglang", "llama.cpp", "transformers"])},
    optional={
        "max_model_len": st.sampled_from(LENGTHS[1:]),
        "concurrency": st.sampled_from([1, 2, 200]),
        "input_tokens": st.sampled_from([100, 3000]),
        "max_num_seqs": st.sampled_from([1, 8]),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
    },
)
TRAINING = st.fixed_dictionaries(
    {"framework": st.sampled_from(["trl", "torchtune", "deepspeed"]), "method": st.sampled_from(["lora", "full"])},
    optional={
        "micro_batch_size": st.sampled_from([1, 2, 7]),
        "sequence_length": st.sampled_from([512, 513, 4096]),
        "sequence_lengths": st.sampled_from(["fixed", "varying"]),
        "gradient_checkpointing": st.sampled_from(["none", "full"]),
    },
)
PLACEMENT = st.fixed_dictionaries(
    {"gpu": st.sampled_from(GPUS), "pipeline_parallel_size": st.just(1)},
    optional={"data_parallel_size": st.sampled_from([1, 2])},
)
CARDS = st.fixed_dictionaries({"model": st.sampled_from(MODELS), "placement": PLACEMENT})
QUESTIONS = st.one_of(
    st.tuples(CARDS, SERVING).map(lambda p: {**p[0], "serving": p[1]}),
    st.tuples(CARDS, TRAINING).map(lambda p: {**p[0], "training": p[1]}),
)


def answer(catalog, question):
    try:
        return msgspec.json.encode(estimate(resolve(catalog, msgspec.convert(question, SizingCard))))
    except SizingError as error:
        return str(error)


@pytest.fixture(scope="module")
def asked_before():
    return load_catalog()


@settings(deadline=None, max_examples=12)
@given(questions=st.lists(QUESTIONS, min_size=8, max_size=20))
def test_an_answer_is_the_same_whatever_was_asked_before(asked_before, questions):
    never_asked = load_catalog()
    forwards = [answer(asked_before, q) for q in questions]
    backwards = [answer(never_asked, q) for q in reversed(questions)]

    assert forwards == backwards[::-1]
