"""A training job before any GPU is named: what each stage's rank holds and when, as items. /fit asks it of many cards."""

from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tonnage.estimate.training.bands import Band, allocated_band, may_fall_short
from tonnage.estimate.training.counters import Ratio, ratio
from tonnage.estimate.training.findings import findings_of
from tonnage.estimate.training.fused import fused_profile
from tonnage.estimate.training.host import host_of
from tonnage.estimate.training.items import item, phase_items
from tonnage.estimate.training.losses import path_name, scored_tokens
from tonnage.estimate.training.objectives import Objective, objective_of
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.profile import StepProfile, offloaded, step_profile
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.recipes import closed_form, recipe_of
from tonnage.estimate.training.settings import Settings, settings
from tonnage.estimate.training.sharding import Held, held
from tonnage.estimate.training.sizes import Rank, ranks_of
from tonnage.estimate.training.states import causal_masks, loaded_format
from tonnage.estimate.training.step import Batch, Moment, highest
from tonnage.estimate.training.usual import usual_model
from tonnage.laws import optimizer as optimizer_laws
from tonnage.laws.activations import stale_inputs
from tonnage.laws.loss import causal_upcast
from tonnage.laws.training_sharding import in_flight
from tonnage.spec.model import Model
from tonnage.spec.report import Finding, Host, MemoryItem
from tonnage.spec.workload import Workload


class Stage(NamedTuple):
    """One pipeline stage's rank, whatever the card."""

    stage: int
    ranks: tuple[int, ...]
    resident: tuple[MemoryItem, ...]
    resident_bytes: int
    loading: tuple[MemoryItem, ...]
    """Weights as they arrive; more where the whole model passes through the GPU before it is cut."""
    loading_bytes: int
    moments: tuple[Moment, ...]
    """Highest points of forward, backward and optimizer step."""
    phases: tuple[tuple[MemoryItem, ...], ...]
    """Items alive at each, resident ones first."""
    ratios: tuple[Ratio, ...]
    """How the allocator's pool compares with its tensors, at each."""
    open_loss: int
    """What a plain loss in fp32 would take beyond the one assumed, where none is stated. [bytes]"""
    paged: int
    """States in unified memory. [bytes]"""


class Solved(msgspec.Struct, frozen=True, eq=False):
    """A job without its card."""

    settings: Settings
    objective: Objective
    band: Band
    stages: tuple[Stage, ...]
    host: Host
    trainable_parameters: int
    findings: tuple[Finding, ...]


class _Asked:
    """A workload by what the job depends on: its training card by content, facts by identity, no GPU."""

    __slots__ = ("hash", "key", "workload")

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.key = (
            msgspec.msgpack.encode(workload.training),
            id(workload.model),
            id(workload.weight_format),
            id(workload.profile),
            id(workload.optimizer),
            workload.placement,
            workload.weight_bytes,
            workload.card.weights.bytes,
            workload.profile_certain,
        )
        self.hash = hash((self.key[0], self.key[1], self.key[2]))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self.key == other.key


def solved(workload: Workload) -> Solved:
    """
    The job of a workload; remembered by its content, so that the next card is only weighed against it.

    Args:
        workload: Resolved card with a training part.

    Returns:
        What does not depend on the GPU.

    Raises:
        SizingError: The card contradicts itself, or no law covers it.
    """
    return _solved(_Asked(workload))


