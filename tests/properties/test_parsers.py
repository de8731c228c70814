"""Whatever strangers write is read or refused with a reason, in bounded time; `make fuzz` does the same for longer."""

import contextlib
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.architecture_readers.test_gguf_header import HEADERS
from tests.fuzz.targets import TARGETS
from tests.fuzz.watch import answered

from tonnage.architecture import read_config, read_gguf
from tonnage.errors import ContradictoryWorkload, SizingError
from tonnage.evidence import log_text
from tonnage.fit.pricing import duration_hours
from tonnage.units import format_size, parse_size

EXAMPLES = int(os.environ.get("FUZZ_PARSERS", "40"))
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "vocab_size": 100,
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=256))
def test_spoilt_input_is_answered_or_refused(name: str, data: bytes) -> None:
    answered(TARGETS[name], data)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(max_size=2000))
def test_any_text_is_a_log_without_numbers_out_of_nowhere(text: str) -> None:
    numbers = log_text.read(text).numbers

    assert not numbers or any(character.isdigit() for character in text)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(st.sampled_from([*LLAMA, "layer_types", "rope_scaling", "torch_dtype"]), JSON))
def test_any_value_of_a_config_is_read_or_refused(changes: dict[str, Any]) -> None:
    with contextlib.suppress(SizingError):
        assert read_config(LLAMA | changes).parameters_total >= 0


@given(st.integers(0, 2**62))
def test_a_size_reads_as_what_it_was_written(amount: int) -> None:
    unit = next((unit for unit in ("TiB", "GiB", "MiB", "KiB") if amount % parse_size(f"1 {unit}") == 0), "B")
    if amount // parse_size(f"1 {unit}") < 10**15:
        assert amount == parse_size(f"{amount // parse_size(f'1 {unit}')} {unit}")


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_larger_size_is_never_written_as_a_smaller_one(first: int, second: int) -> None:
    low, high = sorted((first, second))

    assert parse_size(format_size(low)) <= parse_size(format_size(high))


@pytest.mark.parametrize("text", ["3 hou", "3 x", "3 ss", "1 s"])
def test_a_duration_in_an_unknown_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_hours(text)


@pytest.mark.parametrize("word", [[], {}, 5, None])
def test_a_layer_type_that_is_no_word_is_refused(word: object) -> None:
    with pytest.raises(ContradictoryWorkload, match="layer_types"):
        read_config(LLAMA | {"layer_types": [word, word]})


@pytest.mark.parametrize("number", [10**30, float("inf"), float("nan"), 1e308])
def test_a_header_with_a_number_that_no_dimension_has_is_refused(number: float) -> None:
    with pytest.raises(SizingError):
        read_gguf(HEADERS["Llama-3.1-8B"][1] | {"llama.embedding_length": number})


def test_a_header_with_fewer_values_than_layers_is_refused() -> None:
    with pytest.raises(ContradictoryWorkload, match="2 entries for 32 layers"):
        read_gguf(HEADERS["Llama-3.1-8B"][1] | {"llama.feed_forward_length": [1, 2]})
