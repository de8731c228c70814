"""One layout of one format on one GPU: estimated once, shared by every package that carries that GPU."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from tonnage.errors import ContradictoryWorkload, Unsupported
from tonnage.estimate.accounts import account_of, comparing
from tonnage.estimate.assemble import Judgement, assemble, compare, judge, screen, verdict
from tonnage.estimate.placement import layouts, refusal
from tonnage.evidence.reconcile import reconciled
from tonnage.fit.need import Need
from tonnage.spec.card import Placement
from tonnage.spec.facts import Gpu, WeightFormat
from tonnage.spec.report import VERDICT_ORDER, Account, Amount, Deciding, Finding
from tonnage.spec.workload import Workload

SHARDED = {
    "torchtitan": "fsdp",
    "torchtune": "fsdp",
    "litgpt": "fsdp",
    "megatron": "distributed_optimizer",
    "unsloth": None,
}
"""How a framework shards states over data-parallel ranks when the card leaves it open; others: ZeRO-3."""


_NO_HEADROOM = -(10**18)


class Variant(NamedTuple):
    """One weight format and cache type the search may use, resolved once."""

    workload: Workload
    kv_cache_dtype: str | None
    deciding: Callable[[Workload], Deciding]
    """What of its account decides on a GPU and a placement."""
    name: tuple[str, str | None]
    """Weight format and cache type."""

    @classmethod
    def of(cls, workload: Workload, kv_cache_dtype: str | None) -> "Variant":
        """
        A variant of the card.

        Args:
            workload: Resolved, without a GPU.
            kv_cache_dtype: Cache type that was tried, None where the card's own stays.
        """
        return cls(workload, kv_cache_dtype, comparing(workload), (workload.weight_format.id, kv_cache_dtype))

    @property
    def weight_format(self) -> WeightFormat:
        """Format of the weights."""
        return self.workload.weight_format


class Technical:
    """What memory physics says of a variant under a layout on a GPU."""

    __slots__ = (
        "_account", "_judgement", "bound", "claims", "disk", "findings", "fits", "gpu", "gpus", "host", "layout_status",
        "measured", "placement", "preference", "refusal", "required", "sharding", "used", "variant", "verdict", "workload",
    )  # fmt: skip

    def __init__(self, variant: Variant, gpu: Gpu, gpus: int, placement: Placement) -> None:
        """Nothing judged yet; `estimated` or `refuse` complete it."""
        self.variant = variant
        self.gpu = gpu
        self.gpus = gpus
        self.placement = placement
        self.used = placement.gpus
        """GPUs of the order that work. [unitless]"""
        self.workload: Workload | None = None
        self._account: Account | None = None
        self._judgement: Judgement | None = None
        self.required: Amount | None = None
        self.bound: int | None = None
        """Weights that each GPU must hold at least, of a layout that was excluded by them alone. [bytes]"""
        self.verdict = 1
        self.fits = False
        """The amounts fit with certainty; what is left to confirm lies in facts that no other layout changes."""
        self.refusal: str | None = None
        self.findings: tuple[Finding, ...] = ()
        self.host: Amount | None = None
        self.disk = 0
        self.claims = False
        """The engine claims by a fraction of the card."""
        self.measured = False
        self.sharding: str | None = None
        cut = placement.tensor_parallel_size > 1 or placement.pipeline_parallel_size > 1
        self.layout_status = int(cut and not variant.workload.model.known)
        """0: the layout runs; 1: with only a parameter count nobody knows what divides; 2: refused."""
        self.preference: tuple[int, int, int] = (2, 0, 0)
        """Best first: status, then GPUs left idle, then headroom."""

    def refuse(self, reason: str) -> "Technical":
        """The layout does not run."""
        self.refusal, self.layout_status = reason, 2
        return self.ranked()

    def too_large(self, bound: int) -> "Technical":
        """Excluded by its weights alone; the rest is estimated only where it is shown."""
        self.bound, self.verdict = bound, 2
        self.disk = bound * self.placement.tensor_parallel_size * self.placement.pipeline_parallel_size
        return self.ranked()

    def complete(self, spare: float) -> None:
        """The estimate of a layout that was excluded by its weights alone."""
        if self.bound is not None and self.required is None:
            whole = estimated(self.variant, self.gpu, self.gpus, self.placement, spare=spare)
            if whole.required is not None:
                self.workload, self.findings = whole.workload, whole.findings
                self.required, self.host, self.disk = whole.required, whole.host, whole.disk

    def ranked(self) -> "Technical":
        """With its preference worked out."""
        self.preference = (max(self.verdict, self.layout_status), self.gpus - self.used, -self.headroom)
        return self

    def on(self, gpus: int) -> "Technical":
        """The same layout in an order of another size: more or fewer GPUs stay idle."""
        if gpus == self.gpus:
            return self
        other = Technical(self.variant, self.gpu, gpus, self.placement)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.gpus = gpus
        return other.ranked()

    @property
    def excluded(self) -> bool:
        """Memory or the layout's rules exclude it."""
        return self.preference[0] == 2

    @property
    def account(self) -> Account | None:
        """The whole account, worked out where it is shown; None of a layout that does not run."""
        if self._account is None and self.workload is not None and self.required is not None:
            self._account = account_of(self.workload)
        return self._account

    @property
    def judgement(self) -> Judgement | None:
        """Loads by phase and counter, worked out where they are shown."""
        if self._judgement is None and self.workload is not None and self.account is not None:
            self._judgement = judge(self.workload, self.account)
        return self._judgement

    @property
    def phase(self) -> str:
        """Phase of the peak."""
        return "" if self.judgement is None else self.judgement.gpus[self.judgement.worst].peak.phase

    @property
    def headroom(self) -> int:
        """Expected bytes that stay free; very negative without an estimate. [bytes]"""
        taken = self.bound if self.required is None else self.required.expected
        return _NO_HEADROOM if taken is None else self.gpu.memory_usable_bytes - taken

    @property
    def weights(self) -> int:
        """Weights on the fullest GPU. [bytes]"""
        if self.account is None:
            return 0
        phases = (load.phases[0].items for load in self.account.loads)
        return max(sum(i.bytes.expected for i in items if i.component == "weights") for items in phases)


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
        deciding = variant.deciding(workload)
    except (ContradictoryWorkload, Unsupported) as error:
        return technical.refuse(error.detail)
    screened = screen(workload, deciding)
    usable = gpu.memory_usable_bytes
    technical.findings, technical.required = deciding.findings, screened.required
    technical.claims = deciding.claim is not None
    worst = VERDICT_ORDER[verdict(screened, usable, ())]
    if spare:
        worst = max(worst, VERDICT_ORDER[compare(screened.required, usable - int(usable * spare))])
    technical.verdict = max([worst, *(VERDICT_ORDER[f.status] for f in deciding.findings)])
    technical.fits = worst == 0 and technical.verdict < VERDICT_ORDER["excluded"]
    if deciding.host is not None:
        technical.host, technical.disk = deciding.host.memory, deciding.host.disk_bytes
    if workload.measurements:
        _measure(technical, workload, account_of(workload))
    return technical.ranked()


def _measure(technical: Technical, workload: Workload, account: Account) -> None:
    """A measured peak replaces the estimate where GPU, layout and format are those that were measured."""
    card = workload.card
    same_layout = replace(workload.placement, gpu=None) == replace(card.placement, gpu=None)
    stated = workload.formats.get(card.weights.format or "", workload.weight_format)
    if not same_layout or stated.id != workload.weight_format.id:
        return
    answer = reconciled(assemble(workload, account), workload.measurements, gpu=technical.gpu.id)
    if answer.required != technical.required and answer.verdict is not None:
        technical.required, technical.verdict, technical.measured = answer.required, VERDICT_ORDER[answer.verdict], True
        technical.fits = answer.verdict == "met"


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
