"""
An account becomes an answer: totals by counter, the peak, what is required, the verdict.

Nothing here knows an engine. Items of one phase add up; phases are compared, never added. Independent
bands add as the root of their squares, so that a sum of many small uncertainties stays narrow enough to
decide on.
"""

from collections.abc import Iterable
from math import isqrt
from typing import NamedTuple

from msgspec.structs import replace

from tonnage.estimate.identity import digest, model_report, versions
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.rules import rules_of_thumb
from tonnage.spec.card import Measurement
from tonnage.spec.facts import Gpu
from tonnage.spec.report import (
    VERDICT_ORDER,
    Account,
    Amount,
    Capacity,
    Counters,
    Estimate,
    Finding,
    GpuLoad,
    GpuReport,
    Host,
    Measured,
    MemoryItem,
    Peak,
    Phase,
    Verdict,
    exactly,
)
from tonnage.spec.workload import Workload
from tonnage.units import format_size, parse_size

_NO_HOST = Host(memory=exactly(0), disk_bytes=0)


class Judgement(NamedTuple):
    """What decides about an account, without the words of an answer."""

    gpus: tuple[GpuReport, ...]
    worst: int
    """Index of the GPU with the largest peak. [unitless]"""
    needed: tuple[Amount, ...]
    """Device memory each load needs, without the reserve. [bytes]"""
    required: Amount
    reserve: int
    claim: Amount | None
    """What an engine that claims by a fraction really takes. [bytes]"""


def account_of(workload: Workload) -> Account:
    """What the engine, the framework or neither makes of a resolved card, with what resolving it already found."""
    account = _account(workload)
    if not workload.findings and not workload.unknowns:
        return account
    return replace(
        account, findings=account.findings + workload.findings, unknowns=account.unknowns + workload.unknowns
    )


def _account(workload: Workload) -> Account:
    # each imported when first asked for: a server that only serves never loads the training laws
    if workload.serving is not None:
        from tonnage.estimate.serving import account as serving  # noqa: PLC0415

        return serving(workload)
    if workload.training is not None:
        from tonnage.estimate.training import account as training  # noqa: PLC0415

        return training(workload)
    from tonnage.estimate.plain import account as plain  # noqa: PLC0415

    return plain(workload)


def judge(workload: Workload, account: Account) -> Judgement:
    """Loads summed by phase and counter, the worst of them, and what the card requires."""
    claimed = account.claimed_bytes is not None
    gpus = tuple(_gpu_report(load, claimed) for load in account.loads)
    worst = max(range(len(gpus)), key=lambda i: gpus[i].peak.device.expected)
    needed = tuple(_needed(load, report, claimed) for load, report in zip(account.loads, gpus, strict=True))
    derived = max(needed, key=lambda a: a.expected)
    reserve = workload.reserve_bytes + int(workload.reserve_fraction * derived.expected)
    required = Amount(derived.low + reserve, derived.expected + reserve, derived.high + reserve)
    return Judgement(gpus, worst, needed, required, reserve, gpus[worst].peak.device if claimed else None)


class Screening(NamedTuple):
    """The device counter alone, for comparing many layouts: what is required, and what is claimed."""

    required: Amount
    claim: Amount | None


def screen(workload: Workload, account: Account) -> Screening:
    """
    What `judge` finds required and claimed, without its items and other counters.

    Args:
        workload: Resolved card.
        account: What its engine or framework makes of it.

    Returns:
        The same amounts as `judge`.
    """
    claimed = account.claimed_bytes is not None
    peak: Amount | None = None
    derived: Amount | None = None
    for load in account.loads:
        device, needed = _device_peak(load, claimed)
        peak = device if peak is None or device.expected > peak.expected else peak
        derived = needed if derived is None or needed.expected > derived.expected else derived
    if peak is None or derived is None:
        raise ValueError("an account without loads")
    reserve = workload.reserve_bytes + int(workload.reserve_fraction * derived.expected)
    required = Amount(derived.low + reserve, derived.expected + reserve, derived.high + reserve) if reserve else derived
    return Screening(required, peak if claimed else None)


def _device_peak(load: GpuLoad, claimed: bool) -> tuple[Amount, Amount]:
    """Device total of the worst phase, and of the worst with the claimed pool replaced by the demand."""
    demand = load.demand_kv if claimed else None
    worst = needed = (-1, 0, 0)
    largest, needs_demand = -1, False
    for phase in load.phases:
        at, rest = _device_sums(phase.items, claimed)
        if at[0] > worst[0]:
            worst = at
        if demand is not None:
            size = at[0] if rest is None else rest[0] + demand.expected
            if size > largest:
                largest, needed, needs_demand = size, rest or at, rest is not None
    peak = _banded(*worst)
    if load.needed is not None:
        return peak, load.needed
    if demand is None:
        return peak, peak
    return peak, _joined(_banded(*needed), demand) if needs_demand else _banded(*needed)


