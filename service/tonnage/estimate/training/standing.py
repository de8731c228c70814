"""
What of a training job neither the length nor the size of its micro-batch changes, and what these change by thresholds only.

Both are remembered: most cards about a model differ in the micro-batch alone.
"""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.training.bands import Band, allocated_band, cap_class
from tonnage.estimate.training.counters import ratio
from tonnage.estimate.training.course import Course, course_of
from tonnage.estimate.training.findings import findings_of, open_facts
from tonnage.estimate.training.fused import fused_profile
from tonnage.estimate.training.items import item
from tonnage.estimate.training.objectives import Objective, objective_of
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.profile import StepProfile, offloaded, step_profile
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.recipes import closed_form, masks_windows, recipe_of
from tonnage.estimate.training.settings import FSDP, Settings, settings
from tonnage.estimate.training.sharding import Held, held, paged_share
from tonnage.estimate.training.sizes import Rank, ranks_of
from tonnage.estimate.training.states import causal_masks, loaded_format
from tonnage.estimate.training.usual import encodes_only, scoring_model, usual_model
from tonnage.kept import Kept
from tonnage.laws.pool_regimes import Ratio
from tonnage.laws.training_sharding import in_flight, interleaved_in_flight
from tonnage.spec.card import Training
from tonnage.spec.facts import Gpu, WeightFormat
from tonnage.spec.framework import FrameworkRelease
from tonnage.spec.model import Model
from tonnage.spec.report import Finding, MemoryItem
from tonnage.spec.workload import Workload
from tonnage.units import ceil_div

KEPT = 2048
"""Regimes kept in process; the oldest goes first. [unitless]"""


class Share(NamedTuple):
    """One pipeline stage's rank, whatever the micro-batch."""

    rank: Rank
    holds: Held
    ranks: tuple[int, ...]
    resident: tuple[MemoryItem, ...]
    """Weights, adapters, master weights, optimizer states, permanent buffers, reference models."""
    resident_bytes: int
    loading: tuple[MemoryItem, ...]
    """Weights as they arrive; more where the whole model passes through the GPU before it is cut."""
    in_flight: int
    """Micro-batches whose activations are held. [unitless]"""
    paged: int
    """States in unified memory. [bytes]"""


class Standing(msgspec.Struct, frozen=True, eq=False):
    """A job without its micro-batch."""

    workload: Workload
    settings: Settings
    """With some micro-batch."""
    objective: Objective
    form: WeightFormat
    shares: tuple[Share, ...]
    findings: tuple[Finding, ...]
    unknowns: tuple[str, ...]

    def at(self, card: Training) -> Settings:
        """The settings with a card's own micro-batch."""
        return replace(
            self.settings,
            card=card,
            micro_batch_size=card.micro_batch_size or self.settings.micro_batch_size,
            sequence_length=card.sequence_length or self.settings.sequence_length,
        )


class Regime(NamedTuple):
    """What the micro-batch decides by thresholds only."""

    recipe: Recipe
    band: Band
    ratios: tuple[Ratio, Ratio, Ratio]
    """How the allocator's pool compares with its tensors in forward, backward and optimizer step."""
    courses: tuple[Course, ...]
    """By stage the points of its step that may be the highest."""


class Asked:
    """A workload by what the job depends on but its micro-batch: its card by content, facts by identity."""

    __slots__ = ("hash", "key", "workload")

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        training = workload.training
        if training is not None:
            # a stated length or size becomes 1: whether it is stated decides what is assumed, its value does not
            one_batch = training.micro_batch_size and 1
            training = replace(training, micro_batch_size=one_batch, sequence_length=training.sequence_length and 1)
        self.key = (
            msgspec.msgpack.encode(training),
            id(workload.model),
            id(workload.weight_format),
            id(workload.profile),
            id(workload.optimizer),
            workload.placement,
            workload.weight_bytes,
            workload.card.weights.bytes,
            workload.profile_certain,
            _decisive(workload.profile, workload.gpu),
        )
        self.hash = hash(self.key)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and self.key == other.key


def _decisive(release: object, gpu: Gpu | None) -> tuple[bool, int | None]:
    """Of the GPU what changes a framework's code: that it lacks bf16, its memory where the loss is cut by what is free."""
    if gpu is None or not isinstance(release, FrameworkRelease):
        return False, None
    by_memory = release.losses.fused_linear == "fused_by_free_memory"
    return release.without_bf16 is not None and not gpu.computes_bf16, gpu.memory_usable_bytes if by_memory else None


def standing(workload: Workload) -> Standing:
    """
    The job of a workload without its micro-batch.

    Args:
        workload: Resolved card with a training part.

    Returns:
        The same object for cards that differ in the micro-batch only.

    Raises:
        SizingError: The card contradicts itself, or no law covers it.
    """
    return _standing(Asked(workload))


@remembered(1024)
def _standing(asked: Asked) -> Standing:
    workload = asked.workload
    if not workload.model.known:
        placed = workload.placement
        model = usual_model(workload.model, placed.tensor_parallel_size, placed.pipeline_parallel_size)
        workload = replace(workload, model=model)
    job = settings(workload)
    objective = objective_of(job)
    if encodes_only(workload.model) and job.objective == "sft":
        objective = objective._replace(scores=True, loss=(0, 0, 0, 2))
    if objective.scores:
        workload = replace(workload, model=scoring_model(workload.model))
    return Standing(
        workload=workload,
        settings=job,
        objective=objective,
        form=loaded_format(workload, job)[0],
        shares=tuple(
            _share(workload, job, objective, rank) for rank in ranks_of(workload, job, objective.trained_models)
        ),
        findings=findings_of(workload, objective),
        unknowns=objective.unknowns + open_facts(job),
    )


