"""What an estimate says: amounts with bands, items that name their law, phases, loads per GPU, verdicts."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Bytes = Annotated[int, Meta(description="bytes")]

Verdict = Literal["met", "needs_confirmation", "excluded"]
Basis = Literal["exact", "derived", "measured", "calibrated", "assumed", "user", "unknown"]
Counter = Literal["allocated", "reserved", "device"]
PhaseName = Literal[
    "load", "profile", "kv_allocation", "cuda_graph", "prefill", "decode", "idle", "generation",
    "forward", "backward", "optimizer_step", "evaluation", "export", "merge",
]  # fmt: skip

VERDICT_ORDER: dict[Verdict, int] = {"met": 0, "needs_confirmation": 1, "excluded": 2}


class Amount(Struct, frozen=True, gc=False):
    """A 95 % band in bytes: `low <= expected <= high`."""

    low: Bytes
    expected: Bytes
    high: Bytes

    def __post_init__(self) -> None:
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"a band must not cross itself: {self.low} <= {self.expected} <= {self.high}")


def exactly(amount: int) -> Amount:
    """Amount without a band."""
    return Amount(amount, amount, amount)


def within(amount: int, below: float, above: float | None = None) -> Amount:
    """
    Amount with a relative band.

    Args:
        amount: Expected size. [bytes]
        below: How much smaller the truth may be. [fraction of amount]
        above: How much larger; the same as `below` when omitted. [fraction of amount]

    Returns:
        The band.
    """
    above = below if above is None else above
    return Amount(amount - int(amount * below), amount, amount + int(amount * above))


class MemoryItem(Struct, frozen=True, gc=False, kw_only=True):
    """One term of the account: how many bytes, known how, by which law, from which source."""

    component: str
    bytes: Amount
    basis: Basis
    law: str
    source: str
    detail: str = ""
    counter: Counter = "allocated"
    """The innermost counter that sees it: allocated is inside reserved is inside device."""
    inside_budget: bool = False
    """Counted inside the fraction a pre-allocating engine claims. Once the pool is claimed the inside items and the pool
    add up to the claim whatever each one is, so assemble gives that sum no band of its own."""


class Counters(Struct, frozen=True, gc=False):
    """The same moment by three counters: tensors in use, allocator's pool, what nvidia-smi shows."""

    allocated: Amount
    reserved: Amount
    device: Amount


class Phase(Struct, frozen=True, gc=False, kw_only=True):
    """One phase of one GPU. Items add up to the totals; items of different phases are never added."""

    phase: PhaseName
    total: Counters
    items: tuple[MemoryItem, ...]


class Peak(Struct, frozen=True, gc=False, kw_only=True):
    """The worst moment of one GPU by counter."""

    phase: PhaseName
    gpu_index: int
    allocated: Amount
    reserved: Amount
    device: Amount


class GpuReport(Struct, frozen=True, gc=False, kw_only=True):
    """One distinct load and the ranks that carry it."""

    ranks: tuple[int, ...]
    stage: int
    peak: Peak
    items: tuple[MemoryItem, ...]
    phases: tuple[Phase, ...]


class CapacityTokens(Struct, frozen=True, gc=False):
    """Tokens the pool holds, as the engine prints them. [tokens]"""

    low: int
    expected: int
    high: int


class KvCache(Struct, frozen=True, gc=False, kw_only=True):
    """What the caches cost and hold on one GPU."""

    bytes_per_token: int
    state_bytes_per_sequence: int
    pool: Amount | None = None
    capacity_tokens: CapacityTokens | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    blocks: int | None = None
    block_size: int | None = None
    largest_max_model_len: int | None = None
    """Largest max_model_len of one request that the expected pool holds. [tokens]"""
    detail: str = ""


class Capacity(Struct, frozen=True, gc=False, kw_only=True):
    """What the card holds: as sold and as the allocator can have."""

    nominal_bytes: int
    usable_bytes: int
    source: str
    confidence: str = "reported"


class Host(Struct, frozen=True, gc=False, kw_only=True):
    """What the machine around the GPUs needs."""

    memory: Amount
    disk_bytes: int
    shared_memory_bytes: int = 0
    items: tuple[MemoryItem, ...] = ()


class Assumption(Struct, frozen=True, gc=False):
    """A field the card left open and the value the engine's or framework's own default gives it."""

    field: str
    value: Any
    why: str


class Finding(Struct, frozen=True, gc=False, kw_only=True):
    """One reason that decides the verdict beside plain capacity."""

    status: Verdict
    reason: str
    field: str = ""


class Measured(Struct, frozen=True, kw_only=True):
    """A caller's measurement beside our figure."""

    phase: str | None
    counter: Counter
    measured_bytes: int
    estimated: Amount
    agrees: bool
    note: str


