"""Formats and models that tests of estimates share."""

import json
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from tonnage.architecture import read_config
from tonnage.spec.facts import KvFormat, WeightFormat

GOLDEN = Path(__file__).parent / "golden"


def _records(file, key, kind):
    text = resources.files("tonnage.catalog").joinpath("data", file).read_text(encoding="utf-8")
    return {record.id: record for record in msgspec.convert(tomllib.loads(text)[key], list[kind])}


FORMATS = _records("formats.toml", "format", WeightFormat)
KV_FORMATS = _records("kv_formats.toml", "kv_format", KvFormat)
BF16 = KV_FORMATS["kv-bf16"]

LLAMA_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
}  # fmt: skip


@cache
def golden(name):
    """Recorded figures of one library."""
    return json.loads((GOLDEN / name).read_text())


def model(config, **changes):
    """Architecture of a config with some keys changed."""
    return read_config(config | changes)
