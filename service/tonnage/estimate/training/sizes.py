"""The model part of every pipeline stage on one rank, before data parallelism cuts it."""

from typing import NamedTuple

from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.settings import Settings
from tonnage.estimate.training.sharding import Sizes
from tonnage.estimate.training.states import (
    Trainable,
    What,
    base_weights,
    expert_cuts,
    state_bytes,
    state_width,
    trainable,
)
from tonnage.estimate.training.usual import layer_groups
from tonnage.estimate.weights import StageWeights
from tonnage.laws import gradients, training_sharding
from tonnage.laws import optimizer as optimizer_laws
from tonnage.spec.facts import Optimizer
from tonnage.spec.model import Model
from tonnage.spec.workload import Workload


class Rank(NamedTuple):
    """One pipeline stage's rank."""

    stage: int
    sizes: Sizes
    counts: tuple[int, ...]
    """Layers of the stage by group of the model. [unitless]"""
    first: bool
    last: bool
    largest_trainable: int
    """Elements of the largest trainable tensor. [elements]"""
    step_elements: int
    """Trainable parameters whose step torch.optim makes over all at once. [unitless]"""
    step_width: int
    """Width of their states. [bytes]"""
    trainable_parameters: int
    """Of the whole model. [unitless]"""
    paged: int
    """States in unified memory. [bytes]"""


class _Model(NamedTuple):
    """What every stage's rank is cut from."""

    workload: Workload
    job: Settings
    stages: tuple[StageWeights, ...]
    groups: tuple[Trainable, ...]

    @property
    def trainable(self) -> int:
        """Trainable parameters as counted. [unitless]"""
        return sum(g.parameters for g in self.groups)


def ranks_of(workload: Workload, job: Settings, models: int = 1) -> tuple[Rank, ...]:
    """One rank per pipeline stage; `models`: as many of them train side by side (policy and value)."""
    what = What(
        whole=job.trains_base,
        adapters=job.adapters,
        method=job.method,
        rank=job.rank,
        saved=job.saved_modules,
        base_bytes=job.weight_bytes if job.trains_base or job.weight_bytes == 4 else 2,
        adapter_bytes=job.adapter_bytes,
        unties=job.release.unties_head,
        frozen=job.frozen_parts if workload.model.vision is not None else frozenset(),
    )
    stages = base_weights(workload, job)
    whole = _Model(workload, job, stages, trainable(workload.model, what))
    ranks = tuple(_rank(whole, stage) for stage in stages)
    if models == 1:
        return ranks
    return tuple(r._replace(sizes=_several(r.sizes, models), step_elements=models * r.step_elements) for r in ranks)


def _several(sizes: Sizes, models: int) -> Sizes:
    return sizes._replace(
        weights=models * sizes.weights,
        adapters=models * sizes.adapters,
        master=models * sizes.master,
        states=models * sizes.states,
        gradients=models * sizes.gradients,
        trainable=models * sizes.trainable,
    )


def _rank(whole: _Model, stage: StageWeights) -> Rank:
    job, model, optimizer = whole.job, whole.workload.model, whole.workload.optimizer
    stated = _stated(job, model)
    total = whole.trainable
    share = _share(whole, stage) * ((stated / total) if stated and total else 1.0)
    share_now = share * _active_share(job, model)
    trained = round(total * share_now)
    states = 0 if optimizer is None else round(_all_states(whole, optimizer) * share_now)
    paged = optimizer is not None and optimizer.paged
    return Rank(
        stage=stage.stage,
        sizes=_sizes(whole, stage, shares=(share, share_now), trained=trained, states=0 if paged else states),
        counts=_counts(model, stage.layers, len(whole.stages)),
        first=stage.stage == 0,
        last=stage.stage == len(whole.stages) - 1,
        largest_trainable=max((g.largest for g in whole.groups), default=0),
        step_elements=trained if _steps_over_all(optimizer) else 0,
        step_width=int(state_width(optimizer, whole.groups[0], job)) if optimizer is not None else 0,
        trainable_parameters=stated or total,
        paged=states if paged else 0,
    )


