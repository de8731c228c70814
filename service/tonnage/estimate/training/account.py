"""A training job on its card: context and allocator beside what each stage holds."""

from math import isqrt

from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.training import counters
from tonnage.estimate.training.bands import expected_reach, least_reached
from tonnage.estimate.training.items import item
from tonnage.estimate.training.settings import FSDP, ZERO, Settings
from tonnage.estimate.training.solve import Solved, Stage, moving_least, solved
from tonnage.estimate.training.step import Moment
from tonnage.estimate.training.usual import usual_model
from tonnage.laws import budget, runtime
from tonnage.laws.pool_regimes import Ratio
from tonnage.laws.reserved import transient_share, unavoidable, whole_share
from tonnage.spec.facts import Gpu
from tonnage.spec.report import Account, Amount, Assumption, GpuLoad, MemoryItem, PhaseItems
from tonnage.spec.workload import Workload
from tonnage.units import format_size

_UNKNOWNS = (
    "data loading, metrics and evaluation with larger batches than training",
    "temporaries inside kernels and libraries",
)
_BY_SHAPE = frozenset({"activations", "logits", "adapters", "workspace", "dequantization", "unsharded_parameters"})
"""Components that follow from layers, not from the count."""
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
    found = _on_card(solved(workload), workload.gpu)
    return found if workload.model.known else _of_usual_shape(found, workload)


def _of_usual_shape(account: Account, workload: Workload) -> Account:
    """What rests on the usual proportions of a model of that count says so."""
    placed = workload.placement
    model = usual_model(workload.model, placed.tensor_parallel_size, placed.pipeline_parallel_size)
    shape = {name: getattr(model, name) for name in ("hidden_size", "num_hidden_layers", "vocab_size")}
    why = "only the count is known: the usual proportions of a decoder"
    return replace(
        account,
        loads=tuple(
            replace(load, phases=tuple(PhaseItems(p.phase, tuple(map(_assumed, p.items))) for p in load.phases))
            for load in account.loads
        ),
        assumptions=(Assumption("model.config", shape, why), *account.assumptions),
        unknowns=("layers, heads and vocabulary: only a parameter count is known", *account.unknowns),
    )


def _assumed(found: MemoryItem) -> MemoryItem:
    return replace(found, basis="assumed") if found.component in _BY_SHAPE else found


@remembered(1024)
def _on_card(job: Solved, gpu: Gpu | None) -> Account:
    return Account(
        loads=tuple(_load(job, stage, gpu) for stage in job.stages),
        host=job.host,
        trainable_parameters=job.trainable_parameters,
        assumptions=job.settings.assumptions,
        unknowns=_UNKNOWNS + job.unknowns + _open_loss(job),
        invalidated_by=_INVALIDATED_BY,
        findings=job.findings,
    )


def _open_loss(job: Solved) -> tuple[str, ...]:
    """Why the high end of `required` lies above that of every phase."""
    more = max(stage.open_loss for stage in job.stages)
    if not more:
        return ()
    words = "the loss is not stated: full logits in fp32 would take"
    return (
        f"{words} {format_size(more)} more than the one assumed; the high end of required allows for them, no phase does",
    )


def _load(job: Solved, stage: Stage, gpu: Gpu | None) -> GpuLoad:
    settings = job.settings
    outside = _outside(gpu, not settings.libraries.at_least("torch", "2.1"), _communicates(settings), stage.paged)
    claim = _claim(settings, gpu)
    sleeps = bool(settings.card.vllm_enable_sleep_mode)
    usable = None if gpu is None else gpu.memory_usable_bytes - sum(_least_outside(i) for i in outside)
    if usable is not None and claim:
        usable -= budget.asleep(claim=claim) if sleeps else claim
    phases = [
        PhaseItems(
            moment.phase,  # type: ignore[arg-type]  # one of PhaseName
            (
                *items,
                _fragmentation(job, stage, place, usable),
                *outside,
                *_engine(claim, sleeps and moment.phase != "generation"),
            ),
        )
        for place, (moment, items) in enumerate(zip(stage.moments, stage.phases, strict=True))
    ]
    return GpuLoad(
        ranks=stage.ranks,
        stage=stage.stage,
        phases=(PhaseItems("load", (*stage.loading, *outside)), *phases),
        needed=_beside_engine(_needed(job, stage, outside), stage, outside, claim, sleeps),
    )


