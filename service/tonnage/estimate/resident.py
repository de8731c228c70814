"""
Weights as the tensors an engine really makes, in order: what the caching allocator counts for them.

A sum of tensors is not what `memory_allocated` says: blocks of more than 1 MiB come with a remainder
of up to 1 MiB that is not split off (`laws.allocator`). Which matrices are one tensor is the engine's choice.
"""

from collections.abc import Iterator, Mapping

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.quantization import Stored, stored_tensors
from tonnage.estimate.shards import Cut, local_copies, tensor_parts
from tonnage.estimate.weights import WeightRules, is_tied_head_separate, stage_layers, tied_head
from tonnage.laws import allocator
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Model

Made = tuple[int, int]
"""Size of a tensor and how many of it. [bytes]"""

_MERGED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
"""Projections that engines merge into one matrix."""


@remembered()
def resident_tensors(
    model: Model,
    weight_format: WeightFormat,
    formats: Mapping[str, WeightFormat] | None = None,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_parallel_size: int = 1,
    expert_tensor_parallel_size: int | None = None,
    rules: WeightRules,
    dtype: str = "",
) -> tuple[tuple[Made, ...], ...]:
    """
    Tensors of every pipeline stage on its fullest rank, in the order they are made.

    Args:
        model: Architecture.
        weight_format: Format of the weights.
        formats: Formats by id.
        tensor_parallel_size: Ranks that cut every matrix. [unitless]
        pipeline_parallel_size: Stages. [unitless]
        expert_parallel_size: Ranks over which whole experts are dealt. [unitless]
        expert_tensor_parallel_size: Ranks that cut one expert; None: what experts leave over of the tensor ranks. [unitless]
        rules: The engine's own.
        dtype: Plain dtype of what is not quantized; "" is the model's own.

    Returns:
        Size and count of every tensor, by stage.
    """
    ranks = expert_tensor_parallel_size or max(1, tensor_parallel_size // expert_parallel_size)
    cut = Cut(tensor_parallel_size, expert_parallel_size, ranks, rules)
    stored = [s for s in stored_tensors(model, weight_format, formats, dtype) if s.tensor.component not in rules.absent]
    stages = stage_layers(model, pipeline_parallel_size, rules)
    made = [list(_in_layers(stored, layers, cut)) for layers in stages]
    made[0] = [*_in_place(stored, "first", cut), *made[0]]
    made[-1] += _in_place(stored, "last", cut)
    if is_tied_head_separate(model, rules, len(stages)):
        made[-1] += _made(tied_head(model, stored), cut)
    return tuple(tuple(stage) for stage in made)


@remembered()
def unsplit_remainders(tensors: tuple[Made, ...]) -> int:
    """What memory_allocated() counts for the tensors of a stage beyond their own sizes. [bytes]"""
    return allocator.allocated(tensors=tensors) - sum(size * count for size, count in tensors)


def _in_place(stored: list[Stored], place: str, cut: Cut) -> list[Made]:
    return [made for entry in stored if entry.place == place for made in _made(entry, cut)]


def _in_layers(stored: list[Stored], layers: range, cut: Cut) -> Iterator[Made]:
    by_layer: dict[int, list[Stored]] = {layer: [] for layer in layers}
    for entry in stored:
        for layer in entry.layers:
            if layer in by_layer:
                by_layer[layer].append(entry)
    kept: dict[tuple[int, ...], list[Made]] = {}
    for entries in by_layer.values():
        key = tuple(map(id, entries))
        if key not in kept:
            kept[key] = list(_of_one_layer(entries, cut))
        yield from kept[key]


def _of_one_layer(entries: list[Stored], cut: Cut) -> Iterator[Made]:
    if not cut.rules.merges:
        for entry in entries:
            yield from _made(entry, cut)
        return
    merged: dict[tuple[str, bool, int], int] = {}
    for entry in entries:
        for number, (size, count) in enumerate(_made(entry, cut)):
            key = (_module(entry), entry.tensor.in_features > 1, number)
            merged[key] = merged.get(key, 0) + size * count
    yield from ((size, 1) for size in merged.values())


def _module(entry: Stored) -> str:
    role = entry.tensor.role
    prefix, _, last = role.rpartition("_")
    merged = _MERGED.get(role) or (_MERGED.get(last) if prefix in ("expert", "shared") else None)
    return f"{prefix}.{merged}" if merged and entry.tensor.out_features > 1 else entry.tensor.name


def _made(entry: Stored, cut: Cut) -> Iterator[Made]:
    """Values of a tensor, and beside them its scales and zeros."""
    copies = local_copies(entry.tensor, cut)
    count, each = (1, copies) if cut.rules.stacks_experts and entry.tensor.shard.startswith("expert") else (copies, 1)
    for size in tensor_parts(entry.tensor, entry.format, cut):
        if size:
            yield size * each, count
