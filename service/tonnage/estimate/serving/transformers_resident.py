"""Weights of a Transformers process as the CUDA caching allocator counts them, GPU by GPU of a device map."""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.quantization import Stored, stored_tensors
from tonnage.estimate.shards import matrix_bytes
from tonnage.estimate.weights import is_token_embedding
from tonnage.laws import allocator, generate, weights
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Model
from tonnage.units import ceil_div

Runs = list[tuple[int, int]]

_UNTIES_HEAD = frozenset({"fp8"})
"""Families of formats whose checkpoints store a tied head as a tensor of its own."""


class Loading(Struct, frozen=True):
    """How a release brings weights to the GPU."""

    warm: float
    """Share of the weights taken as one block before the first tensor. [fraction]"""
    warm_tied_head: bool
    fused_experts: bool
    largest_leaf: bool
    """The device map leaves room for the largest leaf."""


class Resident(Struct, frozen=True, kw_only=True):
    """Weights of one GPU."""

    layers: tuple[int, ...]
    embedding: bool
    head: bool
    exact: int
    """Sum of the tensors. [bytes]"""
    counted: int
    """As memory_allocated() counts them. [bytes]"""
    reserved: int
    """Segments that hold them. [bytes]"""
    gaps: tuple[int, ...] = ()
    """Free blocks in those segments, smallest first. [bytes]"""
    largest_matrix: int
    """Elements of the largest quantized matrix. [elements]"""
    extra_head: int
    """A head of its own that is dropped once it is tied to the embedding. [bytes]"""
    tied_head: int = 0
    """What a warm-up takes for a tied head that is never used. [bytes]"""


@remembered(1024)
def residents(
    model: Model,
    weight_format: WeightFormat,
    formats: Mapping[str, WeightFormat],
    *,
    dtype: str,
    loading: Loading,
    devices: int,
    known_bytes: int | None,
) -> tuple[Resident, ...]:
    """
    Weights on every GPU of the device map.

    Args:
        model: Architecture.
        weight_format: Format of the weights.
        formats: Formats by id.
        dtype: Plain dtype of what is not quantized; "" is the model's own.
        loading: How the release loads.
        devices: GPUs. [unitless]
        known_bytes: Size of a known weights file; scales the counted size. [bytes]

    Returns:
        One entry per GPU that gets anything.
    """
    if not model.known:
        return tuple(_count_only(model, weight_format, devices, known_bytes))
    blocks = _blocks(model, weight_format, formats, dtype, loading)
    starts = _starts(blocks, loading, devices)
    found = [_resident(blocks[a:b], model, loading) for a, b in _ranges(starts, len(blocks)) if a < b]
    return tuple(found if known_bytes is None else _scaled(found, known_bytes))


class _Block(Struct):
    """What a device map does not split: the embedding side, one layer, the head side."""

    layer: int | None
    runs: Runs
    embedding: bool = False
    head: bool = False
    largest: int = 0
    extra_head: int = 0

    @property
    def total(self) -> int:
        return sum(size * count for size, count in self.runs)


def _blocks(
    model: Model, weight_format: WeightFormat, formats: Mapping[str, WeightFormat], dtype: str, loading: Loading
) -> list[_Block]:
    stored = stored_tensors(model, weight_format, formats, dtype)
    quantized = weight_format.kind == "linear"
    tied = model.tie_word_embeddings
    own_head = not tied or (quantized and weight_format.family in _UNTIES_HEAD)
    first, last = _Block(None, [], embedding=True, head=not own_head), _Block(None, [], head=own_head)
    layers = {index: _Block(index, []) for index in range(model.num_hidden_layers)}
    for entry in stored:
        runs = tuple(_runs(entry, loading.fused_experts))
        largest = entry.tensor.out_features * entry.tensor.in_features if _is_quantized(entry) else 0
        held = (
            [layers[i] for i in entry.layers]
            if entry.place == "layers"
            else [first if entry.place == "first" else last]
        )
        for block in held:
            block.runs += runs
            block.largest = max(block.largest, largest)
    if tied and own_head:
        last.runs.append((_tied_head_bytes(stored, model), 1))
    elif tied and quantized:
        first.extra_head = _tied_head_bytes(stored, model)
    return [first, *layers.values(), last]