def _joined(rest: Amount, demand: Amount) -> Amount:
    """Two independent amounts alive together."""
    below = (rest.expected - rest.low) ** 2 + (demand.expected - demand.low) ** 2
    above = (rest.high - rest.expected) ** 2 + (demand.high - demand.expected) ** 2
    return _banded(rest.expected + demand.expected, below, above)


Sums = tuple[int, int, int]
"""Expected sum, squared half-widths below and above. [bytes, bytes^2]"""


def _device_sums(items: tuple[MemoryItem, ...], claimed: bool) -> tuple[Sums, Sums | None]:
    """
    Sums of a phase over all counters.

    Returns:
        With the band of a claimed pool (inside its budget only the sum is certain), and without the pool where there is one.
    """
    size = pool = below = above = inside_below = inside_above = pool_below = pool_above = 0
    has_pool = False
    for item in items:
        amount = item.bytes
        expected = amount.expected
        size += expected
        under, over = expected - amount.low, amount.high - expected
        if not item.inside_budget:
            if under or over:
                below += under * under
                above += over * over
        elif item.component == "kv_cache":
            has_pool = True
            pool += expected
            pool_below += under * under
            pool_above += over * over
        elif under or over:
            inside_below += under * under
            inside_above += over * over
    if claimed and has_pool:
        return (size, below, above), (size - pool, below + inside_below, above + inside_above)
    return (size, below + inside_below + pool_below, above + inside_above + pool_above), None


def verdict(judged: Screening | Judgement, usable: int, findings: tuple[Finding, ...]) -> Verdict:
    """Worst of capacity, claim and the engine's own findings."""
    worst = compare(judged.required, usable)
    for status in [f.status for f in findings] + ([] if judged.claim is None else [compare(judged.claim, usable)]):
        if VERDICT_ORDER[status] > VERDICT_ORDER[worst]:
            worst = status
    return worst


def assemble(workload: Workload, account: Account) -> Estimate:
    """
    The answer of /estimate from one account.

    Args:
        workload: Resolved card.
        account: What its engine or framework makes of it.

    Returns:
        The estimate, complete but for `diagnosis`.
    """
    gpus, worst, _, required, reserve, claim = judge(workload, account)
    capacity = _capacity(workload)
    reasons = _reasons(required, claim, capacity, account.findings)
    if reserve:
        gpus = tuple(_with_reserve(report, reserve) for report in gpus)
    return Estimate(
        model=model_report(workload, account.trainable_parameters),
        peak=gpus[worst].peak,
        required=required,
        claimed_bytes=account.claimed_bytes,
        phases=gpus[worst].phases,
        gpus=gpus,
        kv_cache=account.kv_cache,
        capacity=capacity,
        headroom=_headroom(capacity, required),
        verdict=_verdict(reasons) if capacity is not None else None,
        reasons=reasons,
        host=account.host or _NO_HOST,
        reserve_bytes=reserve,
        rules_of_thumb=rules_of_thumb(workload, account.trainable_parameters),
        assumptions=workload.assumptions + account.assumptions,
        unknowns=account.unknowns,
        invalidated_by=account.invalidated_by,
        measured=tuple(_measured(m, gpus[worst]) for m in workload.measurements),
        diagnosis=None,
        versions=versions(workload.catalog_version),
        digest=digest(workload),
    )


def total(items: Iterable[MemoryItem], *, claimed: bool = False) -> Counters:
    """
    Sum of the items of one moment by counter.

    Args:
        items: Items alive together.
        claimed: Whether the engine's pool is among them: inside its budget only the sum is certain.

    Returns:
        Allocated, reserved and device totals; bands combine as independent ones do.
    """
    sums = [0, 0, 0]
    below = [0, 0, 0]
    above = [0, 0, 0]
    for item in items:
        amount = item.bytes
        counter = item.counter
        at = 0 if counter == "allocated" else 1 if counter == "reserved" else 2
        sums[at] += amount.expected
        if not (claimed and item.inside_budget):
            below[at] += (amount.expected - amount.low) ** 2
            above[at] += (amount.high - amount.expected) ** 2
    allocated = _banded(sums[0], below[0], above[0])
    if not (sums[1] or sums[2] or above[1] or above[2]):
        return Counters(allocated, allocated, allocated)
    reserved = _banded(sums[0] + sums[1], below[0] + below[1], above[0] + above[1])
    device = _banded(sum(sums), sum(below), sum(above))
    return Counters(allocated, reserved, device)


def _banded(expected: int, below_squared: int, above_squared: int) -> Amount:
    return Amount(max(0, expected - isqrt(below_squared)), expected, expected + isqrt(above_squared))


def _is_pool(items: tuple[MemoryItem, ...]) -> bool:
    return any(item.component == "kv_cache" and item.inside_budget for item in items)