_regimes: Kept[tuple[Standing, bool, bool, int], Regime] = Kept(KEPT)


def regime(base: Standing, job: Settings) -> Regime:
    """
    What a micro-batch decides by thresholds only.

    Args:
        base: The job without its micro-batch.
        job: Its settings with it.

    Returns:
        The step's profile, the band, and how the allocator behaves.
    """
    key = (base, job.micro_batch_size == 1, masks_windows(job, base.workload.model), cap_class(job))
    found = _regimes.get(key)
    if found is None:
        found = _regimes.keep(key, _regime(base, job))
    return found


def _regime(base: Standing, job: Settings) -> Regime:
    model, checkpointed = base.workload.model, job.gradient_checkpointing != "none"
    moving = ratio(job, checkpointed=checkpointed, step_wins=False)
    routed = any(g.layer.moe is not None for g in model.layers)
    recipe = recipe_of(job, model, base.form, base.objective)
    profile = profile_of(model, recipe)
    return Regime(
        recipe=recipe,
        band=allocated_band(job, known=model.trust != "count", generic=model.trust == "generic", routed=routed),
        ratios=(moving, moving, ratio(job, checkpointed=checkpointed, step_wins=True)),
        courses=tuple([course_of(profile, share.rank, share.holds) for share in base.shares]),
    )


@per_model()
def profile_of(model: Model, recipe: Recipe) -> StepProfile:
    """The model's step: on the tape, or by closed forms where kernels are fused."""
    profile = fused_profile(model, recipe) if closed_form(recipe) else step_profile(model, recipe)
    return offloaded(profile, recipe.offload_stash) if recipe.offload_stash else profile


def _share(workload: Workload, job: Settings, objective: Objective, rank: Rank) -> Share:
    holds = held(job, rank.sizes)
    resident = _resident(workload, job, objective, holds)
    ranks = job.tensor_parallel_size * job.ranks * job.context_parallel_size
    return Share(
        rank=rank,
        holds=holds,
        ranks=tuple(range(rank.stage * ranks, (rank.stage + 1) * ranks)),
        resident=resident,
        resident_bytes=sum(i.bytes.expected for i in resident),
        loading=_loading(holds, resident, upcast=job.release.tables_upcast_at_load),
        in_flight=_in_flight(job, rank),
        paged=paged_share(job, rank.paged),
    )


def _in_flight(job: Settings, rank: Rank) -> int:
    stages = job.pipeline_parallel_size
    if stages == 1:
        return 1
    steps, chunks = max(stages, job.gradient_accumulation_steps), job.card.virtual_pipeline_model_parallel_size or 1
    if chunks == 1:
        return in_flight(stage=rank.stage, stages=stages, micro_batches=steps)
    return ceil_div(interleaved_in_flight(stage=rank.stage, stages=stages, chunks=chunks, micro_batches=steps), chunks)


def _resident(workload: Workload, job: Settings, objective: Objective, holds: Held) -> tuple[MemoryItem, ...]:
    model, form = workload.model, workload.weight_format
    detail = f"{form.id}, {job.sharding}"
    stored = (
        "laws.training_sharding.shard" if job.sharding == "zero3" or job.sharding in FSDP else "laws.weights.blocks"
    )
    found = [item("weights", holds.weights, stored, model.source, detail=detail, basis="exact")]
    if masks := causal_masks(model):
        found.append(item("buffers", masks, "laws.activations.causal_mask_buffer", "transformers gpt_bigcode"))
    if holds.adapters:
        found.append(item("adapters", holds.adapters, "laws.adapters.tensors", "arXiv:2106.09685", basis="exact"))
    if holds.master:
        found.append(item("master_weights", holds.master, "laws.optimizer.master_copy", "fp32 copies"))
    optimizer = workload.optimizer
    if holds.states and optimizer is not None:
        law = f"laws.optimizer.{optimizer.law}"
        found.append(item("optimizer_states", holds.states, law, optimizer.source, detail=optimizer.id, basis="exact"))
    if holds.permanent:
        law = "laws.training_sharding.zero3_reduce_bucket"
        found.append(item("gradient_buckets", holds.permanent, law, "DeepSpeed stage3"))
    if objective.frozen_models:
        amount = objective.frozen_models * holds.weights // objective.trained_models
        found.append(item("reference_model", amount, stored, "huggingface/trl@f2cd57710"))
    return tuple(found)


_SUMMONED = ("unsharded_parameters", "laws.training_sharding.summoned", "torch summon_full_params")
_PASSING = ("workspace", "laws.training_sharding.upcast_tables", "axolotl loaders/model.py")


def _loading(holds: Held, resident: tuple[MemoryItem, ...], *, upcast: bool) -> tuple[MemoryItem, ...]:
    items = [i for i in resident if i.component in ("weights", "adapters", "reference_model")]
    extra = holds.load - holds.weights
    if extra > 0:
        band = (extra // 8, extra // 5)
        component, law, source = _PASSING if upcast else _SUMMONED
        items.append(item(component, extra, law, source, detail="load", band=band))
    return tuple(items)