@lru_cache(maxsize=1024)
def _solved(asked: _Asked) -> Solved:
    workload = asked.workload
    if not workload.model.known:
        placed = workload.placement
        model = usual_model(workload.model, placed.tensor_parallel_size, placed.pipeline_parallel_size)
        workload = replace(workload, model=model)
    job = settings(workload)
    model = workload.model
    objective = objective_of(job)
    recipe, ranks = recipe_of(job, model, loaded_format(workload, job)[0], objective), ranks_of(workload, job)
    whole = _Job(workload, job, profile_of(model, recipe), objective, _band(workload, job))
    first = ranks[0].sizes
    return Solved(
        settings=job,
        objective=objective,
        band=whole.band,
        stages=tuple(_stage(whole, rank) for rank in ranks),
        host=host_of(
            job,
            weights=first.weights + first.adapters,
            master=first.master,
            states=first.states,
            trainable=first.trainable,
            kept=2 * model.hidden_size * model.num_hidden_layers * job.tokens,
            disk=sum(r.sizes.weights for r in ranks) * job.tensor_parallel_size,
        ),
        trainable_parameters=ranks[0].trainable_parameters,
        findings=findings_of(workload, objective),
    )


class _Job(NamedTuple):
    """What every stage needs."""

    workload: Workload
    settings: Settings
    profile: StepProfile
    objective: Objective
    band: Band


@per_model()
def profile_of(model: Model, recipe: Recipe) -> StepProfile:
    """The model's step: on the tape, or by closed forms where kernels are fused."""
    profile = fused_profile(model, recipe) if closed_form(recipe) else step_profile(model, recipe)
    return offloaded(profile, recipe.offload_stash) if recipe.offload_stash else profile


def _band(workload: Workload, job: Settings) -> Band:
    model = workload.model
    routed = any(g.layer.moe is not None for g in model.layers)
    return allocated_band(job, known=model.trust != "count", generic=model.trust == "generic", routed=routed)


def _stage(whole: _Job, rank: Rank) -> Stage:
    job = whole.settings
    holds = held(job, rank.sizes)
    batch = _batch(whole, rank)
    moments = _moments(whole, rank, holds, batch)
    resident = _resident(whole, holds)
    resident_bytes = sum(i.bytes.expected for i in resident)
    ranks = job.tensor_parallel_size * job.ranks * job.context_parallel_size
    worst = max(moments, key=_total)
    return Stage(
        stage=rank.stage,
        ranks=tuple(range(rank.stage * ranks, (rank.stage + 1) * ranks)),
        resident=resident,
        resident_bytes=resident_bytes,
        loading=_loading(holds, resident),
        loading_bytes=holds.load,
        moments=moments,
        phases=tuple(
            phase_items(moment, resident, resident_bytes, whole.band, quantized=job.quantized) for moment in moments
        ),
        ratios=tuple(
            ratio(job, checkpointed=job.gradient_checkpointing != "none", step_wins=m.phase == "optimizer_step")
            for m in moments
        ),
        open_loss=0 if job.card.cross_entropy is not None else _open_loss(whole, worst),
        paged=rank.paged,
    )


def _total(moment: Moment) -> int:
    return moment.total


