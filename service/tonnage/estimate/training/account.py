"""A training job as an account: loads per stage, phases, items, the host beside it."""

from typing import NamedTuple

from msgspec.structs import replace

from tonnage.estimate.training import counters
from tonnage.estimate.training.bands import Band, allocated_band, may_fall_short
from tonnage.estimate.training.fused import fused_profile
from tonnage.estimate.training.host import host_of
from tonnage.estimate.training.items import Fixed, Moment, item, moment_of, phase_items
from tonnage.estimate.training.losses import path_name, scored_tokens
from tonnage.estimate.training.objectives import Objective, objective_of
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.profile import StepProfile, offloaded, step_profile
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.recipes import closed_form, recipe_of
from tonnage.estimate.training.settings import FSDP, Settings, settings
from tonnage.estimate.training.sharding import Held, held
from tonnage.estimate.training.sizes import Rank, ranks_of
from tonnage.estimate.training.states import loaded_format
from tonnage.estimate.training.step import Batch, candidates
from tonnage.estimate.training.usual import usual_model
from tonnage.laws import optimizer as optimizer_laws
from tonnage.laws.activations import stale_inputs
from tonnage.laws.loss import causal_upcast
from tonnage.laws.reserved import unavoidable
from tonnage.laws.training_sharding import in_flight
from tonnage.spec.model import Model
from tonnage.spec.report import Account, Amount, Finding, GpuLoad, MemoryItem, PhaseItems
from tonnage.spec.workload import Workload

_UNKNOWNS = (
    "data loading, metrics and evaluation with larger batches than training",
    "temporaries inside kernels and libraries",
)
_INVALIDATED_BY = (
    "other library versions, another attention kernel or loss",
    "longer sequences than stated, another mix of lengths",
)


def account(workload: Workload) -> Account:
    """
    What a training framework makes of a workload.

    Args:
        workload: Resolved card with a training part.

    Returns:
        One load per pipeline stage, with the items of load, forward, backward and optimizer step.

    Raises:
        SizingError: The card contradicts itself, or no law covers it.
    """
    if not workload.model.known:
        placed = workload.placement
        model = usual_model(workload.model, placed.tensor_parallel_size, placed.pipeline_parallel_size)
        workload = replace(workload, model=model)
    job = settings(workload)
    model = workload.model
    objective = objective_of(job)
    recipe, ranks = recipe_of(job, model, loaded_format(workload, job)[0], objective), ranks_of(workload, job)
    profile = profile_of(model, recipe)
    whole = _Job(workload, job, profile, objective)
    loads = tuple(_load(whole, rank) for rank in ranks)
    first = ranks[0].sizes
    disk = sum(r.sizes.weights for r in ranks) * job.tensor_parallel_size
    return Account(
        loads=loads,
        host=host_of(
            job,
            weights=first.weights + first.adapters,
            master=first.master,
            states=first.states,
            trainable=first.trainable,
            kept=2 * model.hidden_size * model.num_hidden_layers * job.tokens,
            disk=disk,
        ),
        trainable_parameters=ranks[0].trainable_parameters,
        assumptions=job.assumptions,
        unknowns=_UNKNOWNS + objective.unknowns,
        invalidated_by=_INVALIDATED_BY,
        findings=_findings(workload, objective),
    )


@per_model()
def profile_of(model: Model, recipe: Recipe) -> StepProfile:
    """The model's step: on the tape, or by closed forms where kernels are fused."""
    profile = fused_profile(model, recipe) if closed_form(recipe) else step_profile(model, recipe)
    return offloaded(profile, recipe.offload_stash) if recipe.offload_stash else profile


class _Job(NamedTuple):
    """What every load needs."""

    workload: Workload
    settings: Settings
    profile: StepProfile
    objective: Objective


def _load(whole: _Job, rank: Rank) -> GpuLoad:
    job = whole.settings
    holds = held(job, rank.sizes)
    batch = _batch(whole, rank)
    moments = _moments(whole, rank, holds, batch)
    fixed = _fixed(whole, rank, holds)
    band = _band(whole)
    phases = [_phase(whole, moment, fixed, band, moments[-1]) for moment in moments]
    ranks = job.tensor_parallel_size * job.ranks * job.context_parallel_size
    first = rank.stage * ranks
    return GpuLoad(
        ranks=tuple(range(first, first + ranks)),
        stage=rank.stage,
        phases=(PhaseItems("load", tuple(_loading(holds, fixed))), *phases),
        needed=_needed(whole, moments, fixed, band, holds.load),
    )


