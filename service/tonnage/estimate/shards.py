"""One rank's share of a tensor, with what engines pad and drop, and what it takes in a storage format."""

from msgspec import Struct

from tonnage.laws import sharding, weights
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Tensor
from tonnage.units import ceil_div, round_up

_TOWERS: frozenset[str] = frozenset({"vision", "projector", "audio"})


class WeightRules(Struct, frozen=True, eq=False):
    """
    What engines do differently with the same checkpoint.

    Results are kept by its identity: make one object per engine and version, not one per estimate.
    """

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
    scaled_zeros: frozenset[str] = frozenset()
    """Families of formats whose zeros are kept multiplied with their scales (Machete)."""
    nests_scales: bool = False
    """bitsandbytes formats are double-quantized whatever is stored (quantized while loading)."""
    nested_scales_expanded: bool = False
    """bitsandbytes double quantization is undone after loading: fp32 absmax."""
    expert_values_multiple: int = 1
    """Columns of expert matrices in memory, their scales left as they are (Triton's layout for Hopper). [elements]"""
    merges: bool = False
    """q, k and v are one tensor, gate and up another."""
    stacks_experts: bool = False
    """All experts of a layer are one tensor per projection."""
    attention_groups: int = 1
    """Data-parallel groups of attention within the ranks: its layers and the embedding are cut over the ranks of one only."""
    fp32: frozenset[str] = frozenset()
    """Components held in fp32 whatever the checkpoint stores (the router of some mixtures)."""


PLAIN_RULES = WeightRules()


class Cut(Struct, frozen=True):
    """How a rank's share is cut."""

    tensor_parallel_size: int
    expert_parallel_size: int
    expert_tensor_parallel_size: int
    rules: WeightRules


WHOLE = Cut(1, 1, 1, PLAIN_RULES)
"""Uncut, as checkpoints store it."""
_GROUPED: frozenset[str] = frozenset({"attention", "ssm", "embedding"})


def _of_group(tensor: Tensor, cut: Cut) -> Cut:
    """Where attention runs over data-parallel groups, its tensors are cut over the ranks of one group."""
    rules = cut.rules
    if rules.attention_groups == 1 or tensor.component not in _GROUPED:
        return cut
    ranks = cut.tensor_parallel_size // rules.attention_groups
    return Cut(ranks, cut.expert_parallel_size, cut.expert_tensor_parallel_size, rules)


def local_copies(tensor: Tensor, cut: Cut) -> int:
    """Matrices of an expert tensor on the fullest rank. [unitless]"""
    if not tensor.shard.startswith("expert"):
        return tensor.experts
    return sharding.local_experts(num_experts=tensor.experts, expert_parallel_size=cut.expert_parallel_size)


def _whole(tensor: Tensor, rules: WeightRules) -> bool:
    return tensor.component in rules.replicated or any(part in tensor.name for part in rules.replicated_names)


