"""
A run that failed: which items peak in that phase, and what one change each would do.

Every remedy is priced by a new estimate of the changed card, so that it is the same physics as the answer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tonnage.errors import SizingError
from tonnage.estimate.changes import Reestimate, Tried, changed, largest
from tonnage.estimate.remedies import Rung, Scene, ladder
from tonnage.spec.card import SizingCard
from tonnage.spec.model import Model
from tonnage.spec.report import (
    VERDICT_ORDER,
    Diagnosis,
    Estimate,
    MemoryItem,
    Phase,
    Remedy,
    Verdict,
)
from tonnage.units import format_size

MOST_REMEDIES = 16
WORTH_A_CHANGE = 200
"""A change that saves less than one part in so many and helps no verdict is not worth naming. [unitless]"""
_UNCERTAIN = {
    "unknown": 1.0,
    "assumed": 0.5,
    "calibrated": 0.3,
    "derived": 0.1,
    "measured": 0.05,
    "exact": 0.0,
    "user": 0.0,
}
"""Weight of an item's basis when a disagreement is traced to it. [fraction of its size]"""


def diagnose(
    *,
    card: SizingCard,
    model: Model,
    estimate: Estimate,
    phase: str | None,
    numbers: Mapping[str, Any],
    unread: tuple[str, ...],
    reestimate: Reestimate,
) -> Diagnosis:
    """
    Where the memory of the failing phase goes and which single changes help.

    Args:
        card: The card as stated.
        model: Its model.
        estimate: Its estimate.
        phase: Phase that failed, None: the one that peaks.
        numbers: What the failure's text says. [bytes]
        unread: Lines of it that were not understood.
        reestimate: Estimate of a changed card.

    Returns:
        Items largest first, remedies in the order they are worth trying.
    """
    phase = phase or estimate.peak.phase
    shown = phase_of(estimate, phase)
    items = tuple(sorted(shown.items, key=lambda i: (-i.bytes.expected, i.component)))
    return Diagnosis(
        phase=phase,
        items=items,
        remedies=remedies(Scene(card, estimate, model), phase, reestimate, shortage=_shortage(numbers)),
        explanation=" ".join(_sentences(estimate, phase, shown, items, numbers)),
        read=dict(numbers),
        unread=unread,
    )


def phase_of(estimate: Estimate, phase: str) -> Phase:
    """The phase of the worst GPU, or the peak's where the estimate has no such phase."""
    by_name = {p.phase: p for p in estimate.phases}
    found = by_name.get(phase) or by_name.get(estimate.peak.phase)  # type: ignore[call-overload]
    return found if found is not None else estimate.phases[0]


def remedies(
    scene: Scene,
    phase: str,
    reestimate: Reestimate,
    *,
    shortage: int | None = None,
    most: int = MOST_REMEDIES,
    skip: Callable[[Rung], bool] = lambda _: False,
) -> tuple[Remedy, ...]:
    """
    Priced changes of one card.

    Args:
        scene: Card, estimate and model.
        phase: Phase whose memory is to shrink.
        reestimate: Estimate of a changed card.
        shortage: Bytes that were missing in the failed run, None when not known. [bytes]
        most: Changes to keep.
        skip: Rungs not to be tried.

    Returns:
        Only changes that save memory or improve the verdict, in the ladder's order.
    """
    found: list[Remedy] = []
    for rung in ladder(scene, phase):
        remedy = None if skip(rung) else _priced(scene, phase, rung, reestimate, shortage)
        if remedy is not None:
            found.append(remedy)
        if len(found) >= most:
            break
    return tuple(found)


def most_likely(items: tuple[MemoryItem, ...], difference: int) -> MemoryItem | None:
    """
    The item that most likely explains a disagreement.

    Args:
        items: Items alive in the phase, as far as the counter sees them.
        difference: Measured minus expected. [bytes]

    Returns:
        The one with the most room for that difference: its half-width and the doubt in how it is known.
    """

    def room(item: MemoryItem) -> float:
        amount = item.bytes
        half = amount.high - amount.expected if difference > 0 else amount.expected - amount.low
        return half + _UNCERTAIN[item.basis] * amount.expected

    return max(items, key=lambda i: (room(i), i.bytes.expected), default=None)


def _priced(scene: Scene, phase: str, rung: Rung, reestimate: Reestimate, shortage: int | None) -> Remedy | None:
    card = scene.card
    for field, value in rung.also:
        card = changed(card, field, value)

    def measured(value: Any) -> tuple[Estimate | Tried, int]:
        after = reestimate(changed(card, rung.field, value))
        return after, _size(scene.estimate, phase) - _size(after, phase)

    try:
        value = _searched(scene.estimate.verdict, rung, measured, shortage) if rung.search else rung.to
        after, saves = measured(value)
    except SizingError:
        return None
    verdict = _judged(after.verdict, saves, shortage)
    worth = saves * WORTH_A_CHANGE > scene.estimate.required.expected
    if not worth and not _better(verdict, scene.estimate.verdict):
        return None
    return Remedy(
        field=rung.field,
        from_=rung.from_,
        to=value,
        saves_bytes=saves,
        required=after.required,
        verdict=verdict,
        cost=rung.cost,
    )


