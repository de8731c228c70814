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

from tonnage.architecture.checkpoint_format import group_format
from tonnage.errors import MissingFact
from tonnage.estimate.gguf_tensors import gguf_rows
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.module_names import ModuleNames, module_paths
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Component, Model, Tensor

PLAIN: Mapping[str, WeightFormat] = {
    name: WeightFormat(id=name, family="plain", kind="plain", block_bytes=size, source="definition")
    for name, size in (("bf16", 2), ("fp16", 2), ("fp32", 4), ("int64", 8), ("int32", 4), ("int8", 1), ("fp8", 1))
}
"""Plain dtypes by name, for tensors that a format leaves alone."""

_NEVER: frozenset[Component] = frozenset({"embedding", "norm", "router"})
_HEAD: frozenset[Component] = frozenset({"lm_head"})
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
    rule = _Rule(model, weight_format, formats or {}, dtype or model.dtype)
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

    def __init__(
        self, model: Model, weight_format: WeightFormat, formats: Mapping[str, WeightFormat], dtype: str
    ) -> None:
        own = model.quantization_config if model.weight_format == weight_format.id else None
        self.format = weight_format
        self.plain = plain_format(dtype)
        named = ModuleNames(_skipped_names(own or {}))
        self.skipped = ModuleNames(weight_format.skips) if own is None else named
        self.groups = tuple(_groups(own or {}, formats))
        self.experts = formats.get(_EXPERT_FORMATS.get(str((own or {}).get("expert_dtype")), ""))
        listed = bool(named or self.groups)
        mixture = any(group.layer.moe for group in model.layers)
        self.experts_only = weight_format.experts_only or (
            weight_format.experts_only_in_mixtures and mixture and not listed
        )
        towers = weight_format.quantizes_vision or (listed and weight_format.family in _LISTS_TOWERS)
        head = weight_format.quantizes_lm_head or bool((own or {}).get("lm_head"))
        self.plain_components = _NEVER | (frozenset() if towers else _TOWERS) | (frozenset() if head else _HEAD)

    def by_format(self, tensor: Tensor, layers: tuple[int, ...]) -> list[tuple[WeightFormat, tuple[int, ...]]]:
        """Layers that hold the tensor, by the format they hold it in."""
        if not self.may_quantize(tensor) or not (self.skipped or self.groups):
            return [(self.format_of(tensor, layers[0]), layers)]
        chosen: dict[str, tuple[WeightFormat, list[int]]] = {}
        for layer in layers:
            found = self.format_of(tensor, layer)
            chosen.setdefault(found.id, (found, []))[1].append(layer)
        return [(found, tuple(indices)) for found, indices in chosen.values()]

    def format_of(self, tensor: Tensor, layer: int | None) -> WeightFormat:
        if self.may_quantize(tensor):
            if self.experts is not None and tensor.component == "routed_experts":
                return self.experts
            return self._quantized(module_paths(tensor.name, layer))
        if tensor.fixed_dtype is not None:
            return plain_format(tensor.fixed_dtype)
        return self.format if self.format.kind == "plain" else self.plain

    def may_quantize(self, tensor: Tensor) -> bool:
        """Whether the format applies to tensors of this kind at all, names aside."""
        if self.format.kind == "plain" or tensor.fixed_dtype is not None:
            return False
        if tensor.component == "embedding":
            return self.format.quantizes_embedding and tensor.in_features > 1
        if self.format.plain_experts and tensor.component == "routed_experts":
            return False
        if not tensor.linear or tensor.component in self.plain_components or tensor.role in _PLAIN_ROLES:
            return False
        smaller_than_a_tile = self.format.block_shape is not None and tensor.out_features < self.format.block_shape[0]
        return not smaller_than_a_tile and (not self.experts_only or tensor.component == "routed_experts")

    def _quantized(self, paths: tuple[str, ...]) -> WeightFormat:
        if self.skipped.match(paths):
            return self.plain
        if not self.groups:
            return self.format
        return next((found for targets, found in self.groups if _targeted(targets, paths)), self.plain)


_PLAIN_ROLES = frozenset({"compressor"})
"""Compressors of latents are made without a quantization (sglang@0.5.12 dsv4/compressor.py, vllm@0.33.0 models/deepseek_v4)."""
_LISTS_TOWERS = frozenset({"compressed-tensors", "fp8", "torchao", "quanto", "hqq"})
"""Families whose checkpoints quantize every linear that they do not list, towers too."""


def _targeted(targets: ModuleNames, paths: tuple[str, ...]) -> bool:
    return not targets.plain.isdisjoint(_CLASSES) or targets.match(paths)


_CLASSES = frozenset({"Linear", "FusedMoE", "LinearBase"})


def _groups(
    config: Mapping[str, Any], formats: Mapping[str, WeightFormat]
) -> Iterator[tuple[ModuleNames, WeightFormat]]:
    """Groups of a checkpoint that stores different modules in different formats, the most specific first."""
    read = [
        (ModuleNames(group.get("targets") or ("Linear",)), group_format(group))
        for group in (config.get("config_groups") or {}).values()
        if isinstance(group, Mapping) and group.get("weights")
    ]
    if len({found for _, found in read}) < 2 and all(targets.only(_CLASSES) for targets, _ in read):
        return
    for targets, found in sorted(read, key=lambda entry: not entry[0].plain.isdisjoint(_CLASSES)):
        if found is not None and found in formats:
            yield targets, formats[found]


def _skipped_names(config: Mapping[str, Any]) -> Iterator[str]:
    """Names that a checkpoint's quantization_config leaves plain, in every spelling the quantizers use."""
    for key in _SKIP_KEYS:
        names = config.get(key)
        yield from (name for name in names if isinstance(name, str)) if isinstance(names, list | tuple) else ()
    dynamic = config.get("dynamic")
    for pattern in dynamic if isinstance(dynamic, Mapping) else ():
        if pattern.startswith("-:"):
            yield "re:" + pattern[2:]
    yield from _METHODS_THAT_SKIP.get(str(config.get("quant_method")), ())


_EXPERT_FORMATS = {"fp4": "mxfp4"}
"""What a config's own word for its experts means, whatever the rest is stored in (DeepSeek-V4)."""
_METHODS_THAT_SKIP = {"fbgemm_fp8": ("self_attn",)}
"""
Recipes that leave modules plain whatever their list says (published configs abbreviate it).

Source: The Llama 3 Herd of Models, section 6.2 (arXiv:2407.21783): attention is not quantized; vllm-project/vllm issue
6746 prints 57.752 GiB for each of eight ranks of the 405B model, then with 16 key-value heads: so computed 57.752.
"""
_SKIP_KEYS = (
    "modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules", "exclude",
    "skip_modules",
)  # fmt: skip


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

__all__ = ["PLAIN", "Stored", "place_of", "plain_format", "stored_tensors"]
