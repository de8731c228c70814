"""One rank's share of a tensor, with what engines pad and drop, and what it takes in a storage format."""

from functools import lru_cache

from msgspec import Struct

from tonnage.laws import sharding, weights
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Tensor
from tonnage.units import ceil_div, round_up

_TOWERS: frozenset[str] = frozenset({"vision", "projector", "audio"})


class WeightRules(Struct, frozen=True):
    """What engines do differently with the same checkpoint. One object per engine and version: results are kept by it."""

    vocabulary_multiple: int = 1
    """Rows of embedding and head are padded to this. [elements]"""
    layer_surplus: str = "late"
    """Who takes layers that do not divide: see `laws.sharding.layers_by_stage`."""
    replicated: frozenset[str] = frozenset()
    """Components whole on every rank (vision in encoder data mode)."""
    replicated_names: tuple[str, ...] = ()
    """Parts of tensor names that are whole on every rank beside what the architecture says."""
    absent: frozenset[str] = frozenset()
    """Components that are not loaded (vision without images, mtp without a speculator)."""
    tied_head_on_last_stage: bool = True
    """A tied head is a second copy of the embedding on the last of several stages."""
    tied_head_stored: bool = False
    """A tied head is a second tensor (an engine that unties it, a checkpoint that stores it)."""
    expert_hidden_multiple: int = 1
    """Hidden side of expert matrices is padded to this (MXFP4 kernels). [elements]"""
    expert_intermediate_multiple: int = 1
    """Intermediate side of expert matrices, per rank. [elements]"""
    without_zeros: frozenset[str] = frozenset()
    """Families of formats whose packed zeros and group index a repack drops (Marlin with symmetric GPTQ)."""
    nested_scales_expanded: bool = False
    """bitsandbytes double quantization is undone at load: fp32 absmax."""
    fp32: frozenset[str] = frozenset()
    """Components held in fp32 whatever the checkpoint stores (the router of some mixtures)."""
    allocation_multiple: int = 1
    """Every tensor is rounded up to this (512 for the CUDA caching allocator). [bytes]"""


PLAIN_RULES = WeightRules()


class Cut(Struct, frozen=True):
    """How a rank's share is cut."""

    tensor_parallel_size: int
    expert_parallel_size: int
    expert_tensor_parallel_size: int
    rules: WeightRules


WHOLE = Cut(1, 1, 1, PLAIN_RULES)
"""Uncut, as checkpoints store it."""


def local_copies(tensor: Tensor, cut: Cut) -> int:
    """Matrices of an expert tensor on the fullest rank. [unitless]"""
    if not tensor.shard.startswith("expert"):
        return tensor.experts
    return sharding.local_experts(num_experts=tensor.experts, expert_parallel_size=cut.expert_parallel_size)


