"""A training job before any GPU is named: what each stage's rank holds and when. /fit asks it of many cards."""

from typing import NamedTuple

import msgspec

from tonnage.estimate.training.adapters import key_value_width
from tonnage.estimate.training.bands import Band, Reach, may_fall_short, reach_of
from tonnage.estimate.training.course import Course
from tonnage.estimate.training.evaluation import open_evaluation
from tonnage.estimate.training.host import OnHost, host_of
from tonnage.estimate.training.losses import path_name, scored_tokens
from tonnage.estimate.training.objectives import Objective
from tonnage.estimate.training.phases import named_phases, other_moments
from tonnage.estimate.training.saving import saved_on_host
from tonnage.estimate.training.settings import Settings
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.standing import Regime, Share, Standing, regime, standing
from tonnage.estimate.training.step import Batch, Moment, highest, moment
from tonnage.estimate.training.tower import open_images, with_tower
from tonnage.kept import Kept
from tonnage.laws import optimizer as optimizer_laws
from tonnage.laws.activations import stale_inputs
from tonnage.laws.adapters import prefix_cache
from tonnage.laws.loss import causal_upcast
from tonnage.laws.pool_regimes import Ratio
from tonnage.laws.reserved import pinned, unavoidable
from tonnage.spec.model import Model
from tonnage.spec.report import Amount, Finding, Host
from tonnage.spec.workload import Workload


class Stage(NamedTuple):
    """One pipeline stage's rank, whatever the card."""

    share: Share
    """What stays whatever the micro-batch."""
    moments: tuple[Moment, ...]
    """Highest points of forward, backward and optimizer step."""
    most: tuple[Moment, ...]
    """The same where the longest batch reaches a length that is only a cap."""
    ratios: tuple[Ratio, ...]
    """How the allocator's pool compares with its tensors, at each."""
    needed: Amount
    """What the pool must hold once it has given back the rest: tensors, and fragments that remain. [bytes]"""
    open_loss: int
    """What a plain loss in fp32 would take beyond the one assumed, where none is stated. [bytes]"""


class Solved(msgspec.Struct, frozen=True, eq=False):
    """A job without its card."""

    settings: Settings
    objective: Objective
    band: Band
    reach: Reach
    stages: tuple[Stage, ...]
    host: Host
    trainable_parameters: int
    findings: tuple[Finding, ...]
    unknowns: tuple[str, ...]


KEPT = 1024
"""Jobs kept in process; the oldest goes first. [unitless]"""
_jobs: Kept[tuple[Standing, int | None, int | None, tuple[str, ...]], Solved] = Kept(KEPT)


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
    base, named, training = standing(workload), named_phases(workload), workload.training
    assert training is not None  # noqa: S101  (standing refuses a card without it)
    key = (base, training.micro_batch_size, training.sequence_length, named)
    found = _jobs.get(key)
    if found is None:
        found = _jobs.keep(key, _solved(base, base.at(training), named))
    return found


def _solved(base: Standing, job: Settings, named: tuple[str, ...]) -> Solved:
    whole = _Job(base, job, regime(base, job), reach_of(job))
    shares = base.shares
    model = base.workload.model
    return Solved(
        settings=job,
        objective=base.objective,
        band=whole.regime.band,
        reach=whole.reach,
        stages=tuple(
            [_stage(whole, share, points, named) for share, points in zip(shares, whole.regime.courses, strict=True)]
        ),
        host=host_of(job, _on_host(job, model, shares)),
        trainable_parameters=shares[0].rank.trainable_parameters,
        findings=base.findings,
        unknowns=base.unknowns + open_evaluation(job) + open_images(job, model),
    )


def _on_host(job: Settings, model: Model, shares: tuple[Share, ...]) -> OnHost:
    """The whole model, which shards add up to; what is offloaded or saved of it is on the host."""
    weights = adapters = master = states = trainable = 0
    for share in shares:
        sizes = share.rank.sizes
        weights += sizes.weights
        adapters += sizes.adapters
        master += sizes.master
        states += sizes.states
        trainable += sizes.trainable
    cuts = job.tensor_parallel_size
    return OnHost(
        weights=cuts * weights,
        adapters=cuts * adapters,
        master=cuts * master,
        states=cuts * states,
        trainable=cuts * trainable,
        trainable_width=job.weight_bytes if job.trains_base else job.adapter_bytes,
        kept=2 * model.hidden_size * model.num_hidden_layers * job.tokens if job.offload_activations else 0,
        saved=saved_on_host(job, weights=cuts * (weights + adapters), states=cuts * (master + states)),
        disk=cuts * weights,
    )


class _Job(NamedTuple):
    """What every stage needs."""

    base: Standing
    settings: Settings
    regime: Regime
    reach: Reach


