"""Weights of every pipeline stage on one rank: tensors, their formats, their shards, added up."""

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.quantization import Stored, plain_format, stored_tensors
from tonnage.laws import sharding, weights
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Component, Model, Tensor
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
    keeps_zeros: bool = True
    """False where a repack drops packed zeros and the group index (Marlin)."""
    nested_scales_expanded: bool = False
    """bitsandbytes double quantization is undone at load: fp32 absmax."""
    allocation_multiple: int = 1
    """Every tensor is rounded up to this (512 for the CUDA caching allocator). [bytes]"""


PLAIN_RULES = WeightRules()


class StageWeights(Struct, frozen=True, kw_only=True):
    """Weights of one pipeline stage on its first tensor-parallel rank."""

    stage: int
    layers: tuple[int, ...]
    """Decoder layers the stage holds."""
    bytes_by_component: dict[Component, int]
    parameters_by_component: dict[Component, int]
    """Parameters held, padding not counted. [unitless]"""
    total: int
    """[bytes]"""
    parameters: int
    quantized_bytes: int
    plain_bytes: int
    quantized_parameters: int
    largest_matrix: int
    """Elements of the largest linear matrix on the rank, head aside: what a dequantization must hold. [elements]"""


@remembered()
def stage_weights(
    model: Model,
    weight_format: WeightFormat,
    formats: Mapping[str, WeightFormat] | None = None,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_parallel_size: int = 1,
    expert_tensor_parallel_size: int | None = None,
    rules: WeightRules = PLAIN_RULES,
    dtype: str = "",
) -> tuple[StageWeights, ...]:
    """
    Weights by pipeline stage, of the fullest tensor-parallel rank.

    Args:
        model: Architecture; a bare count is spread evenly.
        weight_format: Format of the weights.
        formats: Formats a file mix refers to by id; unused otherwise.
        tensor_parallel_size: Ranks that cut every matrix. [unitless]
        pipeline_parallel_size: Stages. [unitless]
        expert_parallel_size: Ranks over which whole experts are dealt. [unitless]
        expert_tensor_parallel_size: Ranks that cut one expert; None: what of tensor parallelism experts leave over. [unitless]
        rules: The engine's own.
        dtype: Plain dtype of what is not quantized; "" is the model's own.

    Returns:
        One entry per stage.

    Raises:
        ContradictoryWorkload: Something does not divide.
    """
    if not model.known:
        return _count_only(model, weight_format, tensor_parallel_size * pipeline_parallel_size, pipeline_parallel_size)
    cut = _Cut(
        tensor_parallel_size,
        expert_parallel_size,
        expert_tensor_parallel_size or max(1, tensor_parallel_size // expert_parallel_size),
        rules,
    )
    _check_heads(model, tensor_parallel_size)
    stages = sharding.layers_by_stage(
        num_layers=model.num_hidden_layers, pipeline_parallel_size=pipeline_parallel_size, surplus=rules.layer_surplus
    )
    sums = [_Sum(stage, tuple(layers)) for stage, layers in enumerate(stages)]
    stored = stored_tensors(model, weight_format, formats, dtype)
    for entry in stored:
        if entry.tensor.component not in rules.absent:
            _add(sums, entry, cut)
    if model.tie_word_embeddings and (rules.tied_head_stored or (rules.tied_head_on_last_stage and len(sums) > 1)):
        sums[-1].add(_tied_head(model, stored), 1, cut)
    return tuple(total.frozen() for total in sums)


def _add(sums: "list[_Sum]", stored: Stored, cut: "_Cut") -> None:
    if stored.place != "layers":
        sums[0 if stored.place == "first" else -1].add(stored, 1, cut)
        return
    for total in sums:
        held = len(stored.layers) if len(sums) == 1 else sum(layer in total.held for layer in stored.layers)
        if held:
            total.add(stored, held, cut)


def _tied_head(model: Model, stored: tuple[Stored, ...]) -> Stored:
    """The tied head where it is a tensor of its own."""
    return next(entry for entry in stored if is_token_embedding(entry.tensor, model))


def is_token_embedding(tensor: Tensor, model: Model) -> bool:
    """Whether a tensor is the token embedding that a tied head shares."""
    return tensor.component == "embedding" and tensor.out_features == model.vocab_size


class _Cut(Struct, frozen=True):
    """How a rank's share is cut."""

    tensor_parallel_size: int
    expert_parallel_size: int
    expert_tensor_parallel_size: int
    rules: WeightRules


class _Sum:
    """Running totals of one stage."""

    def __init__(self, stage: int, layers: tuple[int, ...]) -> None:
        self.stage = stage
        self.layers = layers
        self.held = frozenset(layers)
        self.bytes: dict[Component, int] = {}
        self.parameters: dict[Component, int] = {}
        self.quantized = 0
        self.plain = 0
        self.quantized_parameters = 0
        self.largest = 0

    def add(self, stored: Stored, copies: int, cut: _Cut) -> None:
        tensor, component = stored.tensor, stored.tensor.component
        size = copies * tensor_bytes(tensor, stored.format, cut)
        elements = copies * local_elements(tensor, cut)
        self.bytes[component] = self.bytes.get(component, 0) + size
        if tensor.parameter:
            self.parameters[component] = self.parameters.get(component, 0) + elements
        if stored.format.kind in ("plain", "file-mix"):
            self.plain += size
        else:
            self.quantized += size
            self.quantized_parameters += elements
        if tensor.linear and tensor.component != "lm_head":
            self.largest = max(self.largest, elements // copies // local_copies(tensor, cut))

    def frozen(self) -> StageWeights:
        return StageWeights(
            stage=self.stage,
            layers=self.layers,
            bytes_by_component=self.bytes,
            parameters_by_component=self.parameters,
            total=self.quantized + self.plain,
            parameters=sum(self.parameters.values()),
            quantized_bytes=self.quantized,
            plain_bytes=self.plain,
            quantized_parameters=self.quantized_parameters,
            largest_matrix=self.largest,
        )


def local_copies(tensor: Tensor, cut: _Cut) -> int:
    """Matrices of an expert tensor on the fullest rank. [unitless]"""
    if not tensor.shard.startswith("expert"):
        return tensor.experts
    return sharding.local_experts(num_experts=tensor.experts, expert_parallel_size=cut.expert_parallel_size)


def local_shape(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
    """Rows and columns of one matrix on the fullest rank. [elements]"""
    rows, columns, tp = tensor.out_features, tensor.in_features, cut.tensor_parallel_size
    if tp == 1 and not tensor.shard.startswith("expert"):
        return rows, columns
    if tensor.component in cut.rules.replicated or any(part in tensor.name for part in cut.rules.replicated_names):
        return rows, columns
    return _SHAPES[tensor.shard](tensor, cut)


def _column(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
    queries = _part(tensor, tensor.out_features - tensor.kv_out_features, cut.tensor_parallel_size)
    return queries + _kv_rows(tensor, tensor.kv_out_features, cut), tensor.in_features


def _row(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
    if tensor.in_features == 1:
        return tensor.out_features, 1
    return tensor.out_features, _part(tensor, tensor.in_features, cut.tensor_parallel_size)


def _kv(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
    return _kv_rows(tensor, tensor.out_features, cut), tensor.in_features


def _kv_rows(tensor: Tensor, rows: int, cut: _Cut) -> int:
    if not rows:
        return 0
    heads = sharding.kv_heads(num_key_value_heads=tensor.heads, tensor_parallel_size=cut.tensor_parallel_size)
    return rows // tensor.heads * heads


def _vocab(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
    return ceil_div(tensor.out_features, cut.tensor_parallel_size), tensor.in_features


def _replicated(tensor: Tensor, _: _Cut) -> tuple[int, int]:
    return tensor.out_features, tensor.in_features


def _expert_column(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
    return _part(tensor, tensor.out_features, cut.expert_tensor_parallel_size), tensor.in_features


def _expert_row(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
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


def padded_shape(tensor: Tensor, cut: _Cut) -> tuple[int, int]:
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


def local_elements(tensor: Tensor, cut: _Cut) -> int:
    """Parameters on the fullest rank, padding not counted. [elements]"""
    rows, columns = local_shape(tensor, cut)
    return rows * columns * local_copies(tensor, cut)


def tensor_bytes(tensor: Tensor, weight_format: WeightFormat, cut: _Cut) -> int:
    """A tensor (all its experts) on the fullest rank, with the engine's padding. [bytes]"""
    rows, columns = padded_shape(tensor, cut)
    rules = cut.rules
    size = matrix_bytes(rows, columns, weight_format, rules.keeps_zeros, rules.nested_scales_expanded)
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
    rows: int, columns: int, weight_format: WeightFormat, keeps_zeros: bool = True, nested_expanded: bool = False
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


def disk_bytes(
    model: Model, weight_format: WeightFormat, formats: Mapping[str, WeightFormat] | None = None, dtype: str = ""
) -> int:
    """
    Checkpoint of the model in a format, as stored: with what engines skip (MTP layers, stored tied heads).

    Args:
        model: Architecture.
        weight_format: Format of the weights.
        formats: Formats a file mix refers to by id.
        dtype: Plain dtype of what is not quantized; "" is the model's own.

    Returns:
        Size on disk without headers. [bytes]
    """
    loaded = sum(stage.total for stage in stage_weights(model, weight_format, formats, dtype=dtype))
    plain = plain_format(dtype or model.dtype)
    whole = _Cut(1, 1, 1, PLAIN_RULES)
    return loaded + sum(tensor_bytes(t, weight_format if t.linear else plain, whole) for t in model.extra_checkpoint)


def _check_heads(model: Model, tensor_parallel_size: int) -> None:
    if tensor_parallel_size == 1:
        return
    for group in model.layers:
        attention = group.layer.attention
        if attention is None:
            continue
        if attention.num_attention_heads % tensor_parallel_size:
            raise ContradictoryWorkload(
                f"num_attention_heads ({attention.num_attention_heads}) is not divisible by "
                f"tensor_parallel_size {tensor_parallel_size}",
                pointer="/placement/tensor_parallel_size",
            )


def _count_only(model: Model, weight_format: WeightFormat, ranks: int, stages: int) -> tuple[StageWeights, ...]:
    """A bare count in a format: every parameter counts as a quantized one, spread evenly."""
    share = ceil_div(model.parameters_total, ranks)
    plain = weight_format.kind == "plain"
    size = share * weight_format.block_bytes if plain else _bare_bytes(share, weight_format)
    return tuple(
        StageWeights(
            stage=stage,
            layers=(),
            bytes_by_component={"other": size},
            parameters_by_component={"other": share},
            total=size,
            parameters=share,
            quantized_bytes=0 if plain else size,
            plain_bytes=size if plain else 0,
            quantized_parameters=0 if plain else share,
            largest_matrix=0,
        )
        for stage in range(stages)
    )


def _bare_bytes(parameters: int, weight_format: WeightFormat) -> int:
    """Parameters of unknown shape, taken as square matrices of a typical side. [bytes]"""
    side = 4096
    whole = ceil_div(parameters, side * side)
    return (
        matrix_bytes(side, side, weight_format) * whole
        if parameters >= side * side
        else matrix_bytes(1, parameters, weight_format)
    )
