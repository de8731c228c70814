"""
Which storage format every tensor of a model takes: what a format quantizes and what stays plain.

The checkpoint's own `quantization_config` is honoured where the format asked for is the one it is
stored in; otherwise the format's defaults hold (linears only; embedding, head, norms, routers,
convolutions and biases stay as they are).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from tonnage.errors import MissingFact
from tonnage.estimate.gguf_tensors import gguf_rows
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.module_names import Pattern, module_paths, patterns
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Component, Model, Tensor

PLAIN: Mapping[str, WeightFormat] = {
    name: WeightFormat(id=name, family="plain", kind="plain", block_bytes=size, source="definition")
    for name, size in (("bf16", 2), ("fp16", 2), ("fp32", 4), ("int64", 8), ("int32", 4), ("int8", 1), ("fp8", 1))
}
"""Plain dtypes by name, for tensors that a format leaves alone."""

_NEVER: frozenset[Component] = frozenset({"embedding", "norm", "router"})
_TOWERS: frozenset[Component] = frozenset({"vision", "projector", "audio"})


class Stored(Struct, frozen=True):
    """A tensor, the format it is stored in, and the decoder layers that hold one each (none: outside of layers)."""

    tensor: Tensor
    format: WeightFormat
    layers: tuple[int, ...]
    place: str
    """layers, first or last: the pipeline stage of what stands outside layers."""

    @property
    def copies(self) -> int:
        """How many the whole model holds. [unitless]"""
        return len(self.layers) if self.place == "layers" else 1


def place_of(component: Component) -> str:
    """Pipeline stage of a tensor outside layers: embeddings and towers first, the rest last."""
    return "first" if component in ("embedding", "vision", "projector", "audio") else "last"


@remembered()
def stored_tensors(
    model: Model, weight_format: WeightFormat, formats: Mapping[str, WeightFormat] | None = None, dtype: str = ""
) -> tuple[Stored, ...]:
    """
    Every tensor of the model with its format.

    Args:
        model: Architecture.
        weight_format: Format of the weights.
        formats: Formats by id: the GGML types of a file mix, the groups of a mixed checkpoint.
        dtype: Plain dtype of what is not quantized; "" is the model's own.

    Returns:
        Tensors in the order of the model; a layer's tensors appear once per format they take.
    """
    if weight_format.kind == "file-mix":
        return tuple(_file_mix(model, weight_format, formats or {}))
    rule = _Rule(model, weight_format, dtype or model.dtype)
    return (*_outside(model.outside, rule), *_inside(model, rule))


def _file_mix(model: Model, weight_format: WeightFormat, formats: Mapping[str, WeightFormat]) -> Iterator[Stored]:
    for tensor, chosen, layers, place in gguf_rows(model, weight_format, formats):
        if place == "encoder":
            yield from (Stored(tensor, chosen, (), "first") for _ in layers)
        else:
            yield Stored(tensor, chosen, layers, place)


def _outside(tensors: Iterable[Tensor], rule: "_Rule") -> Iterator[Stored]:
    for tensor in tensors:
        yield Stored(tensor, rule.format_of(tensor, None), (), place_of(tensor.component))


def _inside(model: Model, rule: "_Rule") -> Iterator[Stored]:
    for group in model.layers:
        place = "layers" if group.layer.role == "decoder" else "first"
        for tensor in group.layer.tensors:
            for chosen, layers in rule.by_format(tensor, group.indices):
                if place == "layers":
                    yield Stored(tensor, chosen, layers, place)
                else:
                    yield from (Stored(tensor, chosen, (), place) for _ in layers)


class _Rule:
    """Formats of tensors under one quantization; patterns are compiled once."""

    def __init__(self, model: Model, weight_format: WeightFormat, dtype: str) -> None:
        own = model.quantization_config if model.weight_format == weight_format.id else None
        self.format = weight_format
        self.plain = plain_format(dtype)
        self.explicit = own is not None
        self.skipped = tuple(patterns(_skipped_names(own or {}), weight_format.skips))
        self.quantizes_lm_head = weight_format.quantizes_lm_head or bool((own or {}).get("lm_head"))

    def by_format(self, tensor: Tensor, layers: tuple[int, ...]) -> list[tuple[WeightFormat, tuple[int, ...]]]:
        """Layers that hold the tensor, by the format they hold it in."""
        if not self.may_quantize(tensor) or not self.skipped:
            return [(self.format_of(tensor, layers[0]), layers)]
        chosen: dict[str, tuple[WeightFormat, list[int]]] = {}
        for layer in layers:
            found = self.format_of(tensor, layer)
            chosen.setdefault(found.id, (found, []))[1].append(layer)
        return [(found, tuple(indices)) for found, indices in chosen.values()]

    def format_of(self, tensor: Tensor, layer: int | None) -> WeightFormat:
        if self.may_quantize(tensor) and not self._named_plain(tensor, layer):
            return self.format
        if tensor.fixed_dtype is not None:
            return plain_format(tensor.fixed_dtype)
        return self.format if self.format.kind == "plain" else self.plain

    def may_quantize(self, tensor: Tensor) -> bool:
        """Whether the format applies to tensors of this kind at all, names aside."""
        if self.format.kind == "plain" or tensor.fixed_dtype is not None:
            return False
        if tensor.component == "embedding":
            return self.format.quantizes_embedding and tensor.in_features > 1
        if not tensor.linear or tensor.component in _NEVER:
            return False
        if tensor.component == "lm_head":
            return self.quantizes_lm_head
        if tensor.component in _TOWERS and not (self.format.quantizes_vision or self.explicit):
            return False
        return not self.format.experts_only or tensor.component == "routed_experts"

    def _named_plain(self, tensor: Tensor, layer: int | None) -> bool:
        paths = module_paths(tensor.name, layer)
        return any(pattern.matches(paths) for pattern in self.skipped)


def _skipped_names(config: Mapping[str, Any]) -> Iterator[str]:
    """Names that a checkpoint's quantization_config leaves plain, in every spelling the quantizers use."""
    for key in (
        "modules_to_not_convert",
        "ignore",
        "ignored_layers",
        "exclude_modules",
        "llm_int8_skip_modules",
        "exclude",
    ):
        yield from config.get(key) or ()
    for pattern in config.get("dynamic") or {}:
        if pattern.startswith("-:"):
            yield "re:" + pattern[2:]
    for pattern, precision in (config.get("modules_in_block_to_quantize_off") or {}).items():
        if not precision:
            yield pattern


@lru_cache(maxsize=64)
def plain_format(dtype: str) -> WeightFormat:
    """Plain format of a dtype name."""
    found = PLAIN.get(_SPELLINGS.get(dtype, dtype))
    if found is None:
        raise MissingFact(f"unknown dtype {dtype!r}; known: {', '.join(PLAIN)}")
    return found


_SPELLINGS = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "f16": "fp16",
    "f32": "fp32", "float8_e4m3fn": "fp8", "fp8_e4m3": "fp8", "uint8": "int8", "e8m0": "int8",
}  # fmt: skip

__all__ = ["PLAIN", "Pattern", "Stored", "place_of", "plain_format", "stored_tensors"]