class Remedy(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One change, alone, with what it saves on the GPU that is worst."""

    field: str
    from_: Any
    to: Any
    saves_bytes: int
    required: Amount
    verdict: Verdict | None
    cost: str


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Where the memory of a phase goes, and what one change each would do."""

    phase: str
    items: tuple[MemoryItem, ...]
    remedies: tuple[Remedy, ...]
    explanation: str
    read: dict[str, Any] = {}
    unread: tuple[str, ...] = ()


class ModelReport(Struct, frozen=True, kw_only=True):
    """The model as counted."""

    id: str | None
    revision: str | None
    family: str
    parameters: "ParameterReport"
    source: str
    trust: str = "exact"
    layers: str = ""


class ParameterReport(Struct, frozen=True, kw_only=True):
    """Parameters by use. [unitless]"""

    total: int
    active: int | None
    trainable: int | None
    by_component: dict[str, int]


class Step(Struct, frozen=True, kw_only=True):
    """One line of a derivation: a quantity, its formula, the same with the numbers put in, what they give."""

    name: str
    formula: str
    numbers: str
    value: int | float
    mathml: str
    """A `<math>` element whose rows are the formula, the numbers and the value, each after its "="; long sums take several."""


class PutIn(Struct, frozen=True, kw_only=True):
    """One number that a formula takes."""

    name: str
    value: str
    unit: str | None
    meaning: str


class Derivation(Struct, frozen=True, kw_only=True):
    """An item's law as a formula with the numbers put in; `?explain=true`."""

    component: str
    law: str
    expected_bytes: int
    detail: str
    """With component, law and size this tells which items it is about."""
    summary: str
    steps: tuple[Step, ...]
    inputs: tuple[PutIn, ...]
    exact: bool
    """Whether the last step is the item's expected size to the byte; otherwise the steps show one part of it."""
    note: str = ""


class Versions(Struct, frozen=True, kw_only=True):
    """What produced the answer."""

    service: str
    catalog: str
    method: str


class Estimate(Struct, frozen=True, gc=False, kw_only=True):
    """The answer of /estimate."""

    model: ModelReport
    peak: Peak
    required: Amount
    claimed_bytes: int | None
    phases: tuple[Phase, ...]
    gpus: tuple[GpuReport, ...]
    kv_cache: KvCache | None
    capacity: Capacity | None
    headroom: Amount | None
    verdict: Verdict | None
    reasons: tuple[Finding, ...]
    host: Host
    reserve_bytes: int
    rules_of_thumb: dict[str, dict[str, Any]]
    assumptions: tuple[Assumption, ...]
    unknowns: tuple[str, ...]
    invalidated_by: tuple[str, ...]
    measured: tuple[Measured, ...]
    diagnosis: Diagnosis | None
    versions: Versions
    digest: str
    launch: dict[str, Any] | UnsetType = UNSET
    derivations: tuple[Derivation, ...] | UnsetType = UNSET
    """Each distinct item's formula with the numbers put in, when asked for by `explain`."""


# ---- what an engine's or framework's accounting hands to estimate.assemble ----


class PhaseItems(Struct, frozen=True, gc=False):
    """The items alive at the worst moment of one phase on one GPU."""

    __hash__ = object.__hash__  # its totals are remembered by identity: accounts that share it share them

    phase: PhaseName
    items: tuple[MemoryItem, ...]


class GpuLoad(Struct, frozen=True, gc=False, kw_only=True):
    """One distinct load of a placement."""

    ranks: tuple[int, ...]
    stage: int
    phases: tuple[PhaseItems, ...]
    needed: Amount | None = None
    """What the card must really hold, where the peak shows more (an allocator that gives back under pressure); None: the
    peak by the device counter."""
    demand_kv: Amount | None = None
    """What the stated demand needs of the pool on this GPU; replaces item `kv_cache` in `required`.
    None: the pool is the demand (engines that allocate as needed, training)."""


class Deciding(Struct, frozen=True, gc=False):
    """What of an account decides, by the device counter alone: for comparing many layouts."""

    needed: Amount
    """What the GPU that needs most must hold, without the caller's reserve. [bytes]"""
    claim: Amount | None
    """What an engine that claims by a fraction takes on its fullest GPU; None of engines that allocate as needed."""
    findings: tuple[Finding, ...] = ()
    host: Host | None = None


class Account(Struct, frozen=True, gc=False, kw_only=True):
    """What one engine or framework makes of a workload, before capacity is looked at."""

    loads: tuple[GpuLoad, ...]
    kv_cache: KvCache | None = None
    claimed_bytes: int | None = None
    host: Host | None = None
    trainable_parameters: int | None = None
    assumptions: tuple[Assumption, ...] = ()
    unknowns: tuple[str, ...] = ()
    invalidated_by: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """The engine's own reasons (budget too small, slots run out, thin evidence): worst one wins."""
