"""
Metadata of a GGUF header -> the config.json it was made from, as far as its architecture goes.

Whether the head is tied shows in the tensor list only, which a header's key/values do not hold.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from tonnage.architecture.fields import Fields
from tonnage.architecture.tables import Table, complete
from tonnage.errors import ContradictoryWorkload, MissingFact, Unsupported

POINTER = "/model/gguf"
TIED_SHARE = 1 / 12
"""
Models tie embedding and head where one of them would be more than this part of the untied model.

Source: measured: every Llama, Qwen2 and Qwen3 model of the catalogue but three of Qwen1.5. [fraction]
"""
FILE_TYPES = {
    0: "fp32", 1: "gguf-f16", 2: "gguf-q4-0", 3: "gguf-q4-1", 7: "gguf-q8-0", 8: "gguf-q5-0", 9: "gguf-q5-1",
    10: "gguf-q2-k", 11: "gguf-q3-k-s", 12: "gguf-q3-k-m", 13: "gguf-q3-k-l", 14: "gguf-q4-k-s", 15: "gguf-q4-k-m",
    16: "gguf-q5-k-s", 17: "gguf-q5-k-m", 18: "gguf-q6-k", 19: "gguf-iq2-xxs", 20: "gguf-iq2-xs", 21: "gguf-q2-k-s",
    22: "gguf-iq3-xs", 23: "gguf-iq3-xxs", 24: "gguf-iq1-s", 25: "gguf-iq4-nl", 26: "gguf-iq3-s", 27: "gguf-iq3-m",
    28: "gguf-iq2-s", 29: "gguf-iq2-m", 30: "gguf-iq4-xs", 31: "gguf-iq1-m", 32: "bf16", 38: "gguf-mxfp4",
}  # fmt: skip
"""general.file_type -> catalogue id (ggml-org/llama.cpp include/llama.h llama_ftype)."""
COMMON = "common"
TOKENS = "tokenizer.ggml.tokens"
_INTERNAL = frozenset({"without_heads", "rope_dimensions", "inner_size", "ssm_group_count", "expert_gating_func"})


@cache
def gguf_tables() -> dict[str, Table]:
    """Tables by general.architecture."""
    source = resources.files("tonnage.architecture").joinpath("gguf.toml")
    return complete(tomllib.loads(source.read_text(encoding="utf-8")), {})


def stored_format(metadata: Mapping[str, Any]) -> str | None:
    """Catalogue id of the file type, None when the header names none that is known."""
    stated = metadata.get("general.file_type")
    return FILE_TYPES.get(stated) if isinstance(stated, int) else None


def content_key(*content: Any) -> bytes:
    """What tells two readings apart."""
    try:
        return msgspec.msgpack.encode(content)
    except (OverflowError, TypeError):  # a number beyond 64 bits or a type JSON does not know: read, then refused
        return repr(content).encode(errors="backslashreplace")


def header_content(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """What tells two headers apart: everything but the tokenizer, of which only the size counts."""
    return {key: value for key, value in metadata.items() if not key.startswith("tokenizer.")}, _tokens(metadata)


def config_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """
    Config of a GGUF header.

    Args:
        metadata: Key/values of the header, arrays included; of the tokenizer only the token list is looked at.

    Returns:
        Keys of a config.json, without `tie_word_embeddings`.

    Raises:
        MissingFact: Keys without which the architecture is not defined, by their GGUF names.
        Unsupported: An architecture without a table.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise MissingFact("the header lacks general.architecture", pointer=f"{POINTER}/general.architecture")
    known = {key: table for key, table in gguf_tables().items() if key != COMMON}
    table = known.get(name)
    if table is None:
        raise Unsupported(f"GGUF architecture {name!r} has no table", known, pointer=f"{POINTER}/general.architecture")
    fields = Fields(table, _own_keys(metadata, name), pointer=POINTER, given=_vocabulary(metadata, name))
    _require(fields, name)
    told = ("vocab_size", *table.keys, *table.derive, *table.facts)
    config = {field: fields[field] for field in told if field not in _INTERNAL}
    return _by_layer(fields, {key: value for key, value in config.items() if value is not None})


def _own_keys(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}


def _tokens(metadata: Mapping[str, Any]) -> int:
    tokens = metadata.get(TOKENS)
    return len(tokens) if isinstance(tokens, list | tuple) else 0


def _vocabulary(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    size = metadata.get(f"{name}.vocab_size") or _tokens(metadata)
    return {"vocab_size": size} if size else {}


def _require(fields: Fields, name: str) -> None:
    absent = [field for field in fields.table.required if fields[field] is None]
    if absent:
        keys = [TOKENS if field == "vocab_size" else f"{name}.{fields.key(field)}" for field in absent]
        raise MissingFact(f"the header lacks {', '.join(keys)}", pointer=f"{POINTER}/{keys[0]}")


def _by_layer(fields: Fields, config: dict[str, Any]) -> dict[str, Any]:
    """Values per layer become one value, a layer list and what single layers have of their own."""
    lists = {key: value for key, value in config.items() if isinstance(value, list) and key != "architectures"}
    if not lists:
        return config
    layers = fields.integer("num_hidden_layers")
    _refuse_short(fields, lists, layers)
    plain = {key: next((item for item in value if item), 0) for key, value in lists.items()}
    own = {
        str(layer): {key: value[layer] for key, value in lists.items() if value[layer] not in (0, plain[key])}
        for layer in range(layers)
    }
    word, heads = fields["without_heads"], lists.get("num_key_value_heads")
    kinds = {"layer_types": ["full_attention" if n else word for n in heads]} if word and heads else {}
    return {**config, **plain, **kinds, "per_layer_config": {layer: what for layer, what in own.items() if what}}


def _refuse_short(fields: Fields, lists: Mapping[str, list[Any]], layers: int) -> None:
    for field, values in lists.items():
        if len(values) < layers:
            key = fields.key(field)
            raise ContradictoryWorkload(
                f"{key} has {len(values)} entries for {layers} layers", pointer=f"{POINTER}/{key}"
            )


def probably_tied(*, untied_total: int, table: int) -> bool:
    """Whether a model of this size ties its embedding, for headers that do not say."""
    return table > untied_total * TIED_SHARE