def _is_quantized(entry: Stored) -> bool:
    return entry.tensor.linear and entry.format.kind == "linear"


def _tied_head_bytes(stored: tuple[Stored, ...], model: Model) -> int:
    return next((sum(s * c for s, c in _runs(e, False)) for e in stored if is_token_embedding(e.tensor, model)), 0)


def _runs(entry: Stored, fused_experts: bool) -> Iterator[tuple[int, int]]:
    """Allocations of one layer's copy of a tensor: codes, scales, zeros and group index apart."""
    tensor = entry.tensor
    copies = tensor.experts
    for size in _pieces(tensor.out_features, tensor.in_features, entry.format):
        yield (size * copies, 1) if fused_experts and copies > 1 else (size, copies)


def _pieces(rows: int, columns: int, form: WeightFormat) -> tuple[int, ...]:
    whole = matrix_bytes(rows, columns, form)
    if form.kind != "linear":
        return (whole,)
    codes = weights.blocks(elements=rows * columns, block_elements=form.block_elements, block_bytes=form.block_bytes)
    groups = rows * ceil_div(columns, form.group_size) if form.group_size and form.group_size > 0 else 0
    parts = [codes, groups * form.scale_bytes, ceil_div(groups * form.zero_bits, 8), form.column_bytes * columns]
    rest = whole - sum(parts)
    return tuple(size for size in (*parts, rest) if size > 0) if rest >= 0 else (whole,)


def _starts(blocks: list[_Block], loading: Loading, devices: int) -> tuple[int, ...]:
    if devices == 1:
        return (0,)
    sizes = [block.total for block in blocks]
    layers = max(sizes[1:-1], default=0)
    largest = max(sizes) if loading.largest_leaf else layers
    budget = generate.balanced_budget(total=sum(sizes), devices=devices, largest_block=largest)
    kept_free = layers if blocks[0].head else max(sizes[1:])
    return generate.balanced_split(blocks=sizes, budget=budget, devices=devices, kept_free=kept_free)


def _ranges(starts: tuple[int, ...], end: int) -> Iterator[tuple[int, int]]:
    yield from zip(starts, (*starts[1:], end), strict=True)


def _resident(blocks: list[_Block], model: Model, loading: Loading) -> Resident:
    runs = [run for block in blocks for run in block.runs]
    exact = sum(size * count for size, count in runs)
    tied = _largest(blocks[0]) if model.tie_word_embeddings and blocks[0].head else 0
    warm = int(loading.warm * exact) + (tied if loading.warm_tied_head else 0)
    placement = allocator.placed(tensors=runs, warm=warm)
    return Resident(
        layers=tuple(block.layer for block in blocks if block.layer is not None),
        embedding=blocks[0].embedding,
        head=blocks[0].head or blocks[-1].head,
        exact=exact,
        counted=placement.allocated,
        reserved=placement.reserved,
        gaps=placement.gaps,
        largest_matrix=max(block.largest for block in blocks),
        extra_head=sum(block.extra_head for block in blocks),
        tied_head=tied,
    )


def _largest(block: _Block) -> int:
    return max((size for size, _ in block.runs), default=0)


def _scaled(found: list[Resident], known_bytes: int) -> Iterator[Resident]:
    """The same GPUs with sizes in proportion to a known file."""
    total = sum(r.exact for r in found) or 1
    for r in found:
        exact, counted, reserved = (known_bytes * n // total for n in (r.exact, r.counted, r.reserved))
        yield replace(r, exact=exact, counted=counted, reserved=reserved)


def _count_only(model: Model, weight_format: WeightFormat, devices: int, known_bytes: int | None) -> Iterator[Resident]:
    per_element = weight_format.block_bytes / weight_format.block_elements
    total = known_bytes or ceil_div(int(model.parameters_total * per_element), 1)
    share = ceil_div(total, devices)
    for device in range(devices):
        yield Resident(
            layers=(), embedding=device == 0, head=device == devices - 1, exact=share, counted=share, reserved=share,
            largest_matrix=0, extra_head=0,
        )  # fmt: skip
