"""A training job on its card: context and allocator beside what each stage holds."""

from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.training.items import item, phase_items
from tonnage.estimate.training.needs import Outside, needs, outside
from tonnage.estimate.training.pool import fragmentation
from tonnage.estimate.training.settings import Settings
from tonnage.estimate.training.solve import Solved, Stage, solved
from tonnage.estimate.training.usual import usual_model
from tonnage.laws import budget
from tonnage.spec.facts import Gpu
from tonnage.spec.report import Account, Amount, Assumption, Deciding, GpuLoad, MemoryItem, PhaseItems
from tonnage.spec.workload import Workload
from tonnage.units import format_size

_OUTSIDE = "data loading, metrics and evaluation with larger batches than training"
_BESIDE_EVALUATION = "data loading, and temporaries of the metrics"
_INSIDE = "temporaries inside kernels and libraries"
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


def deciding(workload: Workload) -> Deciding:
    """
    What of the account decides, without its items.

    Args:
        workload: Resolved card with a training part.

    Returns:
        What the card of the stage that needs most must hold, findings, host.

    Raises:
        SizingError: The card contradicts itself, or no law covers it.
    """
    job, gpu = solved(workload), workload.gpu
    needed = needs(job, outside(job.settings, gpu))
    return Deciding(max(needed, key=_expected), None, job.findings, job.host)


def _expected(amount: Amount) -> int:
    return amount.expected


def _on_card(job: Solved, gpu: Gpu | None) -> Account:
    around = outside(job.settings, gpu)
    needed = needs(job, around)
    return Account(
        loads=tuple([_load(job, stage, need, around) for stage, need in zip(job.stages, needed, strict=True)]),
        host=job.host,
        trainable_parameters=job.trainable_parameters,
        assumptions=job.settings.assumptions,
        unknowns=(_unseen(job.settings), _INSIDE, *job.unknowns, *_open_loss(job)),
        invalidated_by=_INVALIDATED_BY,
        findings=job.findings,
    )


def _unseen(job: Settings) -> str:
    return _OUTSIDE if job.card.evaluation is None else _BESIDE_EVALUATION


def _open_loss(job: Solved) -> tuple[str, ...]:
    """Why the high end of `required` lies above that of every phase."""
    more = max(stage.open_loss for stage in job.stages)
    if not more:
        return ()
    words = "the loss is not stated: full logits in fp32 would take"
    return (
        f"{words} {format_size(more)} more than the one assumed; the high end of required allows for them, no phase does",
    )


def _load(job: Solved, stage: Stage, needed: Amount, around: Outside) -> GpuLoad:
    share, engine, sleeps = stage.share, around.claim, bool(job.settings.card.vllm_enable_sleep_mode)
    beside = (*around.items, *_paged(share.paged)) if share.paged else around.items
    usable = around.left
    if usable is not None and engine:
        usable -= budget.asleep(claim=engine) if sleeps else engine
    phases = [
        PhaseItems(
            moment.phase,  # type: ignore[arg-type]  # one of PhaseName
            (*items, fragments, *beside, *_engine(engine, sleeps and moment.phase != "generation")),
        )
        for moment, items, fragments in zip(
            stage.moments, _moving(job, stage), fragmentation(job, stage, usable), strict=True
        )
    ]
    return GpuLoad(
        ranks=share.ranks,
        stage=share.rank.stage,
        phases=(PhaseItems("load", (*share.loading, *beside)), *phases),
        needed=needed,
    )


def _moving(job: Solved, stage: Stage) -> list[tuple[MemoryItem, ...]]:
    """Items alive at each moment, resident ones first."""
    quantized, share, least = job.settings.quantized, stage.share, job.reach.least
    return [
        phase_items(
            moment, share.resident, share.resident_bytes, job.band, quantized=quantized, least=least, most=full.total
        )
        for moment, full in zip(stage.moments, stage.most, strict=True)
    ]


@remembered(1024)
def _paged(paged: int) -> tuple[MemoryItem, ...]:
    """States in unified memory."""
    return (
        item(
            "optimizer_states", 0, "laws.optimizer.elementwise_states", "bitsandbytes optimizer.py (managed memory)",
            detail="paged: moves to the host under pressure", basis="assumed", counter="device", band=(0, paged),
        ),
    )  # fmt: skip


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