def _stage(whole: _Job, share: Share, points: Course, named: tuple[str, ...]) -> Stage:
    job = whole.settings
    ratios: tuple[Ratio, ...] = whole.regime.ratios
    reach = whole.reach.expected
    most = _moments(whole, share, points, _batch(whole, share, job.sequence_length))
    worst = max(most, key=_total)
    moments = (
        most if reach == 1 else _moments(whole, share, points, _batch(whole, share, round(reach * job.sequence_length)))
    )
    if named or whole.base.objective.generates:
        others = _others(whole, share, named)
        moments, most, ratios = (*moments, *others), (*most, *others), (*ratios, *(ratios[0] for _ in others))
    open_loss = 0 if job.card.cross_entropy is not None else _open_loss(whole, worst)
    return Stage(share, moments, most, ratios, _needed(whole, share, max(most, key=_total), open_loss), open_loss)


def _needed(whole: _Job, share: Share, worst: Moment, open_loss: int) -> Amount:
    """
    Tensors at the worst moment, and the fragments that remain when the allocator has given back the rest.

    Where the length is only a cap, the low end is that of a batch that reaches 70 % of it; where the loss is not stated,
    the high end is that of one over all logits in fp32.
    """
    band, loading = whole.regime.band, share.holds.load
    moving = worst.moving
    kept = share.resident_bytes + worst.gradients
    allocated = max(kept + moving, loading)
    low = max(kept + moving_least(whole.settings, moving), loading)
    return Amount(
        int(low * (1 - band.below)),
        allocated + unavoidable(transient=moving, percent=4),
        int(allocated * (1 + band.above)) + _stuck(whole.settings, allocated, moving) + open_loss,
    )


def _stuck(job: Settings, allocated: int, moving: int) -> int:
    """Most that the allocator cannot give back: where parameters are gathered and freed, live blocks pin its segments. [bytes]"""
    most = unavoidable(transient=moving, percent=12)
    return max(most, pinned(allocated=allocated)) if job.sharding == "zero3" else most


def moving_least(job: Settings, moving: int) -> int:
    """What comes and goes if the length is only a cap: a batch that reaches 70 % of it. [bytes]"""
    return moving * 7 // 10 if may_fall_short(job) else moving


def _others(whole: _Job, share: Share, named: tuple[str, ...]) -> list[Moment]:
    base = whole.base
    return other_moments(
        whole.settings, base.workload.model, whole.regime.recipe, base.objective,
        named=named, holds=share.holds, rank=share.rank,
    )  # fmt: skip


def _total(moment: Moment) -> int:
    return moment.total


def _batch(whole: _Job, share: Share, longest: int) -> Batch:
    """Measures of a micro-batch whose longest sequence has so many tokens."""
    job, objective = whole.settings, whole.base.objective
    scored = job.tokens_of(longest) * objective.sequences
    tokens = scored * objective.trained_models
    length = -(-longest // job.context_parallel_size)
    padded = -(-length // 128) * 128 * job.micro_batch_size * objective.sequences
    if objective.loss is None:
        gpu = whole.base.workload.gpu
        free = None if gpu is None else gpu.memory_usable_bytes - share.resident_bytes
        scored = scored_tokens(path_name(job), whole.base.workload.model, scored, free)
    return Batch(tokens, length, padded, scored)


def _moments(whole: _Job, share: Share, points: Course, batch: Batch) -> tuple[Moment, ...]:
    more = _stale(whole, batch) + _prefixed(whole)
    forward, backward = highest(points, batch, share.holds, further=share.in_flight - 1, more=more)
    if whole.settings.card.images is not None and share.rank.first:
        forward, backward = with_tower(
            whole.settings, whole.base.workload.model, whole.regime.recipe, (forward, backward),
            holds=share.holds, sizes=share.rank.sizes,
        )  # fmt: skip
    return forward, backward, _step(whole, share.rank, share.holds)


def _prefixed(whole: _Job) -> int:
    """Keys and values of a prefix, joined with each sequence's. [bytes]"""
    job, model = whole.settings, whole.base.workload.model
    if not job.prefix_tokens:
        return 0
    layers = 1 if job.gradient_checkpointing != "none" else model.num_hidden_layers
    attention = model.layers[0].layer.attention
    keys = key_value_width(model)
    return prefix_cache(
        virtual_tokens=job.prefix_tokens,
        sequences=job.micro_batch_size,
        length=job.sequence_length,
        num_hidden_layers=layers,
        key_value_width=keys,
        query_width=attention.num_attention_heads * attention.head_dim if attention is not None else keys,
        element_bytes=job.compute_bytes,
    )


def _stale(whole: _Job, batch: Batch) -> int:
    """Inputs and logits of the previous micro-batch. [bytes]"""
    job, model = whole.settings, whole.base.workload.model
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
    return moment("optimizer_step", "optimizer step", gradients=holds.gradients_after, temporary=temporary)


def _open_loss(whole: _Job, worst: Moment) -> int:
    job, model = whole.settings, whole.base.workload.model
    path = causal_upcast(logit_bytes=job.compute_bytes)
    tokens = job.tokens * whole.base.objective.sequences // job.tensor_parallel_size
    return max(0, int(path[2] * model.vocab_size * tokens) - worst.moving)
