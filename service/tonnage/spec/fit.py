"""
The question and the answer of /fit: a sizing card with an offer, requirements and evidence; candidates with reasons.

A `FitRequest` is a `SizingCard` with more fields, flat on the wire. Its placement is a wish: `gpu` narrows the
offer, a size above 1 fixes the layout, and an untouched placement leaves the search free.
"""

from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tonnage.spec.card import Name, Note, Placement, Size, SizingCard
from tonnage.spec.report import (
    Amount,
    Assumption,
    Diagnosis,
    KvCache,
    Measured,
    ModelReport,
    Remedy,
    Verdict,
    Versions,
)
from tonnage.units import BILLION, MILLION

DURATION_PATTERN = r"^\d{1,6}(\.\d{1,3})? ?(hours?|h|days?|d|weeks?|w|months?)$(?!\n)"
MONEY_PATTERN = r"^\d{1,12}(\.\d{1,6})? ?[A-Z]{3}$(?!\n)"
RATE_PATTERN = r"^\d{1,15}(\.\d{1,9})? ?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)/s$(?!\n)"
DATE_PATTERN = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$(?!\n)"

CURRENCY_PATTERN = r"^[A-Z]{3}$(?!\n)"
CAPABILITY_PATTERN = r"^\d{1,2}\.\d$(?!\n)"

MAX_PRICE = Decimal(BILLION)

Hours = Annotated[float, Meta(gt=0, le=MILLION, description="hours")]
DurationText = Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=30, description="3 days, 12 hours, 2 weeks")]
Money = Annotated[str, Meta(pattern=MONEY_PATTERN, max_length=30, description="amount and currency: 500 USD")]
RateText = Annotated[str, Meta(pattern=RATE_PATTERN, max_length=40, description="number with a unit: 2 TB/s")]
Rate = Annotated[int, Meta(ge=1, le=1_000_000_000_000_000_000, description="bytes per second")] | RateText
IsoDate = Annotated[str, Meta(pattern=DATE_PATTERN, description="ISO date")]
Currency = Annotated[str, Meta(pattern=CURRENCY_PATTERN)]
Names = Annotated[list[Name], Meta(min_length=1, max_length=256)]
OfferKind = Literal["on-demand", "spot", "marketplace", "capacity-block", "reserved", "package"]
RequirementName = Literal[
    "memory", "placement", "engine", "native_dtypes", "bandwidth", "interconnect", "host_memory", "disk", "throughput",
    "quality", "workload", "price", "term", "region", "provider", "delivery", "data_age", "availability",
]  # fmt: skip
Maximize = Literal["concurrency", "max_model_len", "micro_batch_size", "headroom"]


def _check_dates(*texts: str | None) -> None:
    """Raise for a day that no calendar has."""
    for text in texts:
        if text is not None:
            date.fromisoformat(text)


class InlineOffer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A price the caller brings along."""

    price: Decimal
    kind: OfferKind = "on-demand"
    currency: Currency = "USD"
    per: Literal["hour", "day", "month", "term"] = "hour"
    term_hours: Annotated[int, Meta(ge=1, le=MILLION)] | None = None
    """Length of a fixed term, with per = term. [hours]"""
    minimum_hours: Annotated[int, Meta(ge=1, le=MILLION)] | None = None
    hours_per_month: Annotated[int, Meta(ge=1, le=744)] = 730
    as_of: IsoDate | None = None
    source: Note = "request"

    def __post_init__(self) -> None:
        if not self.price.is_finite() or not 0 < self.price <= MAX_PRICE or self.price.as_tuple().exponent < -6:  # type: ignore[operator]
            raise ValueError("price must be above 0 and at most 1000000000, with up to 6 decimals")
        _check_dates(self.as_of)
        if (self.per == "term") != (self.term_hours is not None):
            raise ValueError("term_hours belongs to per = term, and per = term needs it")


class InlineSku(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A package the caller brings along: a host with GPUs and its prices."""

    id: Name
    gpu: Name
    provider: Name = "inline"
    gpus_per_host: Annotated[int, Meta(ge=1, le=1024)] = 1
    max_hosts: Annotated[int, Meta(ge=1, le=1024)] = 1
    region: Name | None = None
    name: Note | None = None
    host_memory_bytes: Size | None = None
    disk_bytes: Size | None = None
    interconnect: Note | None = None
    delivery_days: Annotated[int, Meta(ge=0, le=3650)] | None = None
    offers: Annotated[list[InlineOffer], Meta(max_length=16)] = []