def _band(whole: _Job) -> Band:
    model = whole.workload.model
    routed = any(g.layer.moe is not None for g in model.layers)
    return allocated_band(whole.settings, known=model.trust != "count", generic=model.trust == "generic", routed=routed)


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


def _moments(whole: _Job, rank: Rank, holds: Held, batch: Batch) -> list[Moment]:
    found = candidates(whole.profile, batch, holds, rank)
    best: dict[str, Moment] = {}
    stale = _stale(whole, batch)
    for candidate in found:
        moment = moment_of(candidate, batch, holds, stale)
        known = best.get(candidate.phase)
        if known is None or moment.total > known.total:
            best[candidate.phase] = moment
    return [best["forward"], best["backward"], _step(whole, rank, holds)]


def _stale(whole: _Job, batch: Batch) -> int:
    """Inputs and logits of the previous micro-batch. [bytes]"""
    job, model = whole.settings, whole.workload.model
    kept = job.quantized and job.libraries.keeps_four_bit_inputs
    if not (kept and job.release.stale_fraction and model.layers):
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


def _needed(whole: _Job, moments: list[Moment], fixed: Fixed, band: Band, loading: int) -> Amount:
    """
    What the card must hold: tensors, context, and the fragments that remain when the allocator has given back the rest.

    Where the length is only a cap, the low end is that of a batch that reaches 70 % of it; where the loss is not stated,
    the high end is that of one over all logits in fp32.
    """
    worst = max(moments, key=lambda m: m.total)
    kept, moving = fixed.resident_bytes + worst.gradients, worst.total - worst.gradients
    allocated = max(kept + moving, loading)
    low = kept + moving * 7 // 10 if may_fall_short(whole.settings) else allocated
    outside = [item.bytes for item in fixed.outside]
    open_loss = 0 if whole.settings.card.cross_entropy is not None else _open_loss(whole, worst)
    return Amount(
        int(low * (1 - band.below)) + sum(a.low for a in outside),
        allocated + unavoidable(transient=moving, percent=4) + sum(a.expected for a in outside),
        int(allocated * (1 + band.above))
        + unavoidable(transient=moving, percent=12)
        + sum(a.high for a in outside)
        + open_loss,
    )


def _open_loss(whole: _Job, worst: Moment) -> int:
    """What a plain loss in fp32 would take beyond the one assumed. [bytes]"""
    job, model = whole.settings, whole.workload.model
    path = causal_upcast(logit_bytes=job.compute_bytes)
    tokens = job.tokens * whole.objective.sequences // job.tensor_parallel_size
    return max(0, int(path[2] * model.vocab_size * tokens) - worst.total + worst.gradients)


def _fixed(whole: _Job, rank: Rank, holds: Held) -> Fixed:
    job, model, form = whole.settings, whole.workload.model, whole.workload.weight_format
    resident = [
        item("weights", holds.weights, "laws.weights", model.source, detail=f"{form.id}, {job.sharding}", basis="exact")
    ]
    if holds.adapters:
        resident.append(item("adapters", holds.adapters, "laws.adapters.lora", "arXiv:2106.09685", basis="exact"))
    if holds.master:
        resident.append(item("master_weights", holds.master, "laws.training_sharding.shard", "fp32 copies"))
    if holds.states:
        optimizer = whole.workload.optimizer
        name, source = (optimizer.id, optimizer.source) if optimizer is not None else ("", "")
        law = f"laws.optimizer.{optimizer.law}" if optimizer is not None else ""
        resident.append(item("optimizer_states", holds.states, law, source, detail=name, basis="exact"))
    if holds.permanent:
        resident.append(
            item("gradient_buckets", holds.permanent, "laws.training_sharding.zero3_reduce_bucket", "DeepSpeed stage3")
        )
    if whole.objective.frozen_models:
        amount = whole.objective.frozen_models * holds.weights
        resident.append(item("reference_model", amount, "laws.weights", "huggingface/trl@f2cd57710"))
    outside = _outside(whole, rank)
    return Fixed(tuple(resident), sum(i.bytes.expected for i in resident), outside)


