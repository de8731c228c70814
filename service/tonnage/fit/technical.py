"""One layout of one format on one GPU: estimated once, shared by every package that carries that GPU."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.assemble import Judgement, account_of, assemble, compare, judge, verdict
from tonnage.estimate.placement import layouts, refusal
from tonnage.evidence.reconcile import reconciled
from tonnage.fit.need import Need
from tonnage.spec.card import Placement
from tonnage.spec.facts import Gpu, WeightFormat
from tonnage.spec.report import VERDICT_ORDER, Account, Amount, Finding
from tonnage.spec.workload import Workload

SHARDED = {
    "torchtitan": "fsdp",
    "torchtune": "fsdp",
    "litgpt": "fsdp",
    "megatron": "distributed_optimizer",
    "unsloth": None,
}
"""How a framework shards states over data-parallel ranks when the card leaves it open; others: ZeRO-3."""


class Variant(NamedTuple):
    """One weight format and cache type the search may use, resolved once."""

    workload: Workload
    kv_cache_dtype: str | None

    @property
    def weight_format(self) -> WeightFormat:
        """Format of the weights."""
        return self.workload.weight_format


class Technical:
    """What memory physics says of a variant under a layout on a GPU."""

    __slots__ = (
        "account", "decode_bound", "disk", "findings", "gpu", "gpus", "host", "judgement", "measured", "model_known",
        "placement", "refusal", "required", "sharding", "variant", "verdict", "workload",
    )  # fmt: skip

    def __init__(self, variant: Variant, gpu: Gpu, gpus: int, placement: Placement) -> None:
        """Nothing judged yet; `estimated` or `refused` complete it."""
        self.variant = variant
        self.gpu = gpu
        self.gpus = gpus
        self.placement = placement
        self.model_known = variant.workload.model.known
        self.workload: Workload | None = None
        self.account: Account | None = None
        self.judgement: Judgement | None = None
        self.required: Amount | None = None
        self.verdict = 1
        self.refusal: str | None = None
        self.findings: tuple[Finding, ...] = ()
        self.host: Amount | None = None
        self.disk = 0
        self.measured = False
        self.sharding: str | None = None
        self.decode_bound: float | None = None

    @property
    def phase(self) -> str:
        """Phase of the peak."""
        return "" if self.judgement is None else self.judgement.gpus[self.judgement.worst].peak.phase

    @property
    def headroom(self) -> int:
        """Expected bytes that stay free; very negative without an estimate. [bytes]"""
        return -(2**62) if self.required is None else self.gpu.memory_usable_bytes - self.required.expected

    @property
    def layout_status(self) -> int:
        """0: the layout runs; 1: with only a parameter count nobody knows what divides; 2: refused."""
        if self.refusal is not None:
            return 2
        cut = self.placement.tensor_parallel_size > 1 or self.placement.pipeline_parallel_size > 1
        return int(cut and not self.model_known)

    @property
    def preference(self) -> tuple[int, int, int]:
        """Best first: status, then GPUs left idle, then headroom."""
        return (max(self.verdict, self.layout_status), self.gpus - self.placement.gpus, -self.headroom)


def estimated(
    variant: Variant, gpu: Gpu, gpus: int, placement: Placement, *, sharding: str | None = None, spare: float = 0.0
) -> Technical:
    """
    One estimate.

    Args:
        variant: Format and cache type.
        gpu: As the package exposes it.
        gpus: GPUs of the order. [unitless]
        placement: Layout over some or all of them.
        sharding: Sharding of a training card that leaves it open; None: the framework's own default.
        spare: Part of the usable memory that must stay free. [fraction]

    Returns:
        Judged memory; a card that contradicts the layout is a refusal, not an error.
    """
    technical = Technical(variant, gpu, gpus, placement)
    workload = replace(variant.workload, gpu=gpu, placement=placement)
    if sharding is not None and workload.training is not None:
        workload = replace(workload, training=replace(workload.training, sharding=sharding))
        technical.sharding = sharding
    technical.workload = workload
    try:
        account = account_of(workload)
    except ContradictoryWorkload as error:
        technical.refusal = error.detail
        return technical
    judgement = judge(workload, account)
    technical.account, technical.judgement, technical.findings = account, judgement, account.findings
    technical.required = judgement.required
    technical.verdict = VERDICT_ORDER[verdict(judgement, gpu.memory_usable_bytes, account.findings)]
    if spare:
        left = gpu.memory_usable_bytes - int(gpu.memory_usable_bytes * spare)
        technical.verdict = max(technical.verdict, VERDICT_ORDER[compare(judgement.required, left)])
    if account.host is not None:
        technical.host, technical.disk = account.host.memory, account.host.disk_bytes
    if workload.measurements:
        _measure(technical, workload, account)
    return technical


def _measure(technical: Technical, workload: Workload, account: Account) -> None:
    """A measured peak replaces the estimate where GPU, layout and format are those that were measured."""
    card = workload.card
    stated = card.placement
    same = replace(workload.placement, gpu=None) == replace(stated, gpu=None)
    own_format = card.weights.format is None or workload.formats.get(card.weights.format) in {
        None,
        workload.weight_format,
    }
    if not (same and own_format):
        return
    answer = reconciled(assemble(workload, account), workload.measurements, gpu=technical.gpu.id)
    if answer.required != technical.required and answer.verdict is not None:
        technical.required, technical.verdict, technical.measured = answer.required, VERDICT_ORDER[answer.verdict], True


def choices(variant: Variant, gpus: int, domain: int, need: Need) -> Iterator[Placement]:
    """
    Layouts worth an estimate, best first.

    All GPUs, and below that the largest power of two. Of a bare count, whose parts may not divide, copies come first and
    then the two widest cuts.
    """
    fixed = need.fixed_layout
    if fixed is not None:
        if fixed.gpus <= gpus:
            yield replace(fixed, gpu=None)
        return
    if variant.workload.model.known:
        yield from _allowed(variant, gpus, domain, need)
        if gpus & (gpus - 1):
            yield from _allowed(variant, 1 << (gpus.bit_length() - 1), domain, need)
        return
    found = tuple(_allowed(variant, gpus, domain, need))
    yield from (p for p in found if p.data_parallel_size == gpus)
    yield from (p for p in found if gpus in {p.tensor_parallel_size, p.pipeline_parallel_size} and gpus > 1)


def _allowed(variant: Variant, gpus: int, domain: int, need: Need) -> Iterator[Placement]:
    allow = need.allow
    found = layouts(
        model=variant.workload.model,
        gpus=gpus,
        fast_domain=domain,
        engine=need.engine,
        framework=need.framework,
        weight_format=variant.weight_format,
        expert_parallel=allow.expert_parallel and need.expert_parallel,
        context_parallel=allow.context_parallel,
    )
    for p in found:
        if (
            (p.tensor_parallel_size == 1 or allow.tensor_parallel)
            and (p.pipeline_parallel_size == 1 or allow.pipeline_parallel)
            and (p.data_parallel_size == 1 or allow.data_parallel)
        ):
            yield p


def why_refused(variant: Variant, gpus: int, need: Need) -> str:
    """The rule that stops the widest layout, for an order on which nothing runs."""
    fixed = need.fixed_layout
    if fixed is not None and fixed.gpus > gpus:
        return f"the stated layout takes {fixed.gpus} GPUs, the order has {gpus}"
    reason = refusal(
        model=variant.workload.model,
        placement=fixed or Placement(tensor_parallel_size=gpus),
        engine=need.engine,
        framework=need.framework,
        weight_format=variant.weight_format,
    )
    return reason or f"no layout over {gpus} GPUs is allowed"


def shardings(variant: Variant, placement: Placement) -> tuple[str | None, ...]:
    """Sharding to try in order: what is stated or the framework's default, then states over the data-parallel ranks."""
    training = variant.workload.training
    if training is None or training.sharding is not None or placement.data_parallel_size == 1:
        return (None,)
    sharded = SHARDED.get(training.framework, "zero3")
    return (None,) if sharded is None else (None, sharded)
