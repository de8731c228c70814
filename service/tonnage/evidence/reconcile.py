"""
What the caller measured beside what was estimated; a measured peak takes the estimate's place.

Counters are never mixed: a measurement replaces only what its own counter sees, and what lies outside
(allocator's pool, context) stays estimated. A disagreement is reported, with the item that most likely
explains it, and changes nothing silently.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from msgspec.structs import replace

from tonnage.estimate.diagnosis import most_likely, phase_of
from tonnage.spec.card import Measurement
from tonnage.spec.report import (
    Amount,
    Counter,
    Estimate,
    Finding,
    Measured,
    MemoryItem,
    Phase,
    Verdict,
    exactly,
)
from tonnage.units import format_size, parse_size

_INSIDE: dict[Counter, tuple[Counter, ...]] = {
    "allocated": ("allocated",),
    "reserved": ("allocated", "reserved"),
    "device": ("allocated", "reserved", "device"),
}


class Part(NamedTuple):
    """A line of a log and the items it stands for."""

    phase: str
    components: tuple[str, ...]


PARTS: dict[str, Part] = {
    "weights_bytes": Part("load", ("weights", "buffers", "lora_adapters")),
    "activation_bytes": Part("profile", ("activations", "logits", "sampler", "vision_encoder", "workspace")),
    "non_torch_bytes": Part("profile", ("communication", "framework")),
    "cuda_graph_bytes": Part("cuda_graph", ("cuda_graphs",)),
    "compute_bytes": Part("prefill", ("activations", "logits", "workspace")),
    "recurrent_state_bytes": Part("prefill", ("recurrent_state",)),
    "kv_cache_bytes": Part("kv_allocation", ("kv_cache",)),
    "kv_available_bytes": Part("kv_allocation", ("kv_cache",)),
}
"""As CONTRACT.md sets what engines print beside our items."""

PEAKS: dict[str, Counter] = {
    "peak_allocated_bytes": "allocated",
    "peak_reserved_bytes": "reserved",
    "peak_device_bytes": "device",
}


def read_parts(estimate: Estimate, numbers: Mapping[str, Any]) -> tuple[Measured, ...]:
    """
    Lines of a pasted text beside our items.

    Args:
        estimate: What was estimated.
        numbers: What the text says. [bytes]

    Returns:
        One comparison per part and per peak that both sides have.
    """
    parts = (_part(estimate, PARTS[name], numbers[name]) for name in PARTS if name in numbers)
    peaks = (_peak(estimate, counter, numbers[name]) for name, counter in PEAKS.items() if name in numbers)
    return tuple(m for m in (*parts, *peaks) if m is not None)


def reconciled(estimate: Estimate, measurements: tuple[Measurement, ...], *, gpu: str | None) -> Estimate:
    """
    The estimate after the caller's measurements.

    Args:
        estimate: With `measured` not yet explained.
        measurements: As stated.
        gpu: The GPU the estimate is for.

    Returns:
        `measured` with its likely explanation; `required`, `headroom` and `verdict` from the measured peak where one
        applies to this GPU and the engine does not claim a pool.
    """
    elsewhere = [m.gpu if None not in (m.gpu, gpu) and m.gpu != gpu else None for m in measurements]
    rows = tuple(
        _explained(estimate, row) if other is None else replace(row, note=f"measured on {other}, not {gpu}; {row.note}")
        for row, other in zip_longest(estimate.measured, elsewhere[: len(estimate.measured)])
    )
    estimate = replace(estimate, measured=rows)
    peaks = (None, estimate.peak.phase)  # a peak of another phase says nothing of what the worst one needs
    applying = [m for m in measurements if m.phase in peaks and (m.gpu is None or gpu is None or m.gpu == gpu)]
    if estimate.claimed_bytes is not None or not applying:
        return estimate
    required = max((_measured_device(estimate, m) for m in applying), key=lambda a: a.expected)
    return _with_required(estimate, required)


def _with_required(estimate: Estimate, device: Amount) -> Estimate:
    reserve = estimate.reserve_bytes
    required = Amount(device.low + reserve, device.expected + reserve, device.high + reserve)
    if estimate.capacity is None:
        return replace(estimate, required=required)
    usable = estimate.capacity.usable_bytes
    status: Verdict = (
        "met" if required.high <= usable else "excluded" if required.low > usable else "needs_confirmation"
    )
    reason = f"measured: {format_size(required.expected)} against {format_size(usable)} usable; replaces the estimate"
    others = tuple(r for r in estimate.reasons if r.field != "/placement/gpu")
    worst = status if all(r.status == "met" for r in others) else max((status, *(r.status for r in others)), key=_rank)
    return replace(
        estimate,
        required=required,
        headroom=Amount(usable - required.high, usable - required.expected, usable - required.low),
        reasons=(Finding(status=status, reason=reason, field="/measurements"), *others),
        verdict=worst,
    )


def _rank(verdict: Verdict) -> int:
    return ("met", "needs_confirmation", "excluded").index(verdict)


def _measured_device(estimate: Estimate, measurement: Measurement) -> Amount:
    """The measured peak and, outside its counter, what is still only estimated."""
    peak = parse_size(measurement.peak_bytes)
    if measurement.counter == "device":
        return exactly(peak)
    outside = list(_outside(phase_of(estimate, estimate.peak.phase), measurement.counter))
    low, expected, high = (sum(getattr(i.bytes, side) for i in outside) for side in ("low", "expected", "high"))
    if measurement.counter == "allocated":
        kept = max(0, estimate.required.expected - estimate.reserve_bytes - estimate.peak.allocated.expected)
        low, expected, high = min(low, kept), min(expected, kept), min(high, kept + high - expected)
    return Amount(peak + low, peak + expected, peak + high)


def _outside(phase: Phase, counter: Counter) -> Iterator[MemoryItem]:
    return (i for i in phase.items if i.counter not in _INSIDE[counter])


def _explained(estimate: Estimate, row: Measured) -> Measured:
    if row.agrees:
        return row
    phase = phase_of(estimate, row.phase or estimate.peak.phase)
    seen = tuple(i for i in phase.items if i.counter in _INSIDE[row.counter])
    item = most_likely(seen, row.measured_bytes - row.estimated.expected)
    if item is None:
        return row
    return replace(row, note=f"{row.note}; {item.component} ({item.basis}, {item.law}) most likely explains it")


def _part(estimate: Estimate, part: Part, measured: int) -> Measured | None:
    phase = phase_of(estimate, part.phase)
    items = [i for i in phase.items if i.component in part.components]
    amount = _sum(items)
    if part.components == ("kv_cache",) and estimate.kv_cache is not None and estimate.kv_cache.pool is not None:
        amount = estimate.kv_cache.pool
    elif not items:
        return None
    return _row(
        phase.phase, "allocated", measured, amount, " + ".join(dict.fromkeys(i.component for i in items)) or "kv_cache"
    )


def _sum(items: list[MemoryItem]) -> Amount:
    return Amount(*(sum(getattr(i.bytes, side) for i in items) for side in ("low", "expected", "high")))


def _peak(estimate: Estimate, counter: Counter, measured: int) -> Measured:
    amount: Amount = getattr(estimate.peak, counter)
    return _explained(estimate, _row(None, counter, measured, amount, f"peak {counter}"))


def _row(phase: str | None, counter: Counter, measured: int, amount: Amount, what: str) -> Measured:
    agrees = amount.low <= measured <= amount.high
    difference = format_size(measured - amount.expected)
    note = f"{what}, read from the text" if agrees else f"{what}, read from the text: {difference} from the expected"
    return Measured(phase=phase, counter=counter, measured_bytes=measured, estimated=amount, agrees=agrees, note=note)
