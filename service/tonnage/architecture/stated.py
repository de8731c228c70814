"""Values of a config.json that no architecture has, refused by key before a table could pass over them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tonnage.errors import ContradictoryWorkload

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}
"""PyTorch's names of what weights are stored in, and this catalogue's."""
_OTHER_DTYPES = frozenset({
    "auto", "bf16", "fp16", "fp32", "float64", "double", "int8", "uint8", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz",
})  # fmt: skip
_PARTS = ("text_config", "vision_config", "audio_config", "llm_config", "language_config", "thinker_config")


class _Rule(NamedTuple):
    holds: Callable[[Any], bool]
    expected: str


def _is_object(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool) or (type(value) is int and value in (0, 1))


def _is_window(value: Any) -> bool:
    return value is None or isinstance(value, bool | list) or (isinstance(value, int | float) and value >= 0)


def _is_positive(value: Any) -> bool:
    return not isinstance(value, int | float) or isinstance(value, bool) or value > 0


def _is_dtype(value: Any) -> bool:
    if not isinstance(value, str):
        return _is_object(value)
    name = value.removeprefix("torch.")
    return not name or name in DTYPES or name in _OTHER_DTYPES


_OBJECT = _Rule(_is_object, "an object or null")
_DTYPE = _Rule(_is_dtype, "a dtype such as bfloat16, float16 or float32")
_SIZE = _Rule(_is_positive, "at least 1")
_RULES = {
    "quantization_config": _OBJECT,
    "rope_scaling": _OBJECT,
    "rope_parameters": _OBJECT,
    "torch_dtype": _DTYPE,
    "dtype": _DTYPE,
    "sliding_window": _Rule(_is_window, "a number of tokens from 0, or null"),
    "tie_word_embeddings": _Rule(_is_flag, "true or false"),
    "vocab_size": _SIZE,
    "num_attention_heads": _SIZE,
    "num_key_value_heads": _SIZE,
}


def refuse_odd_values(config: Mapping[str, Any], pointer: str = "/model/config") -> None:
    """
    Refuse what no architecture states, also where the model's own table would not look at it.

    Args:
        config: As given; its text part is looked at as well.
        pointer: Where it stands in the request.

    Raises:
        ContradictoryWorkload: With the key, what came and what is expected.
    """
    for key in _PARTS:
        _refuse(key, config, _OBJECT, pointer)
    for part, where in ((config, pointer), (config.get("text_config") or {}, f"{pointer}/text_config")):
        for key, rule in _RULES.items():
            _refuse(key, part, rule, where)


def _refuse(key: str, config: Mapping[str, Any], rule: _Rule, pointer: str) -> None:
    if key in config and not rule.holds(config[key]):
        raise ContradictoryWorkload(
            f"{key} must be {rule.expected}, not {config[key]!r:.60}", pointer=f"{pointer}/{key}"
        )
