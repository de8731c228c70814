"""Inverse questions: the largest length, concurrency or micro-batch that a candidate still serves."""

from typing import NamedTuple

from msgspec.structs import replace

from tonnage.errors import SizingError
from tonnage.estimate.assemble import account_of, judge, verdict
from tonnage.estimate.changes import largest
from tonnage.fit.technical import Technical
from tonnage.spec.fit import Maximize, Maximum
from tonnage.spec.report import VERDICT_ORDER, Verdict
from tonnage.spec.workload import Workload
from tonnage.units import MILLION, format_size


class Dial(NamedTuple):
    """One field that can be turned."""

    part: str
    field: str
    high: int
    step: int


MOST_TOKENS, MOST_REQUESTS, MOST_BATCH = MILLION, 16_384, 4_096


def maximum(technical: Technical, wanted: Maximize) -> Maximum | None:
    """
    The largest value one candidate serves.

    Args:
        technical: Layout, format and GPU.
        wanted: Which value.

    Returns:
        Largest value that is met and largest that is not excluded; None where the card has no such field.
    """
    workload = technical.workload
    if workload is None or technical.account is None:
        return None
    if wanted == "headroom":
        free = technical.headroom
        return Maximum(field="/headroom", met=free, possible=free, limited_by="memory", detail=format_size(free))
    dial = _dial(workload, wanted)
    if dial is None:
        return None
    values = [_largest(technical, workload, dial, worst) for worst in ("met", "needs_confirmation")]
    met, possible = values
    limit = "range" if possible == dial.high else "memory"
    return Maximum(
        field=f"/{dial.part}/{dial.field}",
        met=met,
        possible=possible,
        limited_by=limit,
        detail=f"searched up to {dial.high:,} in steps of {dial.step:,}",
    )


def _dial(workload: Workload, wanted: Maximize) -> Dial | None:
    if workload.training is not None:
        length = Dial("training", "sequence_length", _longest(workload), 64)
        return {"micro_batch_size": Dial("training", "micro_batch_size", MOST_BATCH, 1), "max_model_len": length}.get(
            wanted
        )
    if workload.serving is None:
        return None
    requests = "batch_size" if hasattr(workload.serving, "batch_size") else "concurrency"
    dials = {
        "max_model_len": Dial("serving", "max_model_len", _longest(workload), 64),
        "concurrency": Dial("serving", requests, MOST_REQUESTS, 1),
    }
    return dials.get(wanted)


def _longest(workload: Workload) -> int:
    return workload.model.max_position_embeddings or MOST_TOKENS


def _largest(technical: Technical, workload: Workload, dial: Dial, worst: str) -> int | None:
    limit = VERDICT_ORDER[worst]  # type: ignore[index]

    def passes(value: int) -> bool:
        found = _verdict(technical, workload, dial, value)
        return found is not None and VERDICT_ORDER[found] <= limit

    return largest(passes, low=1, high=dial.high, step=dial.step)


def _verdict(technical: Technical, workload: Workload, dial: Dial, value: int) -> Verdict | None:
    part = getattr(workload, dial.part)
    changed = replace(workload, **{dial.part: replace(part, **{dial.field: value})})
    try:
        account = account_of(changed)
    except SizingError:
        return None
    return verdict(judge(changed, account), technical.gpu.memory_usable_bytes, account.findings)