def _searched(
    before: Verdict | None, rung: Rung, measured: Callable[[Any], tuple[Estimate | Tried, int]], shortage: int | None
) -> int:
    """
    Largest value below the present one that is met and makes up the shortage, else that is not excluded, else half of it.

    Where the estimate met the present value already and nothing says how much was missing, half is proposed.
    """
    half = max(int(rung.to), int(rung.from_) // 2)
    if before is None or (before == "met" and shortage is None):
        return half
    high = int(rung.from_) - 1

    def passes(value: int, worst: Verdict) -> bool:
        after, saves = measured(value)
        enough = shortage is None or saves >= shortage
        return enough and after.verdict is not None and VERDICT_ORDER[after.verdict] <= VERDICT_ORDER[worst]

    step = 1 << max(0, (high // 64).bit_length() - 1)
    levels: tuple[Verdict, ...] = ("met", "needs_confirmation")
    for worst in levels:
        value = largest(lambda v, w=worst: passes(v, w), low=int(rung.to), high=high, step=step)  # type: ignore[misc]
        if value is not None:
            return value
    return half


def _size(estimate: Estimate | Tried, phase: str) -> int:
    """What a change should shrink: the failing phase where memory is allocated as needed, else what the demand requires."""
    if not isinstance(estimate, Tried) and estimate.claimed_bytes is None:
        for shown in estimate.phases:
            if shown.phase == phase:
                return shown.total.device.expected
    return estimate.required.expected


def _judged(verdict: Verdict | None, saves: int, shortage: int | None) -> Verdict | None:
    """A change that saves less than what was missing is not established, whatever the estimate says."""
    return "needs_confirmation" if verdict == "met" and shortage is not None and saves < shortage else verdict


def _better(after: Verdict | None, before: Verdict | None) -> bool:
    return after is not None and before is not None and VERDICT_ORDER[after] < VERDICT_ORDER[before]


def _shortage(numbers: Mapping[str, Any]) -> int | None:
    for needed, there in (("requested_bytes", "free_bytes"), ("kv_needed_bytes", "kv_available_bytes")):
        if needed in numbers and there in numbers:
            return max(0, int(numbers[needed]) - int(numbers[there]))
    return None


def _sentences(
    estimate: Estimate, phase: str, shown: Phase, items: tuple[MemoryItem, ...], numbers: Mapping[str, Any]
) -> list[str]:
    words = [] if shown.phase == phase else [f"No law has a phase {phase} of its own here; {shown.phase} is shown."]
    if items:
        largest_items = ", ".join(f"{i.component} {format_size(i.bytes.expected)}" for i in items[:3])
        words.append(f"Of {format_size(shown.total.device.expected)} in {shown.phase} the largest are {largest_items}.")
    words += _from_text(numbers)
    needed = _needed(numbers)
    if needed is not None:
        words.append(_compared(shown, needed))
    if estimate.verdict == "excluded":
        words += [f"{r.reason}." for r in estimate.reasons if r.status == "excluded"][:2]
    return words


def _needed(numbers: Mapping[str, Any]) -> int | None:
    if "allocated_bytes" in numbers and "requested_bytes" in numbers:
        return int(numbers["allocated_bytes"]) + int(numbers["requested_bytes"])
    return None


def _compared(shown: Phase, needed: int) -> str:
    amount = shown.total.allocated
    if needed <= amount.high:
        return f"The text shows that at least {format_size(needed)} of tensors were needed; the estimate allows for it."
    item = most_likely(tuple(i for i in shown.items if i.counter == "allocated"), needed - amount.expected)
    blame = f"; {item.component} ({item.basis}) most likely explains it" if item is not None else ""
    return f"The text shows at least {format_size(needed)} of tensors, above our {format_size(amount.high)}{blame}."


def _from_text(numbers: Mapping[str, Any]) -> list[str]:
    words = []
    others = sum(numbers.get("other_process_bytes", []))
    if others:
        words.append(f"Other processes hold {format_size(others)} of this card: free that first.")
    idle, asked = numbers.get("reserved_unallocated_bytes", 0), numbers.get("requested_bytes", 0)
    if asked and idle >= asked:
        words.append(
            f"{format_size(idle)} were reserved but unallocated, more than the {format_size(asked)} asked for: fragmentation; "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is the first thing to try."
        )
    if "claim_bytes" in numbers and "free_bytes" in numbers:
        words.append(
            f"The engine wants {format_size(numbers['claim_bytes'])} and finds {format_size(numbers['free_bytes'])} free: "
            "something else holds memory; this is no shortage of the workload."
        )
    if "mamba_blocks" in numbers:
        words.append(f"Recurrent states allow {numbers['mamba_blocks']} running requests, whatever bytes remain.")
    return words