def _claim(job: Settings, gpu: Gpu | None) -> int:
    """What a colocated engine takes of the card. [bytes]"""
    share = job.card.vllm_gpu_memory_utilization
    if share is None or gpu is None or job.objective not in ("grpo", "ppo"):
        return 0
    return budget.fraction_of_total(fraction=share, total=gpu.memory_usable_bytes)


def _engine(claim: int, asleep: bool) -> tuple[MemoryItem, ...]:
    """The colocated engine in a phase, awake or asleep."""
    if not claim:
        return ()
    source = "huggingface/trl@f2cd57710 trl/generation/vllm_generation.py (colocate)"
    if asleep:
        left = budget.asleep(claim=claim)
        band = (left * 2 // 3, left)
        law = "laws.budget.asleep"
        return (
            item("generation_engine", left, law, source, detail="asleep", basis="assumed", counter="device", band=band),
        )
    return (
        item("generation_engine", claim, "laws.budget.fraction_of_total", source, detail="awake", counter="device"),
    )


def _beside_engine(training: Amount, stage: Stage, outside: tuple[MemoryItem, ...], claim: int, sleeps: bool) -> Amount:
    """What the card must hold with a colocated engine: both at once, or the larger of them in turn."""
    if not claim:
        return training
    if not sleeps:
        return Amount(training.low + claim, training.expected + claim, training.high + claim)
    left = budget.asleep(claim=claim)
    awake = stage.resident_bytes + claim
    return Amount(
        max(training.low + left // 3, awake + sum(i.bytes.low for i in outside)),
        max(training.expected + left, awake + sum(i.bytes.expected for i in outside)),
        max(training.high + 2 * left, awake + sum(i.bytes.high for i in outside)),
    )


def _least_outside(found: MemoryItem) -> int:
    """What a full card surely leaves to the pool: communicators are made as they are used."""
    return found.bytes.low if found.component == "communication" else found.bytes.expected


def _communicates(job: Settings) -> int:
    """Communicators of a rank; DeepSpeed builds them with one GPU too. [bytes]"""
    return runtime.training_communicators(
        ranks=job.ranks * job.tensor_parallel_size * job.context_parallel_size * job.pipeline_parallel_size,
        built_alone=job.sharding in ZERO,
    )


def _needed(job: Solved, stage: Stage, outside: tuple[MemoryItem, ...]) -> Amount:
    """
    What the card must hold: tensors, context, and the fragments that remain when the allocator has given back the rest.

    Where the length is only a cap, the low end is that of a batch that reaches 70 % of it; where the loss is not stated,
    the high end is that of one over all logits in fp32.
    """
    worst = max(stage.most, key=_total)
    moving = worst.total - worst.gradients
    kept = stage.resident_bytes + worst.gradients
    allocated = max(kept + moving, stage.loading_bytes)
    outside = tuple(i for i in outside if i.component != "optimizer_states")  # paged ones give way
    low = max(kept + moving_least(job, moving), stage.loading_bytes)
    return Amount(
        int(low * (1 - job.band.below)) + sum(i.bytes.low for i in outside),
        allocated + unavoidable(transient=moving, percent=4) + sum(i.bytes.expected for i in outside),
        int(allocated * (1 + job.band.above))
        + _stuck(job.settings, allocated, moving)
        + sum(i.bytes.high for i in outside)
        + stage.open_loss,
    )


PINNED = 135
"""
Most that a full card holds over its tensors where parameters are gathered and freed. [percent]

Source: tests/measured/heldout_training_decisions.json#lf-6531
"""


def _stuck(job: Settings, allocated: int, moving: int) -> int:
    """Most that the allocator cannot give back: where parameters are gathered and freed, live blocks pin its segments. [bytes]"""
    most = unavoidable(transient=moving, percent=12)
    return max(most, whole_share(allocated=allocated, ratio_percent=PINNED)) if job.sharding == "zero3" else most


def _total(moment: Moment) -> int:
    return moment.total


@remembered(1024)
def _outside(gpu: Gpu | None, eager: bool, communicators: int, paged: int) -> tuple[MemoryItem, ...]:
    """What lies outside the allocator: context, communicators, states in unified memory."""
    context = counters.context(gpu, eager=eager)
    items = [
        item(
            "device_context", context, "laws.device_context.cuda", "measured: laws.device_context", basis="measured",
            counter="device", band=(context // 4, context // 2),
        )
    ]  # fmt: skip
    if communicators:
        items.append(
            item(
                "communication", communicators, "laws.runtime.training_communicators", "NVIDIA/nccl issues 964, 864",
                basis="calibrated", counter="device", band=(communicators // 2, communicators),
            )
        )  # fmt: skip
    if paged:
        items.append(
            item(
                "optimizer_states", 0, "laws.optimizer.elementwise_states", "bitsandbytes optimizer.py (managed memory)",
                detail="paged: moves to the host under pressure", basis="assumed", counter="device", band=(0, paged),
            )
        )  # fmt: skip
    return tuple(items)


def _moved(moments: tuple[Moment, ...], moment: Moment, regime: Ratio) -> Moment:
    """Whose blocks the pool holds: once all gradients are there, those of the loss remain beside them."""
    if regime.after:
        return moments[1]
    forward = moments[0]
    if moment.phase == "backward" and forward.total - forward.gradients > moment.total - moment.gradients:
        return forward
    return moment


def _together(alone: int, beside: int) -> int:
    """How wide a band must be for two of one cause to make up their sum, though bands add as independent ones do. [bytes]"""
    return isqrt(alone * alone + 2 * alone * beside) if alone > 0 else 0


def _of_short_samples(moved: Moment, regime: Ratio, least: float, expected: int) -> int:
    """Low end of the pool's excess where samples may be far shorter: the pool shrinks with what lies in it. [bytes]"""
    shorter = int((1 - least) * (moved.activations + moved.logits))
    transient = moved.total - moved.gradients - shorter
    fewer = max(0, expected - transient_share(transient=transient, ratio_percent=regime.low))
    return max(0, expected - _together(fewer, shorter))


def _at_the_cap(job: Solved, stage: Stage, place: int, expected: int, usable: int | None) -> int:
    """High end of the pool's excess if samples reach the stated length; with that of the tensors it makes up the band. [bytes]"""
    full = stage.most[place]
    _, there, most = _pool(job.settings, stage, stage.most, place, usable)
    longer = full.total - stage.moments[place].total
    tensors = int(job.band.above * (stage.resident_bytes + full.total))
    whole = longer + there - expected + isqrt(tensors * tensors + (most - there) ** 2)
    return expected + isqrt(max(0, whole * whole - longer * longer))


def _fragmentation(whole: Solved, stage: Stage, place: int, usable: int | None) -> MemoryItem:
    """What the allocator's pool holds beyond the tensors in it, in the phase at a place."""
    job = whole.settings
    moment, regime, gathers = stage.moments[place], stage.ratios[place], job.sharding == "zero3"
    low, expected, high = _pool(job, stage, stage.moments, place, usable)
    if stage.most is not stage.moments:
        high = max(high, _at_the_cap(whole, stage, place, expected, usable))
    least = least_reached(job) / expected_reach(job)
    if least < 1 and not gathers:
        low = min(low, _of_short_samples(_moved(stage.moments, moment, regime), regime, least, expected))
    law = "laws.reserved.gathered_pool" if gathers else "laws.reserved.transient_share"
    return item(
        "fragmentation", expected, law, "measured: laws.reserved",
        detail=f"{regime.why}; given back when the card is full, so `required` counts only what cannot be",
        basis="calibrated", counter="reserved", band=(expected - low, high - expected),
    )  # fmt: skip


def _pool(
    job: Settings, stage: Stage, moments: tuple[Moment, ...], place: int, usable: int | None
) -> tuple[int, int, int]:
    """Reserved less allocated at a moment: low, expected, high. [bytes]"""
    moment, regime = moments[place], stage.ratios[place]
    allocated = stage.resident_bytes + moment.total
    moved = _moved(moments, moment, regime)
    if job.sharding == "zero3":
        return counters.gathered(
            regime,
            weights=stage.whole_weights,
            allocated=allocated,
            activations=moved.activations,
            logits=moved.logits,
            varying=job.varying,
            usable=usable,
        )
    sharded = job.sharding in FSDP and not job.in_backward
    waiting = max(0, moments[2].gradients - moment.gradients)
    return counters.fragmentation(
        regime,
        allocated=allocated,
        resident=allocated - (moved.total - moved.gradients),
        idle=waiting if sharded else 0,
        live=moment.live,
        freed=0 if sharded or regime.after or job.varying else waiting,
        usable=usable,
    )
