"""
An account becomes an answer: totals by counter, the peak, what is required, the verdict.

Nothing here knows an engine; sums are the business of `estimate.totals`.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tonnage.estimate.accounts import account_of, decisive, highest
from tonnage.estimate.identity import digest, model_report, versions
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.rules import rules_of_thumb
from tonnage.estimate.totals import Summed, largest_items, load_needs, summed, total
from tonnage.spec.card import Measurement
from tonnage.spec.facts import Gpu
from tonnage.spec.report import (
    VERDICT_ORDER,
    Account,
    Amount,
    Capacity,
    Deciding,
    Estimate,
    Finding,
    GpuLoad,
    GpuReport,
    Host,
    Measured,
    MemoryItem,
    Peak,
    Verdict,
    exactly,
)
from tonnage.spec.workload import Workload
from tonnage.units import format_size, parse_size

_RELATIONS: dict[Verdict, str] = {"met": "fits", "excluded": "exceeds", "needs_confirmation": "may exceed"}
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


def judge(workload: Workload, account: Account) -> Judgement:
    """Loads summed by phase and counter, the worst of them, and what the card requires."""
    claimed = account.claimed_bytes is not None
    sums = [summed(load.phases, claimed) for load in account.loads]
    gpus = tuple(map(_gpu_report, account.loads, sums))
    needs = tuple([load_needs(load, found, claimed=claimed) for load, found in zip(account.loads, sums, strict=True)])
    worst, derived = 0, needs[0]
    if len(gpus) > 1:
        worst = max(range(len(gpus)), key=lambda i: gpus[i].peak.device.expected)
        derived = max(needs, key=lambda a: a.expected)
    reserve = workload.reserve_bytes + int(workload.reserve_fraction * derived.expected)
    required = Amount(derived.low + reserve, derived.expected + reserve, derived.high + reserve)
    return Judgement(gpus, worst, needs, required, reserve, gpus[worst].peak.device if claimed else None)


class Screening(NamedTuple):
    """The device counter alone, for comparing many layouts: what is required, and what is claimed."""

    required: Amount
    claim: Amount | None
    reserve: int


def screen(workload: Workload, deciding: Deciding) -> Screening:
    """
    What `judge` finds required and claimed, without its items and other counters.

    Args:
        workload: Resolved card.
        deciding: What of its account decides.

    Returns:
        The same amounts as `judge`.
    """
    needs = deciding.needed
    reserve = workload.reserve_bytes + int(workload.reserve_fraction * needs.expected)
    required = Amount(needs.low + reserve, needs.expected + reserve, needs.high + reserve) if reserve else needs
    return Screening(required, deciding.claim, reserve)


def verdict(judged: Screening | Judgement, usable: int, findings: tuple[Finding, ...]) -> Verdict:
    """Worst of capacity, claim and the engine's own findings."""
    worst = compare(judged.required, usable)
    for status in [f.status for f in findings] + ([] if judged.claim is None else [compare(judged.claim, usable)]):
        if VERDICT_ORDER[status] > VERDICT_ORDER[worst]:
            worst = status
    return worst


class Judged(NamedTuple):
    """What an answer says without its items is made from."""

    workload: Workload
    account: Account
    required: Amount
    reserve: int
    capacity: Capacity | None
    reasons: tuple[Finding, ...]