def local_shape(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    """Rows and columns of one matrix on the fullest rank. [elements]"""
    rows, columns, tp = tensor.out_features, tensor.in_features, cut.tensor_parallel_size
    if tp == 1 and not tensor.shard.startswith("expert"):
        return rows, columns
    if tensor.component in cut.rules.replicated or any(part in tensor.name for part in cut.rules.replicated_names):
        return rows, columns
    return _SHAPES[tensor.shard](tensor, cut)


def _column(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    queries = _part(tensor, tensor.out_features - tensor.kv_out_features, cut.tensor_parallel_size)
    return queries + _kv_rows(tensor, tensor.kv_out_features, cut), tensor.in_features


def _row(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    if tensor.in_features == 1:
        return tensor.out_features, 1
    return tensor.out_features, _part(tensor, tensor.in_features, cut.tensor_parallel_size)


def _kv(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    return _kv_rows(tensor, tensor.out_features, cut), tensor.in_features


def _kv_rows(tensor: Tensor, rows: int, cut: Cut) -> int:
    if not rows:
        return 0
    heads = sharding.kv_heads(num_key_value_heads=tensor.heads, tensor_parallel_size=cut.tensor_parallel_size)
    return rows // tensor.heads * heads


def _vocab(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    return ceil_div(tensor.out_features, cut.tensor_parallel_size), tensor.in_features


def _replicated(tensor: Tensor, _: Cut) -> tuple[int, int]:
    return tensor.out_features, tensor.in_features


def _expert_column(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    return _part(tensor, tensor.out_features, cut.expert_tensor_parallel_size), tensor.in_features


def _expert_row(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    if tensor.in_features == 1:
        return tensor.out_features, 1
    return tensor.out_features, _part(tensor, tensor.in_features, cut.expert_tensor_parallel_size)


_SHAPES = {
    "column": _column, "row": _row, "kv": _kv, "vocab": _vocab, "replicated": _replicated,
    "expert_column": _expert_column, "expert_row": _expert_row,
}  # fmt: skip


def _part(tensor: Tensor, elements: int, ranks: int) -> int:
    if tensor.component in _TOWERS:
        return ceil_div(elements, ranks)
    return sharding.even_part(elements=elements, tensor_parallel_size=ranks, name=f"{tensor.name} of {elements}")


def padded_shape(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    """Shape on the rank with the engine's padding: vocabulary rows, expert sides. [elements]"""
    rules = cut.rules
    if tensor.shard == "vocab":
        rows = weights.padded_vocabulary(
            vocab_size=tensor.out_features,
            multiple=rules.vocabulary_multiple,
            tensor_parallel_size=cut.tensor_parallel_size,
        )
        return rows // cut.tensor_parallel_size, tensor.in_features
    rows, columns = local_shape(tensor, cut)
    if tensor.shard == "expert_column":
        inner = columns if columns == 1 else round_up(columns, rules.expert_hidden_multiple)
        return round_up(rows, rules.expert_intermediate_multiple), inner
    if tensor.shard == "expert_row":
        inner = columns if columns == 1 else round_up(columns, rules.expert_intermediate_multiple)
        return round_up(rows, rules.expert_hidden_multiple), inner
    return rows, columns


def local_elements(tensor: Tensor, cut: Cut) -> int:
    """Parameters on the fullest rank, padding not counted. [elements]"""
    rows, columns = local_shape(tensor, cut)
    return rows * columns * local_copies(tensor, cut)


def tensor_bytes(tensor: Tensor, weight_format: WeightFormat, cut: Cut) -> int:
    """A tensor (all its experts) on the fullest rank, with the engine's padding. [bytes]"""
    rows, columns = padded_shape(tensor, cut)
    rules = cut.rules
    size = matrix_bytes(
        rows,
        columns,
        weight_format,
        keeps_zeros=weight_format.family not in rules.without_zeros,
        nested_expanded=rules.nested_scales_expanded,
    )
    return local_copies(tensor, cut) * weights.allocator_blocks(amount=size, multiple=rules.allocation_multiple)


@lru_cache(maxsize=65536)
def _matrix_bytes(
    rows: int, columns: int, block: tuple[int, int], scales: tuple[int | None, int], rest: tuple[int, int]
) -> int:
    group_size, scale_bits = scales
    size = weights.blocks(elements=rows * columns, block_elements=block[0], block_bytes=block[1])
    if group_size is not None:
        size += weights.group_scales(
            out_features=rows, in_features=columns, group_size=group_size, scale_bits=scale_bits
        )
    return size + rest[0] * columns + rest[1]


def matrix_bytes(
    rows: int, columns: int, weight_format: WeightFormat, *, keeps_zeros: bool = True, nested_expanded: bool = False
) -> int:
    """
    One matrix [rows, columns] in a format.

    Args:
        rows: Output features. [elements]
        columns: Input features. [elements]
        weight_format: Format.
        keeps_zeros: Whether packed zeros and group index stay in memory.
        nested_expanded: Whether double quantization is undone.

    Returns:
        Size with scales, zeros and what the format keeps per matrix. [bytes]
    """
    form = weight_format
    if form.kind in ("tensor-type", "file-mix"):
        return weights.packed_rows(
            out_features=rows, in_features=columns, block_elements=form.block_elements, block_bytes=form.block_bytes
        )
    if form.family == "bitsandbytes" and form.block_elements == 2:
        nested = None if nested_expanded else form.nested_block
        return weights.bitsandbytes_4bit(elements=rows * columns, block_size=form.group_size or 64, nested_block=nested)
    if form.block_shape is not None:
        return rows * columns * form.block_bytes + weights.tile_scales(
            out_features=rows,
            in_features=columns,
            tile_out=form.block_shape[0],
            tile_in=form.block_shape[1],
            scale_bytes=form.scale_bytes,
        )
    zeros = form.zero_bits if keeps_zeros else 0
    return _matrix_bytes(
        rows,
        columns,
        (form.block_elements, form.block_bytes),
        (form.group_size, 8 * form.scale_bytes + zeros),
        (form.column_bytes if keeps_zeros else 0, form.matrix_bytes),
    )
