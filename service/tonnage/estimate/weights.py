"""Weights of every pipeline stage on one rank: tensors, their formats, their shards, added up."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.quantization import Stored, plain_format, stored_tensors
from tonnage.estimate.shards import (
    PLAIN_RULES,
    WHOLE,
    Cut,
    local_copies,
    local_elements,
    matrix_bytes,
    tensor_bytes,
)
from tonnage.estimate.shards import WeightRules as WeightRules  # noqa: PLC0414
from tonnage.laws import sharding, weights
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Component, Model, Tensor
from tonnage.units import ceil_div


class StageWeights(Struct, frozen=True, kw_only=True):
    """Weights of one pipeline stage on its first tensor-parallel rank."""

    __hash__ = object.__hash__  # `stage_weights` remembers them: what is made of them is found by identity

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
    cut = Cut(
        tensor_parallel_size,
        expert_parallel_size,
        expert_tensor_parallel_size or max(1, tensor_parallel_size // expert_parallel_size),
        rules,
    )
    _check_heads(model, tensor_parallel_size // rules.attention_groups)
    stages = stage_layers(model, pipeline_parallel_size, rules)
    sums = [_Sum(stage, tuple(layers)) for stage, layers in enumerate(stages)]
    stored = stored_tensors(model, weight_format, formats, dtype)
    for entry in stored:
        if entry.tensor.component not in rules.absent:
            _add(sums, entry, cut)
    if is_tied_head_separate(model, rules, len(sums)):
        sums[-1].add(tied_head(model, stored), 1, cut)
    return tuple(total.frozen() for total in sums)


def _add(sums: "list[_Sum]", stored: Stored, cut: "Cut") -> None:
    if stored.place != "layers":
        sums[0 if stored.place == "first" else -1].add(stored, 1, cut)
        return
    for total in sums:
        held = len(stored.layers) if len(sums) == 1 else len(total.held.intersection(stored.layers))
        if held:
            total.add(stored, held, cut)


def stage_layers(model: Model, pipeline_parallel_size: int, rules: WeightRules) -> tuple[range, ...]:
    """Decoder layers of every pipeline stage; a model of encoder layers alone is one stage without any."""
    if model.num_hidden_layers == 0 and pipeline_parallel_size == 1:
        return (range(0),)
    return sharding.layers_by_stage(
        num_layers=model.num_hidden_layers, pipeline_parallel_size=pipeline_parallel_size, surplus=rules.layer_surplus
    )


def is_tied_head_separate(model: Model, rules: WeightRules, stages: int) -> bool:
    """Whether the last stage holds a second copy of the embedding as its head."""
    return model.tie_word_embeddings and (rules.tied_head_stored or (rules.tied_head_on_last_stage and stages > 1))


def tied_head(model: Model, stored: Iterable[Stored]) -> Stored:
    """The embedding that a tied head shares."""
    return next(entry for entry in stored if is_token_embedding(entry.tensor, model))


def is_token_embedding(tensor: Tensor, model: Model) -> bool:
    """Whether a tensor is the token embedding that a tied head shares."""
    return tensor.component == "embedding" and tensor.out_features == model.vocab_size


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

    def add(self, stored: Stored, copies: int, cut: Cut) -> None:
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


@remembered()
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
    return loaded + sum(tensor_bytes(t, weight_format if t.linear else plain, WHOLE) for t in model.extra_checkpoint)


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
    size = (
        weights.blocks(elements=share, block_elements=1, block_bytes=weight_format.block_bytes)
        if plain
        else _bare_bytes(share, weight_format)
    )
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