def _batch(whole: _Job, rank: Rank) -> Batch:
    job, objective = whole.settings, whole.objective
    tokens = job.tokens * objective.sequences
    length = -(-job.sequence_length // job.context_parallel_size)
    padded = -(-length // 128) * 128 * job.micro_batch_size * objective.sequences
    scored = scored_tokens(path_name(job), whole.workload.model, tokens)
    return Batch(tokens, length, padded, scored, _in_flight(job, rank))


def _in_flight(job: Settings, rank: Rank) -> int:
    stages = job.pipeline_parallel_size
    if stages == 1:
        return 1
    return in_flight(stage=rank.stage, stages=stages, micro_batches=max(stages, job.gradient_accumulation_steps))


def _moments(whole: _Job, rank: Rank, holds: Held, batch: Batch) -> tuple[Moment, ...]:
    forward, backward = highest(whole.profile, batch, holds, rank)
    stale = _stale(whole, batch)
    if stale:
        forward = forward._replace(activations=forward.activations + stale)
        backward = backward._replace(activations=backward.activations + stale)
    return forward, backward, _step(whole, rank, holds)


def _stale(whole: _Job, batch: Batch) -> int:
    """Inputs and logits of the previous micro-batch. [bytes]"""
    job, model = whole.settings, whole.workload.model
    if not (job.quantized and job.libraries.keeps_four_bit_inputs and job.release.stale_fraction):
        return 0
    layer = model.layers[0].layer
    attention, mlp = layer.attention, layer.mlp
    return stale_inputs(
        hidden_size=model.hidden_size,
        query_width=attention.num_attention_heads * attention.head_dim if attention is not None else 0,
        intermediate_size=mlp.intermediate_size if mlp is not None else 0,
        layers=model.num_hidden_layers,
        vocab_size=model.vocab_size,
        tokens=batch.tokens,
        percent=round(100 * job.release.stale_fraction),
    )


def _step(whole: _Job, rank: Rank, holds: Held) -> Moment:
    """The optimizer step: all gradients, and what the implementation copies."""
    job = whole.settings
    temporary = holds.step
    if not (job.offload_optimizer or job.in_backward) and rank.step_elements:
        shards = job.shards if job.sharding in ("fsdp", "hsdp", "fsdp_grad_op") else 1
        if job.implementation == "foreach" and job.sharding not in ("zero1", "zero2", "zero3"):
            temporary += optimizer_laws.foreach_step(
                parameters=rank.step_elements // shards, element_bytes=rank.step_width
            )
        elif job.implementation == "for_loop":
            temporary += optimizer_laws.for_loop_step(
                largest_tensor=rank.largest_trainable // shards, element_bytes=rank.step_width
            )
    return Moment("optimizer_step", "optimizer step", 0, 0, 0, holds.gradients_after, 0, 0, temporary)


def _open_loss(whole: _Job, worst: Moment) -> int:
    job, model = whole.settings, whole.workload.model
    path = causal_upcast(logit_bytes=job.compute_bytes)
    tokens = job.tokens * whole.objective.sequences // job.tensor_parallel_size
    return max(0, int(path[2] * model.vocab_size * tokens) - worst.total + worst.gradients)


def moving_least(solved_job: Solved, moving: int) -> int:
    """What comes and goes if the length is only a cap: a batch that reaches 70 % of it. [bytes]"""
    return moving * 7 // 10 if may_fall_short(solved_job.settings) else moving


def _resident(whole: _Job, holds: Held) -> tuple[MemoryItem, ...]:
    workload = whole.workload
    model, form = workload.model, workload.weight_format
    detail = f"{form.id}, {whole.settings.sharding}"
    found = [item("weights", holds.weights, "laws.weights", model.source, detail=detail, basis="exact")]
    if masks := causal_masks(model):
        found.append(item("buffers", masks, "estimate.training.states.causal_masks", "transformers gpt_bigcode"))
    if holds.adapters:
        found.append(item("adapters", holds.adapters, "laws.adapters.lora", "arXiv:2106.09685", basis="exact"))
    if holds.master:
        found.append(item("master_weights", holds.master, "laws.training_sharding.shard", "fp32 copies"))
    optimizer = workload.optimizer
    if holds.states and optimizer is not None:
        law = f"laws.optimizer.{optimizer.law}"
        found.append(item("optimizer_states", holds.states, law, optimizer.source, detail=optimizer.id, basis="exact"))
    if holds.permanent:
        law = "laws.training_sharding.zero3_reduce_bucket"
        found.append(item("gradient_buckets", holds.permanent, law, "DeepSpeed stage3"))
    if whole.objective.frozen_models:
        amount = whole.objective.frozen_models * holds.weights
        found.append(item("reference_model", amount, "laws.weights", "huggingface/trl@f2cd57710"))
    return tuple(found)


def _loading(holds: Held, resident: tuple[MemoryItem, ...]) -> tuple[MemoryItem, ...]:
    items = [i for i in resident if i.component in ("weights", "adapters", "reference_model")]
    extra = holds.load - holds.weights
    if extra > 0:
        law = "laws.training_sharding.summoned"
        band = (extra // 8, extra // 5)
        items.append(item("unsharded_parameters", extra, law, "torch summon_full_params", detail="load", band=band))
    return tuple(items)