class Allow(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the search may change while the need stays fixed."""

    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    data_parallel: bool = True
    expert_parallel: bool = True
    context_parallel: bool = False
    several_hosts: bool = True
    cpu_offload: bool = False
    spot: bool = False
    """Interruptible prices count as the price of an order; otherwise they are only shown beside it."""
    marketplace: bool = False
    """Packages that only a marketplace of private hosts offers take part; naming them in `skus` or `providers` does too."""
    weight_formats: Annotated[list[Name], Meta(min_length=1, max_length=16)] | None = None
    """Formats to try beside each other; None: only that of the card."""
    kv_cache_dtypes: Annotated[list[Name], Meta(min_length=1, max_length=8)] | None = None


class OfferScope(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which packages take part, and how far the search may go."""

    skus: Names | None = None
    gpus: Names | None = None
    providers: Names | None = None
    regions: Names | None = None
    inline: Annotated[list[InlineSku], Meta(max_length=64)] = []
    catalog: bool = True
    """Whether the catalogue's packages take part beside the inline ones."""
    max_gpus: Annotated[int, Meta(ge=1, le=1024)] | None = None
    max_gpus_per_host: Annotated[int, Meta(ge=1, le=1024)] | None = None
    max_hosts: Annotated[int, Meta(ge=1, le=1024)] | None = None
    allow: Allow = Allow()


class Quality(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The caller's own bar, judged by the caller's own figures only."""

    metric: Name
    minimum: float
    evidence: Annotated[dict[Name, float], Meta(max_length=64)] = {}
    """Measured value by weight format. [unit of the metric]"""


class Throughput(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tokens per second over all requests, judged by the caller's measurements or a stated roofline bound."""

    minimum_tokens_per_second: Annotated[float, Meta(gt=0, le=BILLION)]
    evidence: Annotated[dict[Name, float], Meta(max_length=256)] = {}
    """Measured value by SKU or GPU. [tokens per second]"""


class Requirements(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the order must meet; each is judged alone and none offsets another."""

    duration: Hours | DurationText | None = None
    max_price: Money | None = None
    currency: Currency | None = None
    """Prices in other currencies need confirmation: nothing is converted."""
    min_headroom_fraction: Annotated[float, Meta(ge=0, lt=1)] | None = None
    """Part of the usable memory that must stay free. [fraction]"""
    min_bandwidth: Rate | None = None
    interconnect: Literal["any", "pcie", "nvlink", "fabric"] | None = None
    """Slowest link allowed between the GPUs of one tensor-parallel group; fabric: also a named network between hosts."""
    native_dtypes: Annotated[list[Name], Meta(min_length=1, max_length=16)] | None = None
    min_compute_capability: Annotated[str, Meta(pattern=CAPABILITY_PATTERN)] | None = None
    min_host_memory: Size | None = None
    min_disk: Size | None = None
    order_date: IsoDate | None = None
    """Day the order is placed; with it delivery and the age of prices can be judged."""
    delivery_by: IsoDate | None = None
    max_price_age_days: Annotated[int, Meta(ge=0, le=36_500)] | None = None
    quality: Quality | None = None
    throughput: Throughput | None = None

    def __post_init__(self) -> None:
        _check_dates(self.order_date, self.delivery_by)
        if isinstance(self.duration, str) and not any(c in "123456789" for c in self.duration):
            raise ValueError("a duration is longer than nothing")


class Evidence(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the caller knows of one requirement of one package or GPU, with where it is from."""

    requirement: RequirementName
    status: Literal["met", "excluded"]
    source: Annotated[str, Meta(min_length=1, max_length=2000)]
    date: IsoDate | None = None
    sku: Name | None = None
    gpu: Name | None = None
    weights_format: Name | None = None

    def __post_init__(self) -> None:
        if self.sku is not None and self.gpu is not None:
            raise ValueError("evidence is about a sku or a gpu, not both")


class Current(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the caller runs today."""

    sku: Name | None = None
    gpu: Name | None = None
    placement: Placement | None = None

    def __post_init__(self) -> None:
        if (self.sku is None) == (self.gpu is None):
            raise ValueError("give one of sku and gpu")


class FitRequest(SizingCard, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which package serves this card, which does not, why, and what one change would do."""

    offer: OfferScope = OfferScope()
    requirements: Requirements = Requirements()
    evidence: Annotated[list[Evidence], Meta(max_length=256)] = []  # noqa: RUF012 (msgspec copies it per instance)
    current: Current | None = None
    maximize: Maximize | None = None
    explain: bool = True
    limit: Annotated[int, Meta(ge=1, le=500)] = 20
    include_excluded: bool = True


# ---- the answer ----


class Requirement(Struct, frozen=True, kw_only=True):
    """One requirement of one candidate."""

    name: RequirementName
    status: Verdict
    reason: str
    evidence: str = ""
    """Where the facts are from: a source, a date, or what the caller stated."""


class CandidateMemory(Struct, frozen=True, kw_only=True):
    """The worst GPU of the candidate against what that GPU holds."""

    required: Amount
    usable_bytes: int
    headroom: Amount
    per_gpu: tuple[Amount, ...]
    """Required by each distinct load, in order of its first rank."""
    phase: str
    components: dict[str, int]
    """Expected bytes by component in the worst phase. [bytes]"""
    measured: bool = False
    """Whether a measurement of the caller replaced the estimate."""


class CandidatePrice(Struct, frozen=True, kw_only=True):
    """What the package costs, exactly as offered and for the asked duration."""

    amount: Decimal
    """Of one host for one `per`."""
    currency: str
    per: str
    for_duration: Decimal
    """Of all hosts for the asked duration, minimum terms and whole periods included."""
    duration_hours: float
    billed_hours: float
    kind: OfferKind
    as_of: str | None
    source: str
    spot: Decimal | None = None
    """Of all hosts for the duration at the interruptible price, where one is offered."""
    detail: str = ""


class Launch(Struct, frozen=True, kw_only=True):
    """Material that runs as given."""

    command: tuple[str, ...]
    env: dict[str, str]
    image: str | None = None
    """Container image with its tag; None where none is known for this accelerator."""
    docker: str
    kubernetes: dict[str, Any]
    files: dict[str, str] = {}
    """Files that the command reads, by name."""
    notes: tuple[str, ...] = ()


class Maximum(Struct, frozen=True, kw_only=True):
    """The largest value of one field that the candidate still serves."""

    field: str
    met: int | None
    """Largest value with verdict met; None: not even the smallest."""
    possible: int | None
    """Largest value that is not excluded."""
    limited_by: str
    detail: str = ""


class Candidate(Struct, frozen=True, kw_only=True):
    """One package with one placement and one format, judged."""

    rank: int
    sku: str
    provider: str
    gpu: str
    gpu_count: int
    hosts: int
    gpus_per_host: int
    placement: Placement
    weights_format: str
    kv_cache_dtype: str | None
    status: Verdict
    requirements: tuple[Requirement, ...]
    memory: CandidateMemory | None
    kv_cache: KvCache | None
    price: CandidatePrice | None
    missing: tuple[str, ...]
    """Requirements that still need confirmation."""
    region: str | None = None
    sharding: str | None = None
    """Sharding the search chose where the training card leaves it open."""
    why: str | None = None
    """Why it stands before the next."""
    maximum: Maximum | None = None
    launch: Launch | UnsetType = UNSET


class ExcludedGroup(Struct, frozen=True, kw_only=True):
    """Candidates that fell for the same requirement, with one example."""

    requirement: RequirementName
    count: int
    skus: tuple[str, ...]
    """First few by name. """
    example: Candidate
    reason: str


class Alternative(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One change, alone, against a base candidate."""

    field: str
    from_: Any
    to: Any
    saves_bytes: int
    """Expected bytes on the worst GPU; negative: it costs memory. [bytes]"""
    required: Amount
    verdict: Verdict | None
    risk: str
    """What it puts at risk: quality, length, speed, price."""
    sku: str | None = None
    price: CandidatePrice | None = None


class Considered(Struct, frozen=True, kw_only=True):
    """How far the search went. [unitless]"""

    skus: int
    apart: int
    """Packages left aside: offered only as spot or on a marketplace."""
    candidates: int
    estimates: int
    met: int
    needs_confirmation: int
    excluded: int
    dominated: int
    """Judged, then left out: the same package does the same with fewer hosts or more headroom."""


class CurrentReport(Struct, frozen=True, kw_only=True):
    """What the caller runs today, judged like any candidate, and the changes that help it."""

    candidate: Candidate
    remedies: tuple[Remedy, ...] = ()


class FitAnswer(Struct, frozen=True, kw_only=True):
    """The answer of /fit."""

    model: ModelReport
    candidates: tuple[Candidate, ...]
    selected: Candidate | None
    confirmations: tuple[str, ...]
    """With nothing selected: what is still missing for the first candidate; empty otherwise."""
    excluded: tuple[ExcludedGroup, ...]
    alternatives: tuple[Alternative, ...]
    current: CurrentReport | None
    diagnosis: Diagnosis | None
    measured: tuple[Measured, ...]
    considered: Considered
    assumptions: tuple[Assumption, ...]
    unknowns: tuple[str, ...]
    invalidated_by: tuple[str, ...]
    versions: Versions
    digest: str
