"""A card is changed one field at a time, and the largest value that passes is found by halving."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate import changes
from tonnage.spec.card import SizingCard


def card(**fields):
    return msgspec.convert({"model": "a/b"} | fields, SizingCard)


@pytest.mark.parametrize(
    ("fields", "pointer", "value"),
    [
        ({"serving": {"engine": "vllm", "max_model_len": 8192}}, "/serving/max_model_len", 4096),
        ({"training": {"lora": {"rank": 8}}}, "/training/lora/rank", 16),
        ({"training": {}}, "/training/offload/optimizer", True),
        ({}, "/weights/format", "awq-w4-g128"),
        ({}, "/placement/tensor_parallel_size", 2),
        ({"training": {}}, "/training/lora/rank", 32),
    ],
)
def test_one_field_changes_and_nothing_else(fields, pointer, value):
    before = card(**fields)
    after = changes.changed(before, pointer, value)

    assert value == changes.stated(after, pointer)
    assert before == card(**fields)
    assert (
        changes.changed(after, pointer, changes.stated(before, pointer)) == before
        or changes.stated(before, pointer) is None
    )


def test_a_field_that_is_not_there_is_not_stated():
    assert changes.stated(card(), "/serving/max_model_len") is None


def test_there_is_no_serving_to_change_in_a_training_card():
    with pytest.raises(ContradictoryWorkload, match="serving"):
        changes.changed(card(training={}), "/serving/max_model_len", 1)


@given(limit=st.integers(0, 5000), high=st.integers(1, 5000), step=st.sampled_from([1, 7, 64]))
def test_the_largest_value_is_found_to_the_step(limit, high, step):
    found = changes.largest(lambda value: value <= limit, low=1, high=high, step=step)

    if limit < 1:
        assert found is None
    else:
        assert found <= min(limit, high) < found + 2 * step
        assert found == high or found <= limit


def test_few_questions_are_asked():
    asked = []
    changes.largest(lambda v: asked.append(v) or v <= 70_000, low=256, high=131_072, step=256)

    assert len(asked) <= 13