def local_shape(tensor: Tensor, cut: Cut) -> tuple[int, int]:
    """Rows and columns of one matrix on the fullest rank. [elements]"""
    cut = _of_group(tensor, cut)
    rows, columns, tp = tensor.out_features, tensor.in_features, cut.tensor_parallel_size
    if tp == 1 and not tensor.shard.startswith("expert"):
        return rows, columns
    if _whole(tensor, cut.rules):
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
    if tensor.shard == "vocab" and not _whole(tensor, rules):
        ranks = _of_group(tensor, cut).tensor_parallel_size
        rows = weights.padded_vocabulary(
            vocab_size=tensor.out_features,
            multiple=rules.vocabulary_multiple,
            tensor_parallel_size=ranks,
        )
        return rows // ranks, tensor.in_features
    rows, columns = local_shape(tensor, cut)
    if tensor.shard == "expert_column":
        inner = columns if columns == 1 else round_up(columns, rules.expert_hidden_multiple)
        halves = 2 if "gate_up" in tensor.name else 1
        return halves * round_up(rows // halves, rules.expert_intermediate_multiple), inner
    if tensor.shard == "expert_row":
        inner = columns if columns == 1 else round_up(columns, rules.expert_intermediate_multiple)
        return round_up(rows, rules.expert_hidden_multiple), inner
    return rows, columns


def local_elements(tensor: Tensor, cut: Cut) -> int:
    """Parameters on the fullest rank, padding not counted. [elements]"""
    rows, columns = local_shape(tensor, cut)
    return rows * columns * local_copies(tensor, cut)


def tensor_bytes(tensor: Tensor, weight_format: WeightFormat, cut: Cut) -> int:
    """A tensor (all its copies) on the fullest rank, with the engine's padding. [bytes]"""
    return local_copies(tensor, cut) * sum(tensor_parts(tensor, weight_format, cut))


def tensor_parts(tensor: Tensor, weight_format: WeightFormat, cut: Cut) -> tuple[int, int]:
    """One copy on the fullest rank: values, and what stands beside them (scales, zeros). [bytes]"""
    rules = cut.rules
    rows, columns = padded_shape(tensor, cut)
    if tensor.component in rules.fp32:
        return 4 * rows * columns, 0
    held = columns
    if columns > 1 and tensor.shard.startswith("expert") and weight_format.kind != "plain":
        held = round_up(columns, rules.expert_values_multiple)
    values = _values(rows, held, weight_format)
    if weight_format.kind != "linear":
        return values, 0
    return values, _beside(
        rows,
        columns,
        weight_format,
        keeps_zeros=weight_format.family not in rules.without_zeros,
        scaled_zeros=weight_format.family in rules.scaled_zeros,
        nested_block=_nested_block(weight_format, rules),
    )


def matrix_bytes(rows: int, columns: int, weight_format: WeightFormat) -> int:
    """One matrix [rows, columns] as stored, with scales, zeros and what the format keeps per matrix. [bytes]"""
    beside = 0
    if weight_format.kind == "linear":
        beside = _beside(rows, columns, weight_format, keeps_zeros=True, nested_block=weight_format.nested_block)
    return _values(rows, columns, weight_format) + beside


def _values(rows: int, columns: int, form: WeightFormat) -> int:
    if form.kind in ("tensor-type", "file-mix"):
        return weights.packed_rows(
            out_features=rows, in_features=columns, block_elements=form.block_elements, block_bytes=form.block_bytes
        )
    return weights.blocks(elements=rows * columns, block_elements=form.block_elements, block_bytes=form.block_bytes)


def _nested_block(form: WeightFormat, rules: WeightRules) -> int | None:
    if rules.nested_scales_expanded:
        return None
    return form.nested_block or (_NESTED_BLOCK if rules.nests_scales else None)


_NESTED_BLOCK = 256
"""Absmax values per second-level absmax in bitsandbytes. [values]"""


def _beside(
    rows: int,
    columns: int,
    form: WeightFormat,
    *,
    keeps_zeros: bool,
    nested_block: int | None,
    scaled_zeros: bool = False,
) -> int:
    if form.family == "bitsandbytes" and form.block_elements > 1:
        return weights.bitsandbytes_state(
            elements=rows * columns,
            block_size=form.group_size or 64,
            nested_block=nested_block,
        )
    if form.block_shape is not None:
        return weights.tile_scales(
            out_features=rows,
            in_features=columns,
            tile_out=form.block_shape[0],
            tile_in=form.block_shape[1],
            scale_bytes=form.scale_bytes,
        )
    rest = form.matrix_bytes + (form.column_bytes * columns if keeps_zeros else 0)
    if form.group_size is None:
        return rest
    zero_bits = 8 * form.scale_bytes if scaled_zeros else form.zero_bits
    bits = 8 * form.scale_bytes + (zero_bits if keeps_zeros else 0)
    return rest + weights.group_scales(
        out_features=rows, in_features=columns, group_size=form.group_size, scale_bits=bits
    )