def _outside(whole: _Job, rank: Rank) -> tuple[MemoryItem, ...]:
    job, gpu = whole.settings, whole.workload.gpu
    context = counters.context(gpu, eager=not job.libraries.at_least("torch", "2.1"))
    items = [
        item(
            "device_context", context, "laws.runtime.device_context", "measured: laws.runtime", basis="measured",
            counter="device", band=(context // 4, context // 2),
        )
    ]  # fmt: skip
    if job.ranks * job.tensor_parallel_size * job.context_parallel_size * job.pipeline_parallel_size > 1:
        items.append(
            item(
                "communication", counters.NCCL, "estimate.training.counters.NCCL", "NVIDIA/nccl issues 964, 864",
                basis="calibrated", counter="device", band=(counters.NCCL // 2, counters.NCCL),
            )
        )  # fmt: skip
    if rank.paged:
        items.append(
            item(
                "optimizer_states", 0, "laws.optimizer.elementwise_states", "bitsandbytes optimizer.py (managed memory)",
                detail="paged: moves to the host under pressure", basis="assumed", counter="device",
                band=(0, rank.paged),
            )
        )  # fmt: skip
    return tuple(items)


def _phase(whole: _Job, moment: Moment, fixed: Fixed, band: Band, last: Moment) -> PhaseItems:
    items = phase_items(moment, fixed, band, quantized=whole.settings.quantized)
    items.append(_fragmentation(whole, moment, fixed, last))
    return PhaseItems(moment.phase, (*items, *fixed.outside))  # type: ignore[arg-type]  # one of PhaseName


def _fragmentation(whole: _Job, moment: Moment, fixed: Fixed, last: Moment) -> MemoryItem:
    job, gpu, allocated = whole.settings, whole.workload.gpu, fixed.resident_bytes + moment.total
    checkpointed = job.gradient_checkpointing != "none"
    regime = counters.ratio(job, checkpointed=checkpointed, step_wins=moment.phase == "optimizer_step")
    usable = None
    if gpu is not None:
        usable = gpu.memory_usable_bytes - sum(i.bytes.expected for i in fixed.outside)
    sharded = job.sharding in FSDP and not job.in_backward
    idle = max(0, last.gradients - moment.gradients) if sharded else 0
    low, expected, high = counters.fragmentation(
        regime,
        allocated=allocated,
        resident=fixed.resident_bytes + moment.gradients,
        idle=idle,
        usable=usable,
    )
    return item(
        "fragmentation", expected, "laws.reserved.transient_share", "measured: laws.reserved", detail=regime.why,
        basis="calibrated", counter="reserved", band=(expected - low, high - expected),
    )  # fmt: skip


def _loading(holds: Held, fixed: Fixed) -> list[MemoryItem]:
    """Weights as they arrive; more where the whole model passes through the GPU before it is cut."""
    items = [i for i in fixed.resident if i.component in ("weights", "adapters", "reference_model")]
    extra = holds.load - holds.weights
    if extra > 0:
        items.append(
            item(
                "unsharded_parameters",
                extra,
                "laws.training_sharding.summoned",
                "torch summon_full_params",
                detail="load",
                band=(extra // 8, extra // 5),
            )
        )
    return [*items, *fixed.outside]


def _findings(workload: Workload, objective: Objective) -> tuple[Finding, ...]:
    found = []
    if objective.generates:
        found.append(
            Finding(
                status="needs_confirmation",
                reason="generation beside training is not counted: state what the engine takes, as reserve",
                field="/training/objective",
            )
        )
    training = workload.training
    if training is not None and training.framework_version is None and training.objective not in ("sft", "pretrain"):
        found.append(
            Finding(
                status="needs_confirmation",
                reason="the loss of this objective differs by version, and no version is stated",
                field="/training/framework_version",
            )
        )
    if workload.profile_certain:
        return tuple(found)
    return (
        *found,
        Finding(
            status="needs_confirmation",
            reason="this version of the framework is newer or older than any whose defaults were read",
            field="/training/framework_version",
        ),
    )
