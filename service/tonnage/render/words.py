"""Words and numbers that every rendering shares."""

import re
from collections.abc import Iterable

from tonnage.spec.card import Placement
from tonnage.spec.fit import Candidate, CandidatePrice
from tonnage.spec.report import Amount, Estimate, MemoryItem, Phase
from tonnage.units import KiB, format_size

MARKS = {"met": "met", "needs_confirmation": "to confirm", "excluded": "excluded", None: "no capacity given"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]|[\ud800-\udfff]")


def clean(text: object) -> str:
    """Text on one line, without control characters: names may come from a caller."""
    return _CONTROL.sub(" ", str(text))


def band(amount: Amount) -> str:
    """Expected size with its band in brackets."""
    if amount.low == amount.high:
        return format_size(amount.expected)
    return f"{format_size(amount.expected)} [{format_size(amount.low)} .. {format_size(amount.high)}]"


def model_line(estimate: Estimate) -> str:
    """The model and how many parameters it has."""
    parameters = estimate.model.parameters
    trained = "" if parameters.trainable is None else f", {parameters.trainable:,} trained"
    return f"{clean(estimate.model.id or estimate.model.family)}: {parameters.total:,} parameters{trained}"


def layout(placement: Placement) -> str:
    """Sizes above one, such as "tp4 pp2"; "1 GPU" when there is nothing to split."""
    parts = (
        ("tp", placement.tensor_parallel_size),
        ("pp", placement.pipeline_parallel_size),
        ("dp", placement.data_parallel_size),
        ("ep", placement.expert_parallel_size),
        ("cp", placement.context_parallel_size),
    )
    return " ".join(f"{name}{size}" for name, size in parts if size > 1) or "1 GPU"


def worst_phase(estimate: Estimate) -> Phase | None:
    """The phase of the peak."""
    return next((p for p in estimate.phases if p.phase == estimate.peak.phase), None)


def largest_first(items: Iterable[MemoryItem]) -> list[MemoryItem]:
    """Items worth a line of their own by expected size, the name deciding ties."""
    return sorted((i for i in items if i.bytes.high >= SMALL), key=lambda i: (-i.bytes.expected, i.component))


SMALL = 1 * KiB
"""Items that cannot reach this are told together. [bytes]"""


def small_ones(items: Iterable[MemoryItem]) -> tuple[str, Amount] | None:
    """Items too small for a line of their own, as one: how many, and their sum."""
    small = [i.bytes for i in items if i.bytes.high < SMALL]
    if not small:
        return None
    words = f"{len(small)} item{'s' * (len(small) > 1)} below {format_size(SMALL)}"
    return words, Amount(sum(a.low for a in small), sum(a.expected for a in small), sum(a.high for a in small))


def price(cost: CandidatePrice | None) -> str:
    """Total for the duration, or that there is none."""
    if cost is None:
        return "no price"
    return f"{cost.for_duration:.{2 if cost.for_duration >= 1 else 4}f} {cost.currency}"


def package(candidate: Candidate) -> str:
    """Hosts, GPUs and what they are, such as "2 x 8 x h100-sxm"."""
    hosts = f"{candidate.hosts} x " if candidate.hosts > 1 else ""
    return f"{hosts}{candidate.gpus_per_host} x {clean(candidate.gpu)}"