def _sizes(whole: _Model, stage: StageWeights, *, shares: tuple[float, float], trained: int, states: int) -> Sizes:
    job, model, groups = whole.job, whole.workload.model, whole.groups
    adapters = 0 if job.trains_base else round(sum(g.stored for g in groups) * shares[0])
    layers = max(1, len(stage.layers))
    block = (stage.total - _outside_bytes(stage)) // layers
    block_parameters = _largest_layer(model) // job.tensor_parallel_size
    stated = whole.workload.weight_bytes if whole.workload.card.weights.bytes is not None else None
    return Sizes(
        weights=stage.total if stated is None else stated // len(whole.stages),
        adapters=adapters,
        master=optimizer_laws.master_copy(parameters=trained) if job.master else 0,
        states=states,
        gradients=round(sum(_gradients(job, g) for g in groups) * shares[1]),
        trainable=trained,
        block_gathered=block if job.quantized else _gathered(job, block_parameters),
        block_trainable=block_parameters if job.trains_base else trained // layers,
        vocabulary=model.vocab_size * model.hidden_size // job.tensor_parallel_size,
        hidden_size=model.hidden_size,
        tables=1 if model.tie_word_embeddings else 2,
        routed=_routed(job, stage, trained),
    )


def _stated(job: Settings, model: Model) -> int | None:
    """Trainable parameters as the caller knows them. [unitless]"""
    if job.card.lora is not None and job.card.lora.trainable_parameters is not None:
        return job.card.lora.trainable_parameters
    if model.trust == "count" and job.trains_base and model.trainable_parameters is None:
        return model.parameters_total
    return model.trainable_parameters


def _gradients(job: Settings, group: Trainable) -> int:
    whole = job.trains_base or job.sharding == "distributed_optimizer"
    width = job.gradient_bytes if whole else group.element_bytes
    return gradients.accumulated(parameters=group.parameters, element_bytes=width)


def _gathered(job: Settings, parameters: int) -> int:
    return training_sharding.gathered_unit(
        parameters=parameters, element_bytes=min(job.compute_bytes, job.weight_bytes)
    )


def _all_states(whole: _Model, optimizer: Optimizer) -> int:
    return sum(state_bytes(optimizer, group, whole.job) for group in whole.groups)


def _steps_over_all(optimizer: Optimizer | None) -> bool:
    """torch.optim's own AdamW, whose default makes one more copy; other optimizers step tensor by tensor or in place."""
    return optimizer is not None and optimizer.id == "adamw"


def _share(whole: _Model, stage: StageWeights) -> float:
    """The stage's part of what trains. [fraction]"""
    job, model = whole.job, whole.workload.model
    if len(whole.stages) == 1 and job.tensor_parallel_size == job.expert_parallel_size == 1:
        return 1.0
    if job.trains_base:
        return stage.parameters / max(1, model.parameters_total)
    layers = len(stage.layers) / max(1, model.num_hidden_layers)
    routed = _routed_part(job)
    cuts = job.expert_parallel_size * (expert_cuts(job) or 1)
    return layers * ((1 - routed) / job.tensor_parallel_size + routed / cuts)


def _routed_part(job: Settings) -> float:
    """Part of the adapters' parameters that belongs to experts. [fraction]"""
    sizes = [((a.in_features + a.out_features) * a.copies, a.role.startswith("expert")) for a in job.adapters]
    return sum(size for size, routed in sizes if routed) / max(1, sum(size for size, _ in sizes))


def _routed(job: Settings, stage: StageWeights, trained: int) -> int:
    """Those of the rank's trainable parameters that lie in experts. [unitless]"""
    if job.trains_base:
        return min(trained, stage.parameters_by_component.get("routed_experts", 0))
    part = _routed_part(job)
    if not part:
        return 0
    inside, outside = part / (job.expert_parallel_size * (expert_cuts(job) or 1)), (1 - part) / job.tensor_parallel_size
    return round(trained * inside / (inside + outside))


LISA_LAYERS = 2
"""Layers LISA trains at a time, beside embedding and head: arXiv:2403.17919 section 4."""


def _active_share(job: Settings, model: Model) -> float:
    """Part of the trainable parameters with gradients and states at a time: LISA's layers, BAdam's block."""
    if job.method not in ("lisa", "badam"):
        return 1.0
    layers = max(1, model.num_hidden_layers)
    if job.method == "badam":
        return 1 / layers
    inside = sum(g.layer.elements * g.count for g in model.layers)
    outside = model.parameters_total - inside
    return (outside + inside * min(1.0, LISA_LAYERS / layers)) / model.parameters_total


def _outside_bytes(stage: StageWeights) -> int:
    names = ("embedding", "lm_head", "vision", "projector", "audio", "mtp")
    return sum(stage.bytes_by_component.get(name, 0) for name in names)  # type: ignore[call-overload]  # Component literals


@per_model()
def _largest_layer(model: Model) -> int:
    return max((g.layer.elements for g in model.layers), default=0)


@per_model()
def _counts(model: Model, layers: tuple[int, ...], stages: int) -> tuple[int, ...]:
    groups = layer_groups(model)
    if stages == 1:
        return tuple(g.count for g in groups)
    here = set(layers)
    return tuple(sum(1 for index in g.indices if index in here) for g in groups)
