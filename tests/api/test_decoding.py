"""Bodies: what is accepted, what is refused, with which status and pointer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.api.decoding import MAX_DEPTH, BodyDecoder, require_json
from tonnage.api.problems import ProblemError
from tonnage.api.repeated_keys import refuse_repeated_keys
from tonnage.spec.card import SizingCard

decode = BodyDecoder(SizingCard)


def refused(body: bytes) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        decode(body)
    return caught.value


def outcome(body: bytes) -> int:
    try:
        decode(body)
    except ProblemError as problem:
        return problem.kind.status
    return 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{",
        b"{'model': 'a'}",
        b'{"model": "a"} x',
        b'{"model": NaN}',
        b'{"model": "a", "reserve": Infinity}',
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"model": 1, ',
        b"[" * 90_000,
        b'{"model": {"config": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}}",
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)
def test_what_is_not_json_or_nested_too_deeply_is_a_400(body: bytes) -> None:
    assert 400 == refused(body).kind.status


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"model": {"parameters": 1e400}}', "/model/parameters"),
        (b'{"model": {"config": {"a/b": [1, -1e400]}}}', "/model/config/a~1b/1"),
    ],
)
def test_a_number_out_of_range_is_pointed_at(body: bytes, pointer: str) -> None:
    problem = refused(body)

    assert (422, pointer) == (problem.kind.status, problem.errors[0].pointer)
    assert f"{pointer}: the number is out of range: a 64-bit float ends at 1.8e308" == problem.detail


@pytest.mark.parametrize("half", [b"\\ud800", b"\\uDC00", b"\\ud800\\u0041"])
def test_half_of_a_surrogate_pair_is_named(half: bytes) -> None:
    assert f"{half[:6].decode()} is half of a surrogate pair" in refused(b'{"model": "%s"}' % half).detail


def test_an_infinite_number_in_a_deep_body_is_refused_all_the_same() -> None:
    assert outcome(b'{"model": ' + b"[" * 900 + b"1e400" + b"]" * 900 + b"}") in (400, 422)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b"{}", "/model"),
        (b"null", ""),
        (b"[]", ""),
        (b'{"model": 1}', "/model"),
        (b'{"model": {}}', "/model"),
        (b'{"model": "a\\n"}', "/model"),
        (b'{"model": "a", "placement": {"tensor_parallel_size": "2"}}', "/placement/tensor_parallel_size"),
        (b'{"model": "a", "placement": {"tensor_parallel_size": 2.5}}', "/placement/tensor_parallel_size"),
        (b'{"model": "a", "placement": {"tensor_parallel_size": true}}', "/placement/tensor_parallel_size"),
        (b'{"model": "a", "placement": {"tensor_parallel_size": 0}}', "/placement/tensor_parallel_size"),
        (b'{"model": "a", "reserve": 99999999999999999999999999}', "/reserve"),
        (b'{"model": "a", "reserve": 1e400}', "/reserve"),
        (b'{"model": "a", "reserve": "6G"}', "/reserve"),
        (b'{"model": "a", "serving": {}}', "/serving/engine"),
        (b'{"model": "a", "serving": {"engine": "vlm"}}', "/serving/engine"),
        (b'{"model": "a", "serving": {"engine": "vllm", "cudagraph_capture_sizes": [1, "2"]}}',
         "/serving/cudagraph_capture_sizes/1"),
        (b'{"model": "a", "training": {"library_versions": {"a b\\n": "1"}}}', "/training/library_versions"),
    ],
)  # fmt: skip
def test_what_breaks_the_contract_is_a_422_with_a_pointer(body: bytes, pointer: str) -> None:
    problem = refused(body)

    assert (422, pointer) == (problem.kind.status, problem.errors[0].pointer)


def test_an_unknown_field_names_the_one_that_was_meant() -> None:
    problem = refused(b'{"model": "a", "serving": {"engine": "vllm", "max_model_length": 5}}')

    assert "/serving/max_model_length" == problem.errors[0].pointer
    assert "max_model_len" in problem.errors[0].did_you_mean


def test_an_unknown_choice_names_the_one_that_was_meant() -> None:
    problem = refused(b'{"model": "a", "training": {"method": "qlor"}}')

    assert "qlora" in problem.errors[0].did_you_mean


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "a", "' + b"x" * 1_000_000 + b'": 1}',
        b'{"model": "a", "training": {"method": "' + b"x" * 1_000_000 + b'"}}',
        b'{"model": "' + b"x" * 1_000_000 + b'"}',
        b'{"model": "a", "reserve": "' + b"x" * 1_000_000 + b'"}',
        b'{"model": "a", "placement": {"gpu": "' + b"x" * 1_000_000 + b'"}}',
    ],
    ids=["field", "choice", "model", "size", "gpu"],
)
def test_a_long_text_is_refused_and_not_repeated(body: bytes) -> None:
    problem = refused(body)

    assert len(problem.detail) < 1000
    assert all(len(error.pointer) < 200 for error in problem.errors)


def test_an_integral_float_is_an_integer() -> None:
    card = decode(b'{"model": "a", "reserve": 1.0, "placement": {"tensor_parallel_size": 2.0}}')

    assert (1, 2) == (card.reserve, card.placement.tensor_parallel_size)
    assert isinstance(card.reserve, int)


def test_a_literal_config_keeps_its_floats_when_another_field_is_an_integral_float() -> None:
    card = decode(b'{"model": {"config": {"rope_theta": 10000.0}}, "reserve": 1.0}')

    assert isinstance(card.model.config["rope_theta"], float)


def test_the_deepest_allowed_body_is_read() -> None:
    levels = MAX_DEPTH - 4
    decode(b'{"model": {"config": {"a": ' + b"[" * levels + b"]" * levels + b"}}}")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_with_400_or_422(body: bytes) -> None:
    assert outcome(body) in (200, 400, 422)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    )
)
def test_any_json_value_is_read_or_refused(value: object) -> None:  # fmt: skip
    import json

    for document in (value, {"model": value}, {"model": "a", "serving": value}, {"model": {"config": value}}):
        assert outcome(json.dumps(document).encode()) in (200, 400, 422)


@pytest.mark.parametrize(
    "kind", [b"application/json", b"application/json; charset=utf-8", b"Application/JSON;charset=UTF-8"]
)
def test_json_content_types_are_read(kind: bytes) -> None:
    require_json(kind, None)


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (None, None),
        (b"", None),
        (b"text/plain", None),
        (b"application/x-www-form-urlencoded", None),
        (b"multipart/form-data; boundary=x", None),
        (b"application/json; charset=latin-1", None),
        (b"application/json", b"gzip"),
    ],
)
def test_other_content_types_and_encodings_are_a_415(kind: bytes | None, encoding: bytes | None) -> None:
    with pytest.raises(ProblemError) as caught:
        require_json(kind, encoding)

    assert 415 == caught.value.kind.status


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        (b'{"model": "a", "serving": {"engine": "llama.cpp", "ctx_size": 5}}', ["max_model_len"]),
        (b'{"model": "a", "serving": {"engine": "vllm", "max_running_requests": 5}}', ["max_num_seqs"]),
        (b'{"model": "a", "placement": {"gpu": "h100", "count": 2}}', ["tensor_parallel_size"]),
    ],
)
def test_the_word_of_another_tool_names_our_field(body: bytes, meant: list[str]) -> None:
    assert meant == refused(body).errors[0].did_you_mean


def test_the_field_of_another_engine_is_told_from_a_slip() -> None:
    error = refused(b'{"model": "a", "serving": {"engine": "vllm", "batch_size": 5}}').errors[0]

    assert (
        "unknown field 'batch_size' of vllm: it is one of mlx, transformers; did you mean max_num_seqs?" == error.detail
    )


def test_a_field_in_the_wrong_part_of_the_card_is_told_its_place() -> None:
    error = refused(b'{"model": "a", "serving": {"engine": "vllm", "tensor_parallel_size": 2}}').errors[0]

    assert error.detail.startswith("unknown field 'tensor_parallel_size': it stands in 'placement'")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"model": "a", "model" : "b"}', "model"),
        (b'{"model"\n:"a", "model":"b"}', "model"),
        (b'{"model": "a", "model": "b"}', "model"),
        (b'{"model": "a", "placement": {"gpu": "l4", "gpu": "l40s"}}', "gpu"),
        (b'{"model": "a", "reserve": 1.0, "reserve": 2.0}', "reserve"),
        (b'{"model": {"config": {"text_config": {"a": 1, "a": 2}}}}', "a"),
        (b'{"model": "a", "failure": {"message": "\\"x\\": 1", "message": "y"}}', "message"),
        (b'{"model": "a", "mod\\u0065l": "b"}', "model"),
    ],
)
def test_a_key_that_stands_twice_is_refused_by_name(body: bytes, key: str) -> None:
    problem = refused(body)

    assert 400 == problem.kind.status
    assert f"key {key!r} stands twice" in problem.detail


def test_a_key_may_come_again_in_another_object() -> None:
    decode(b'{"model": {"config": {"hidden_size": 1, "vision_config": {"hidden_size": 2}}}, "reserve": "1 GiB"}')
    decode(b'{"model": "a", "failure": {"message": "text with \\"model\\": twice, \\"model\\": 1"}}')


_JSON = st.recursive(
    st.text(max_size=4) | st.integers() | st.sampled_from(['":', "a", ":", '"', "\\"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", '":', ":", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_JSON)
def test_no_document_without_repeated_keys_is_refused(value: object) -> None:
    for spaces in (None, 1):
        refuse_repeated_keys(json.dumps(value, indent=spaces).encode())
