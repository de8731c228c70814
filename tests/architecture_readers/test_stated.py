"""A config with values that no architecture has is refused by key, with what came and what is expected."""

import pytest

from tonnage.architecture import read_config
from tonnage.errors import ContradictoryWorkload

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


def refused(config):
    with pytest.raises(ContradictoryWorkload) as caught:
        read_config(config)
    return caught.value


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("vocab_size", 0, "at least 1"),
        ("num_key_value_heads", 0, "at least 1"),
        ("num_key_value_heads", 7, "must divide the 32"),
        ("num_key_value_heads", 64, "must divide the 32"),
        ("hidden_size", 4100, "no multiple of the 32"),
        ("quantization_config", "awq", "an object"),
        ("quantization_config", [], "an object"),
        ("torch_dtype", "float7", "bfloat16"),
        ("torch_dtype", 16, "bfloat16"),
        ("sliding_window", -1, "from 0"),
        ("sliding_window", "4096", "from 0"),
        ("tie_word_embeddings", "false", "true or false"),
        ("text_config", "llama", "an object"),
        ("text_config", [1], "an object"),
        ("model_type", 5, "must be a text"),
        ("rope_scaling", "yarn", "an object"),
    ],
)
def test_a_value_that_no_architecture_has_is_refused_by_its_key(key, value, expected):
    error = refused(LLAMA | {key: value})

    assert f"/model/config/{key}" == error.pointer
    assert key in error.detail
    assert expected in error.detail
    assert str(value) in error.detail


def test_more_experts_for_a_token_than_there_are_is_refused():
    assert "/model/config/num_experts_per_tok" == refused(MIXTRAL | {"num_experts_per_tok": 9}).pointer
    assert read_config(MIXTRAL | {"num_experts_per_tok": 8}).parameters_total


def test_the_text_part_of_a_composite_model_is_held_to_the_same():
    whole = {"model_type": "mistral3", "text_config": LLAMA | {"model_type": "mistral", "torch_dtype": "float7"}}

    assert "/model/config/text_config/torch_dtype" == refused(whole).pointer


@pytest.mark.parametrize(
    "usual",
    [
        {"torch_dtype": "torch.float16"}, {"torch_dtype": None}, {"sliding_window": None}, {"sliding_window": 0},
        {"tie_word_embeddings": None}, {"rope_scaling": None}, {"quantization_config": None}, {"text_config": None},
        {"quantization_config": {}}, {"num_key_value_heads": None}, {"num_key_value_heads": 1},
        {"hidden_size": 4100, "head_dim": 128},
    ],
)  # fmt: skip
def test_what_released_configs_state_is_read(usual):
    assert read_config(LLAMA | usual).parameters_total