_WITHOUT_ITEMS: dict[str, Callable[[Judged], Any]] = {
    "model": lambda of: model_report(of.workload, of.account.trainable_parameters),
    "required": lambda of: of.required,
    "claimed_bytes": lambda of: of.account.claimed_bytes,
    "kv_cache": lambda of: of.account.kv_cache,
    "capacity": lambda of: of.capacity,
    "headroom": lambda of: _headroom(of.capacity, of.required),
    "verdict": lambda of: _verdict(of.reasons) if of.capacity is not None else None,
    "reasons": lambda of: of.reasons,
    "host": lambda of: of.account.host or _NO_HOST,
    "reserve_bytes": lambda of: of.reserve,
    "rules_of_thumb": lambda of: rules_of_thumb(of.workload, of.account.trainable_parameters),
    "assumptions": lambda of: of.workload.assumptions + of.account.assumptions,
    "unknowns": lambda of: of.account.unknowns,
    "invalidated_by": lambda of: of.account.invalidated_by,
    "versions": lambda of: versions(of.workload.catalog_version),
    "digest": lambda of: digest(of.workload),
}
WITHOUT_ITEMS = frozenset(_WITHOUT_ITEMS)
"""Fields of an answer that need no items."""


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
    peak, phases = gpus[worst].peak, gpus[worst].phases
    capacity = _capacity(workload)
    reasons = _reasons(required, claim, lambda: peak.device, capacity, account.findings)
    of = Judged(workload, account, required, reserve, capacity, reasons)
    if reserve:
        gpus = tuple(_with_reserve(report, reserve) for report in gpus)
    return Estimate(
        **{name: part(of) for name, part in _WITHOUT_ITEMS.items()},
        peak=peak,
        phases=phases,
        gpus=gpus,
        measured=tuple([_measured(m, gpus[worst]) for m in workload.measurements]),
        diagnosis=None,
    )


def without_items(workload: Workload, account: Account, fields: Iterable[str]) -> dict[str, Any]:
    """
    Some fields of the same answer, for callers who ask them of very many cards.

    Args:
        workload: Resolved card.
        account: What its engine or framework makes of it.
        fields: Names out of `WITHOUT_ITEMS`.

    Returns:
        What `assemble` gives them.
    """
    deciding = decisive(account)
    required, claim, reserve = screen(workload, deciding)
    capacity = _capacity(workload)
    reasons = _reasons(required, claim, lambda: highest(account), capacity, account.findings)
    of = Judged(workload, account, required, reserve, capacity, reasons)
    return {name: _WITHOUT_ITEMS[name](of) for name in fields}


def _gpu_report(load: GpuLoad, found: Summed) -> GpuReport:
    peak = Peak(
        phase=found.worst.phase,
        gpu_index=load.ranks[0],
        allocated=found.allocated,
        reserved=found.reserved,
        device=found.highest,
    )
    return GpuReport(ranks=load.ranks, stage=load.stage, peak=peak, items=found.items, phases=found.phases)


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
    required: Amount,
    claim: Amount | None,
    peak: Callable[[], Amount],
    capacity: Capacity | None,
    findings: tuple[Finding, ...],
) -> tuple[Finding, ...]:
    if capacity is None:
        return findings
    usable = capacity.usable_bytes
    reasons = [_capacity_finding("required", required, usable)]
    if claim is not None and (status := compare(claim, usable)) != "met":
        reasons.append(_capacity_finding("the engine's claim and what it takes outside it", claim, usable, status))
    if claim is None and required.high <= usable < (most := peak()).high:
        reasons.append(_given_back(most))
    return tuple(reasons) + findings


def _capacity_finding(what: str, amount: Amount, usable: int, status: Verdict | None = None) -> Finding:
    status = status or compare(amount, usable)
    relation = _RELATIONS[status]
    band = f"{format_size(amount.low)} to {format_size(amount.high)}"
    return Finding(
        status=status, reason=f"{what}: {band} {relation} {_text_of_usable(usable)} usable", field="/placement/gpu"
    )


_text_of_usable = remembered(512)(format_size)


def _given_back(peak: Amount) -> Finding:
    """Why a peak above the card is met."""
    pool = f"the peak of up to {format_size(peak.high)} is that of a pool without limit"
    words = f"{pool}: on a full card the allocator gives unused blocks back, so required decides"
    return Finding(status="met", reason=words, field="/placement/gpu")


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
    where: str = measurement.phase or "peak"
    if all(phase.phase != where for phase in worst.phases):
        where = "the peak" if measurement.phase is None else f"the peak, for want of a phase {where}"
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


__all__ = ["account_of", "assemble", "compare", "judge", "largest_items", "screen", "total", "verdict"]
