"""What stays between steps: weights, adapters, gradients' size, master weights, optimizer states."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.quantization import stored_tensors
from tonnage.estimate.training.adapters import key_value_width
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.settings import Settings
from tonnage.estimate.training.targets import Adapted
from tonnage.estimate.weights import StageWeights, WeightRules, stage_weights
from tonnage.laws import adapters as adapter_laws
from tonnage.laws import optimizer as optimizer_laws
from tonnage.laws.activations import causal_mask_buffer
from tonnage.laws.optimizer import Shape
from tonnage.spec.facts import Optimizer, WeightFormat
from tonnage.spec.model import Model, Tensor
from tonnage.spec.workload import Workload

_RULES = WeightRules()
_UNTIED_RULES = WeightRules(tied_head_stored=True)
_MEGATRON_RULES = WeightRules(vocabulary_multiple=128, layer_surplus="refuse")


class Trainable:
    """Trainable tensors of one width: matrices inside layers, and the rest (embedding, head, norms, biases)."""

    __slots__ = ("element_bytes", "largest", "parameters", "rest", "shapes", "stored")

    def __init__(self, shapes: tuple[Shape, ...], rest: tuple[Shape, ...], element_bytes: int) -> None:
        self.shapes = shapes
        self.rest = rest
        self.element_bytes = element_bytes
        self.parameters = sum(rows * columns * copies for rows, columns, copies in (*shapes, *rest))
        """[unitless]"""
        self.stored = adapter_laws.tensors(shapes=shapes, rest=rest, element_bytes=element_bytes)
        """[bytes]"""
        self.largest = max((rows * columns for rows, columns, _ in (*shapes, *rest)), default=0)
        """Elements of the largest tensor. [elements]"""


def base_weights(workload: Workload, settings: Settings) -> tuple[StageWeights, ...]:
    """Weights of the base model on the first rank of every stage, as this framework loads them."""
    form, dtype = loaded_format(workload, settings)
    return stage_weights(
        workload.model,
        form,
        workload.formats if form.kind == "file-mix" else None,
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        expert_parallel_size=settings.expert_parallel_size,
        expert_tensor_parallel_size=expert_cuts(settings),
        rules=_rules(settings),
        dtype=dtype,
    )


def expert_cuts(settings: Settings) -> int | None:
    """
    Ranks that cut one expert under Megatron: as many as cut everything else, unless told otherwise. [unitless]

    Source:
        NVIDIA/Megatron-LM@d98e8a64d megatron/core/model_parallel_config.py (expert_tensor_parallel_size)
    """
    return settings.tensor_parallel_size if settings.release.code == "megatron" else None


def causal_masks(model: Model) -> int:
    """Masks of all positions that a model keeps as buffers. [bytes]"""
    return causal_mask_buffer(positions=model.max_position_embeddings) if model.code.causal_mask_buffer else 0


def _rules(settings: Settings) -> WeightRules:
    if settings.release.unties_head:
        return _UNTIED_RULES
    return _MEGATRON_RULES if settings.release.code == "megatron" else _RULES


def loaded_format(workload: Workload, settings: Settings) -> tuple[WeightFormat, str]:
    """Format of the linears in memory and dtype of what stays plain."""
    form, release = workload.weight_format, settings.release
    if form.kind == "plain":
        return _plain(workload, settings.weight_bytes), "fp32" if settings.weight_bytes == 4 else "bf16"
    if form.family == "bitsandbytes" and form.block_elements == 2:
        if release.double_quantized and form.nested_block is None:
            form = workload.formats.get("bnb-nf4-dq", form)
        if release.code == "litgpt":
            form = _with_head(form)
    if form.family == "bitsandbytes" and not (
        settings.libraries.experts_are_linears or release.quantizes_stacked_experts
    ):
        form = _with_plain_experts(form)
    wide = upcasts(settings, form) and not (release.four_bit_casts and settings.compute_bytes < 4)
    return form, "fp32" if wide else "bf16"


def _plain(workload: Workload, width: int) -> WeightFormat:
    form = workload.weight_format
    if form.block_bytes == width:
        return form
    return workload.formats.get("fp32" if width == 4 else "bf16", form)


@remembered()
def _with_head(form: WeightFormat) -> WeightFormat:
    """The format where the head is quantized like every other linear."""
    return replace(form, quantizes_lm_head=True)


@remembered()
def _with_plain_experts(form: WeightFormat) -> WeightFormat:
    """
    The format where stacked experts keep 16 bit.

    Source: huggingface/transformers@v5.0.0 src/transformers/integrations/bitsandbytes.py (nn.Linear and Conv1D only)
    """
    return replace(form, plain_experts=True)


def upcasts(settings: Settings, form: WeightFormat) -> bool:
    """Whether norms, embedding and head were turned to fp32 before training on a quantized base."""
    kbit = form.family == "bitsandbytes" and settings.sharding in ("none", "ddp")
    return kbit and settings.release.four_bit_upcast


def is_four_bit(form: WeightFormat) -> bool:
    """Whether linears are dequantized to 16 bit on use."""
    return form.kind != "plain"


# ---- what trains ----


class What(Struct, frozen=True, kw_only=True):
    """What trains, as far as shapes depend on it."""

    whole: bool
    """The base model trains."""
    adapters: tuple[Adapted, ...]
    method: str
    """Decides what an adapter consists of."""
    rank: int
    """Rank of low-rank pairs, virtual tokens of prompts. [unitless]"""
    saved: frozenset[str]
    """Roles outside layers that train in full beside adapters."""
    base_bytes: int
    adapter_bytes: int
    unties: bool
    """A tied head is a tensor of its own."""
    frozen: frozenset[str] = frozenset()
    """Components of the base that do not train."""


@per_model()
def trainable(model: Model, what: What) -> tuple[Trainable, ...]:
    """
    Trainable tensors by width.

    Args:
        model: Architecture.
        what: What trains.

    Returns:
        Groups of one width each.
    """
    if what.whole:
        return (_whole_model(model, what),)
    adapters = Trainable(tuple(_adapter_shapes(model, what.adapters, what.method, what.rank)), (), what.adapter_bytes)
    rest = tuple((model.vocab_size, model.hidden_size, 1) for role in ("embed", "head") if role in what.saved)
    scored = {"score", "pooler"} if model.code.dense_score_head else {"score"}
    rest += tuple((t.out_features, t.in_features, 1) for t in model.outside if t.role in scored)
    return (adapters, Trainable((), rest, what.base_bytes)) if rest else (adapters,)


def _whole_model(model: Model, what: What) -> Trainable:
    inside: dict[Shape, int] = {}
    outside: dict[Shape, int] = {}
    for stored in stored_tensors(model, _AS_IS, None, "bf16"):
        tensor = stored.tensor
        if not tensor.parameter or part_of(tensor) in what.frozen:
            continue
        shape = (tensor.out_features, tensor.in_features, 0)
        into = inside if stored.place == "layers" and tensor.in_features > 1 else outside
        into[shape] = into.get(shape, 0) + stored.copies * tensor.experts
    if what.unties and model.tie_word_embeddings:
        outside[model.vocab_size, model.hidden_size, 0] = 2
    return Trainable(_counted(inside), _counted(outside), what.base_bytes)


def leads_to_decoder(tensor: Tensor) -> bool:
    """Whether a tensor is of the projector, merger or aligner between a tower and the decoder."""
    return tensor.component == "projector" or tensor.role == "projector" or "merger" in tensor.name


def part_of(tensor: Tensor) -> str:
    """The part of a model that trains or is frozen as a whole."""
    return "projector" if leads_to_decoder(tensor) else tensor.component


_AS_IS = WeightFormat(id="bf16", family="plain", kind="plain", block_bytes=2, source="definition")


def _counted(shapes: dict[Shape, int]) -> tuple[Shape, ...]:
    return tuple((rows, columns, count) for (rows, columns, _), count in shapes.items())


def _adapter_shapes(model: Model, adapters: tuple[Adapted, ...], kind: str, rank: int) -> list[Shape]:
    if kind == "prompt-tuning":
        return [(rank, model.hidden_size, 1)]
    if kind == "prefix-tuning":
        return [(rank, 2 * key_value_width(model), model.num_hidden_layers)]
    shapes: list[Shape] = []
    for a in adapters:
        if kind == "ia3":
            shapes.append((a.in_features if a.role == "down" else a.out_features, 1, a.copies))
            continue
        shapes += [(rank, a.in_features, a.copies), (a.out_features, rank, a.copies)]
        if kind == "dora":
            shapes.append((a.out_features, 1, a.copies))
    return shapes


def adapter_parameters(adapters: tuple[Adapted, ...], kind: str, rank: int) -> int:
    """Parameters of low-rank adapters by their law. [unitless]"""
    law = adapter_laws.dora if kind == "dora" else adapter_laws.lora
    return sum(
        law(in_features=a.in_features, out_features=a.out_features, rank=rank, copies=a.copies) for a in adapters
    )


# ---- optimizer ----

_GALORE_RANK = 128
"""Rank of GaLore's published runs and of the Trainer's default: arXiv:2403.03507, transformers optim_args."""


def state_bytes(optimizer: Optimizer, group: Trainable, settings: Settings) -> int:
    """States of one group of trainable tensors, unsharded. [bytes]"""
    width = state_width(optimizer, group, settings)
    return _states(optimizer, group, width, settings.release.fp32_embedding_states, settings.libraries.eight_bit_block)


def state_width(optimizer: Optimizer, group: Trainable, settings: Settings) -> float:
    """Width of a state: the optimizer's own, that of the master copy, or the parameter's. [bytes]"""
    if optimizer.state_bytes is not None:
        return optimizer.state_bytes
    return 4 if settings.master else group.element_bytes


@per_model()
def _states(optimizer: Optimizer, group: Trainable, width: float, fp32_embeddings: bool, block: int) -> int:
    return _LAWS[optimizer.law](optimizer, group, width, fp32_embeddings, block)


def _elementwise(optimizer: Optimizer, group: Trainable, width: float, *_: object) -> int:
    return optimizer_laws.elementwise_states(
        shapes=group.shapes, rest=group.rest, states=optimizer.states, state_bytes=int(width)
    )


def _blockwise(optimizer: Optimizer, group: Trainable, width: float, fp32_embeddings: bool, block: int) -> int:
    shapes, rest = group.shapes, group.rest
    if fp32_embeddings:
        large = tuple(s for s in rest if s[1] > 1)
        small = tuple(s for s in rest if s[1] == 1)
        shapes, rest = (*shapes, *small), large
    else:
        shapes, rest = (*shapes, *rest), ()
    return optimizer_laws.blockwise_states(
        shapes=shapes,
        rest=rest,
        states=optimizer.states,
        state_bytes=width,
        block_size=block if optimizer.block_size == 256 else optimizer.block_size or 256,
        minimum_elements=optimizer.minimum_elements,
    )


def _factored(optimizer: Optimizer, group: Trainable, width: float, *_: object) -> int:
    return optimizer_laws.factored_states(
        shapes=group.shapes,
        rest=group.rest,
        states=optimizer.states,
        state_bytes=int(width),
        factored_moments=optimizer.arguments.get("factored_moments", 1),
    )


def _none(_: Optimizer, group: Trainable, *__: object) -> int:
    return optimizer_laws.no_states(shapes=group.shapes, rest=group.rest)


def _muon(optimizer: Optimizer, group: Trainable, width: float, *_: object) -> int:
    return optimizer_laws.momentum_and_adamw_states(
        shapes=group.shapes, rest=group.rest, states=optimizer.states, state_bytes=int(width)
    )


def _low_rank(optimizer: Optimizer, group: Trainable, width: float, *_: object) -> int:
    return optimizer_laws.low_rank_states(
        shapes=tuple(s for s in group.shapes if s[1] > 1),
        rest=(*group.rest, *(s for s in group.shapes if s[1] == 1)),
        rank=optimizer.arguments.get("rank", _GALORE_RANK),
        states=max(optimizer.states, 0),
        state_bytes=width,
        projector_bytes=optimizer.arguments.get("projector_bytes", group.element_bytes),
        rest_state_bytes=width,
        factored=optimizer.arguments.get("projected") == "adafactor",
    )


_LAWS: dict[str, Callable[..., int]] = {
    "elementwise_states": _elementwise,
    "blockwise_states": _blockwise,
    "factored_states": _factored,
    "no_states": _none,
    "momentum_and_adamw_states": _muon,
    "low_rank_states": _low_rank,
}
