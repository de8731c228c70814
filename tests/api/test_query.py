"""Query strings: names come from the Structs, values are typed by them, nothing passes silently."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.api.problems import ProblemError
from tonnage.api.query import QueryReader, parameters, value_of
from tonnage.spec.card import KvTypes, ModelCard, SizingCard, Training, Vllm

read = QueryReader(SizingCard)


def card(query: bytes) -> SizingCard:
    return read(parameters(query))


def refused(query: bytes) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        card(query)
    assert 422 == caught.value.kind.status
    return caught.value


def outcome(call: Callable[[], object]) -> int:
    try:
        call()
    except ProblemError as problem:
        return problem.kind.status
    return 200


def test_a_plain_card_needs_only_a_model_and_a_gpu() -> None:
    found = card(b"model=Qwen%2FQwen3-8B&gpu=l40s")

    assert ("Qwen/Qwen3-8B", "l40s", None, None) == (found.model, found.placement.gpu, found.serving, found.training)


def test_engine_makes_a_card_for_serving() -> None:
    found = card(b"model=a&engine=vllm&max_model_len=4096&cudagraph_capture_sizes=1,2,4&enforce_eager=false")

    assert Vllm(max_model_len=4096, cudagraph_capture_sizes=[1, 2, 4], enforce_eager=False) == found.serving


def test_a_training_field_makes_a_card_for_training() -> None:
    found = card(b"model=a&method=lora&lora.rank=8&lora.target_modules=q_proj,v_proj")

    assert isinstance(found.training, Training)
    assert (8, ["q_proj", "v_proj"]) == (found.training.lora.rank, found.training.lora.target_modules)


@pytest.mark.parametrize("name", [b"weights_format", b"weights.format"])
def test_a_field_of_the_weights_is_known_by_its_path(name: bytes) -> None:
    assert "fp8" == card(b"model=a&" + name + b"=fp8").weights.format


def test_sizes_are_bytes_or_text_with_a_unit() -> None:
    assert ("6 GiB", 1024) == (card(b"model=a&reserve=6+GiB").reserve, card(b"model=a&reserve=1024").reserve)


def test_a_reserve_may_be_a_fraction() -> None:
    assert 0.2 == card(b"model=a&reserve.fraction=0.2").reserve.fraction


def test_an_integral_float_is_an_integer() -> None:
    assert 4096 == card(b"model=a&engine=vllm&max_model_len=4096.0").serving.max_model_len


def test_a_revision_belongs_to_the_named_model() -> None:
    assert ModelCard(id="a", revision="main") == card(b"model=a&revision=main").model
    assert ModelCard(id="a", revision="main") == card(b"revision=main&model=a").model


def test_a_bare_count_needs_no_name() -> None:
    assert 7_000_000_000 == card(b"parameters=7000000000").model.parameters


def test_keys_and_values_may_have_their_own_cache_types() -> None:
    found = card(b"model=a&engine=llama.cpp&kv_cache_dtype.k=q8_0&kv_cache_dtype.v=f16")

    assert KvTypes("q8_0", "f16") == found.serving.kv_cache_dtype


def test_a_field_of_both_kinds_follows_the_kind_of_the_card() -> None:
    assert "sdpa" == card(b"model=a&engine=transformers&attn_implementation=sdpa").serving.attn_implementation
    assert "sdpa" == card(b"model=a&method=full&attn_implementation=sdpa").training.attn_implementation


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        (b"model=a&modle=b", "/modle"),
        (b"model=a&model=b", "/model"),
        (b"model=a&weights_format=x&weights.format=y", "/weights/format"),
        (b"model=a&gpu=", "/placement/gpu"),
        (b"", "/model"),
        (b"model=a&max_model_len=4096", "/engine"),
        (b"model=a&attn_implementation=sdpa", "/attn_implementation"),
        (b"model=a&engine=vllm&max_model_len=many", "/max_model_len"),
        (b"model=a&engine=vllm&max_model_len=1.5", "/max_model_len"),
        (b"model=a&engine=vllm&max_model_len=1_000", "/max_model_len"),
        (b"model=a&engine=vllm&max_model_len=%D9%A1", "/max_model_len"),
        (b"model=a&engine=vllm&gpu_memory_utilization=nan", "/gpu_memory_utilization"),
        (b"model=a&engine=vllm&gpu_memory_utilization=1.5", "/serving/gpu_memory_utilization"),
        (b"model=a&engine=vllm&enforce_eager=yes", "/enforce_eager"),
        (b"model=a&engine=vllm&method=lora", "/method"),
        (b"model=a&reserve=5&reserve.fraction=0.1", "/reserve/fraction"),
        (b"model.parameters=many", "/model/parameters"),
        (b"model=%FF", ""),
        (b"model=a%0A", "/model"),
        (b"model=a&engine=vllm&n_gpu_layers=4", "/serving/n_gpu_layers"),
        (b"&".join(b"a%d=1" % n for n in range(300)), ""),
    ],
)
def test_what_is_wrong_is_a_422_with_a_pointer(query: bytes, pointer: str) -> None:
    assert pointer == refused(query).errors[0].pointer


def test_an_unknown_parameter_names_the_one_that_was_meant() -> None:
    assert "max_model_len" in refused(b"model=a&max_model_le=4").errors[0].did_you_mean


def test_every_documented_name_reads_into_its_own_field() -> None:
    for name, leaf in read.documented.items():
        assert any(leaf.path == path for path in read.names[name]), name


@given(st.binary(max_size=200))
def test_any_query_is_read_or_refused(query: bytes) -> None:
    assert outcome(lambda: card(query)) in (200, 422)


@given(st.lists(st.tuples(st.sampled_from(sorted(read.names)), st.text(max_size=12)), max_size=8))
def test_any_values_of_known_names_are_read_or_refused(given_pairs: list[tuple[str, str]]) -> None:
    assert outcome(lambda: read(dict(given_pairs))) in (200, 422)


def test_a_length_with_a_letter_behind_it_is_shown_spelled_out() -> None:
    with pytest.raises(ProblemError) as refused:
        value_of(int, "8k", "max_model_len")

    assert refused.value.detail.endswith("not '8k': write 8192 or 8000")
