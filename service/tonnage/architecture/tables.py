"""Architecture tables: what differs between model types, read once from the package's own data."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

from tonnage.errors import CatalogError
from tonnage.spec.model import ClassCode, Component, Shard

CLASS_CODE = "class_code.toml"
CLASS_SIZES = "class_sizes.toml"
TABLE_FILES = (
    "architectures.toml",
    "encoders.toml",
    "towers.toml",
    "more_architectures.toml",
    "multimodal.toml",
    "generic.toml",
)


class TensorRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor that no mechanism builds; sizes and conditions are expressions."""

    name: str
    component: Component
    rows: str = "hidden_size"
    columns: str = "1"
    copies: str = "1"
    when: str = "True"
    shard: Shard = "replicated"
    linear: bool = False
    bias: str = "False"
    role: str = ""
    dtype: str | None = None


class PartRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a composite model: which nested config describes it and by which table it is read."""

    keys: tuple[str, ...]
    """Keys that may hold its config, dotted when nested deeper; "" is the whole config."""
    table: str
    """Table when the nested config names no model type that has one."""
    fixed: bool = False
    """Read by `table` whatever model type the nested config names."""
    when: str = "True"


class Alternative(Struct, frozen=True, forbid_unknown_fields=True):
    """Values that a reduced config may leave out and that a published count can decide."""

    values: dict[str, Any]
    note: str


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read one model type. `like` names the table it starts from; its own entries come first."""

    like: str | None = None
    family: str = ""
    released_with_defaults: bool = False
    """Released files of this type leave out what equals the class's own sizes."""
    required: tuple[str, ...] = ()
    """Fields without which the architecture is not defined."""
    keys: dict[str, list[str]] = {}
    """Field -> keys of the config that hold it, tried in order; the field's own name comes last."""
    derive: dict[str, str] = {}
    """Field -> expression over fields; inside its own expression a field is the config's value."""
    facts: dict[str, Any] = {}
    """Field -> what is so for this type whatever the config says."""
    defaults: dict[str, Any] = {}
    """Field -> what the config class assumes when the key is absent."""
    assumed: dict[str, Any] = {}
    """
    Field -> size the class assumes: holds for nested configs only, which are stored as differences. Not inherited;
    most stand in class_sizes.toml.
    """
    names: dict[str, str] = {}
    """Role -> module name in the checkpoint; a trailing "!" marks a bare parameter."""
    norms: tuple[str, ...] = ()
    """Norms over the hidden size in a layer, each with an optional " as other" (its component) and " if <expression>"."""
    per_layer: tuple[str, ...] = ()
    """Fields whose expressions read `layer`."""
    layer_tensors: tuple[TensorRow, ...] = ()
    outside_tensors: tuple[TensorRow, ...] = ()
    outside_more: tuple[TensorRow, ...] = ()
    """Tensors outside layers in addition to `outside_tensors`, so that those can be inherited."""
    kinds: dict[str, dict[str, str]] = {}
    """Layer kind -> expressions that hold in such layers."""
    words: dict[str, str] = {}
    """Word of `layer_types` -> layer kind."""
    parts: dict[str, PartRow] = {}
    """Part (text, encoder, vision, audio) of a composite model -> where it is described."""
    irrelevant: tuple[str, ...] = ()
    """Keys that shape neither tensors nor caches, as patterns; for a config that is read generically."""
    readings: tuple[Alternative, ...] = ()
    """Other readings of the same keys, tried in order when a published count contradicts the first."""
    uncounted: tuple[str, ...] = ()
    """Nested configs of models that a checkpoint also holds and that engines serve apart, if at all."""
    mtp_tensors: tuple[TensorRow, ...] = ()
    """What a multi-token-prediction layer has beside a copy of the last decoder layer."""


@cache
def tables() -> dict[str, Table]:
    """All tables by model type, each complete with what it inherits."""
    return complete({name: table for file in TABLE_FILES for name, table in _data(file).items()}, _data(CLASS_SIZES))


@cache
def class_code() -> dict[str, ClassCode]:
    """How classes are written, by model type; types without peculiarities are absent."""
    return msgspec.convert(_data(CLASS_CODE), dict[str, ClassCode])


def complete(raw: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Table]:
    """Tables with what they inherit and with the sizes their classes assume."""
    done: dict[str, dict[str, Any]] = {}
    merged = {name: _inherited(name, raw, done) for name in raw}
    assumed = {name: sizes.get(name, {}) | raw[name].get("assumed", {}) for name in raw}
    return {name: _convert(name, {**table, "assumed": assumed[name]}) for name, table in merged.items()}


def _data(file: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("tonnage.architecture").joinpath(file).read_text(encoding="utf-8"))


def _convert(name: str, merged: dict[str, Any]) -> Table:
    try:
        return msgspec.convert(merged, Table)
    except msgspec.ValidationError as error:
        raise CatalogError(f"architecture table {name!r}: {error}") from error


def _inherited(name: str, raw: dict[str, dict[str, Any]], done: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if name not in done:
        own = raw[name]
        parent = own.get("like")
        if parent is not None and parent not in raw:
            raise CatalogError(f"architecture table {name!r}: like = {parent!r} does not exist")
        done[name] = own if parent is None else _merged(_inherited(parent, raw, done), own)
    return done[name]


def _merged(parent: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    settled = {field for section in ("facts", "derive") for field in own.get(section, {})}
    merged = {key: value for key, value in parent.items() if key != "released_with_defaults"}
    for section in ("facts", "derive"):
        merged[section] = {f: v for f, v in parent.get(section, {}).items() if f not in settled}
    for key, value in own.items():
        inherited = merged.get(key)
        if key == "readings" and inherited:
            merged[key] = value + inherited
        else:
            merged[key] = inherited | value if isinstance(value, dict) and isinstance(inherited, dict) else value
    return merged