def _gpu_report(load: GpuLoad, claimed: bool) -> GpuReport:
    phases = tuple(
        Phase(phase=p.phase, total=total(p.items, claimed=claimed and _is_pool(p.items)), items=p.items)
        for p in load.phases
    )
    at = max(phases, key=lambda p: p.total.device.expected)
    peak = Peak(
        phase=at.phase,
        gpu_index=load.ranks[0],
        allocated=max((p.total.allocated for p in phases), key=lambda a: a.expected),
        reserved=max((p.total.reserved for p in phases), key=lambda a: a.expected),
        device=at.total.device,
    )
    return GpuReport(ranks=load.ranks, stage=load.stage, peak=peak, items=largest_items(phases), phases=phases)


def largest_items(phases: Iterable[Phase]) -> tuple[MemoryItem, ...]:
    """Each component's largest item over the phases; of one component all items of its largest phase."""
    best: dict[str, tuple[int, list[MemoryItem]]] = {}
    for phase in phases:
        by_component: dict[str, list[MemoryItem]] = {}
        for item in phase.items:
            by_component.setdefault(item.component, []).append(item)
        for component, items in by_component.items():
            size = sum(i.bytes.expected for i in items)
            if component not in best or size > best[component][0]:
                best[component] = (size, items)
    return tuple(item for _, items in best.values() for item in items)


def _needed(load: GpuLoad, report: GpuReport, claimed: bool) -> Amount:
    """Device peak with the claimed pool replaced by what the demand needs of it."""
    if load.needed is not None:
        return load.needed
    if load.demand_kv is None or not claimed:
        return report.peak.device
    return max((_without_pool(p, load.demand_kv) for p in report.phases), key=lambda a: a.expected)


def _without_pool(phase: Phase, demand: Amount) -> Amount:
    if not _is_pool(phase.items):
        return phase.total.device
    rest = total([i for i in phase.items if i.component != "kv_cache" or not i.inside_budget]).device
    return _joined(rest, demand)


def _capacity(workload: Workload) -> Capacity | None:
    return None if workload.gpu is None else _capacity_of(workload.gpu)


@remembered(512)
def _capacity_of(gpu: Gpu) -> Capacity:
    return Capacity(
        nominal_bytes=gpu.memory_nominal_bytes,
        usable_bytes=gpu.memory_usable_bytes,
        source=gpu.source,
        confidence=gpu.usable_confidence,
    )


def _headroom(capacity: Capacity | None, required: Amount) -> Amount | None:
    if capacity is None:
        return None
    usable = capacity.usable_bytes
    return Amount(usable - required.high, usable - required.expected, usable - required.low)


def compare(amount: Amount, usable: int) -> Verdict:
    """met: even the high end fits; excluded: even the low end does not; else it needs confirmation."""
    if amount.high <= usable:
        return "met"
    return "excluded" if amount.low > usable else "needs_confirmation"


def _reasons(
    required: Amount, claim: Amount | None, capacity: Capacity | None, findings: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    if capacity is None:
        return findings
    usable = capacity.usable_bytes
    reasons = [_capacity_finding("required", required, usable)]
    if claim is not None and (status := compare(claim, usable)) != "met":
        reasons.append(_capacity_finding("the engine's claim and what it takes outside it", claim, usable, status))
    return tuple(reasons) + findings


def _capacity_finding(what: str, amount: Amount, usable: int, status: Verdict | None = None) -> Finding:
    status = status or compare(amount, usable)
    relation = {"met": "fits", "excluded": "exceeds", "needs_confirmation": "may exceed"}[status]
    band = f"{format_size(amount.low)} to {format_size(amount.high)}"
    return Finding(
        status=status, reason=f"{what}: {band} {relation} {format_size(usable)} usable", field="/placement/gpu"
    )


def _verdict(reasons: tuple[Finding, ...]) -> Verdict:
    return max((r.status for r in reasons), key=VERDICT_ORDER.__getitem__)


def _with_reserve(report: GpuReport, reserve: int) -> GpuReport:
    item = MemoryItem(
        component="user_reserve",
        bytes=exactly(reserve),
        basis="user",
        law="reserve",
        source="request: /reserve",
        detail="the caller's own reserve: in `required`, never in `peak`",
        counter="device",
    )
    return GpuReport(
        ranks=report.ranks, stage=report.stage, peak=report.peak, items=(*report.items, item), phases=report.phases
    )


def _measured(measurement: Measurement, worst: GpuReport) -> Measured:
    peak_bytes = parse_size(measurement.peak_bytes)
    estimated = _by_counter(worst, measurement)
    agrees = estimated.low <= peak_bytes <= estimated.high
    where = measurement.phase or "peak"
    difference = format_size(peak_bytes - estimated.expected)
    note = (
        "inside the band"
        if agrees
        else f"{difference} from the expected {measurement.counter} of {where}, outside the band"
    )
    return Measured(
        phase=measurement.phase,
        counter=measurement.counter,
        measured_bytes=peak_bytes,
        estimated=estimated,
        agrees=agrees,
        note=note,
    )


def _by_counter(worst: GpuReport, measurement: Measurement) -> Amount:
    for phase in worst.phases:
        if phase.phase == measurement.phase:
            found: Amount = getattr(phase.total, measurement.counter)
            return found
    peak: Amount = getattr(worst.peak, measurement.counter)
    return peak
