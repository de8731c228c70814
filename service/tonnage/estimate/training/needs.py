"""What a job must have on a card: its pool, and what lies outside the allocator: context, communicators, an engine."""

from typing import NamedTuple

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.training import counters
from tonnage.estimate.training.items import item
from tonnage.estimate.training.settings import ZERO, Settings
from tonnage.estimate.training.solve import Solved, Stage
from tonnage.laws import budget, runtime
from tonnage.spec.facts import Gpu
from tonnage.spec.report import Amount, MemoryItem


class Outside(NamedTuple):
    """What of a card the allocator does not see."""

    items: tuple[MemoryItem, ...]
    """Context, and communicators."""
    size: Amount
    """Of these. [bytes]"""
    left: int | None
    """What a full card leaves to the pool: communicators are made as they are used; None: no card stated. [bytes]"""
    claim: int
    """What a colocated engine takes of the card. [bytes]"""


def outside(job: Settings, gpu: Gpu | None) -> Outside:
    """
    What lies outside the allocator whatever trains.

    Args:
        job: The job.
        gpu: The card; None: not stated.

    Returns:
        Items, their sums, and a colocated engine.
    """
    share = job.card.vllm_gpu_memory_utilization if job.objective in ("grpo", "ppo") else None
    return _outside(gpu, not job.libraries.at_least("torch", "2.1"), _communicators(job), share)


def needs(job: Solved, around: Outside) -> tuple[Amount, ...]:
    """
    What the card of each stage must hold; states in unified memory give way.

    Args:
        job: The job.
        around: What lies outside the allocator.

    Returns:
        By stage. [bytes]
    """
    size, engine = around.size, around.claim
    if not engine:
        return tuple([_plus(stage.needed, size) for stage in job.stages])
    if not job.settings.card.vllm_enable_sleep_mode:
        size = Amount(size.low + engine, size.expected + engine, size.high + engine)
        return tuple([_plus(stage.needed, size) for stage in job.stages])
    return tuple([_plus(_in_turn(stage, engine), size) for stage in job.stages])


def _in_turn(stage: Stage, engine: int) -> Amount:
    """The larger of training beside a sleeping engine and that engine awake beside what is resident."""
    training, left, awake = stage.needed, budget.asleep(claim=engine), stage.share.resident_bytes + engine
    return Amount(
        max(training.low + left // 3, awake),
        max(training.expected + left, awake),
        max(training.high + 2 * left, awake),
    )


def _plus(one: Amount, other: Amount) -> Amount:
    return Amount(one.low + other.low, one.expected + other.expected, one.high + other.high)


def _communicators(job: Settings) -> int:
    """Communicators of a rank; DeepSpeed builds them with one GPU too. [bytes]"""
    return runtime.training_communicators(
        ranks=job.ranks * job.tensor_parallel_size * job.context_parallel_size * job.pipeline_parallel_size,
        built_alone=job.sharding in ZERO,
    )


@remembered(1024)
def _outside(gpu: Gpu | None, eager: bool, communicators: int, share: float | None) -> Outside:
    context = counters.context(gpu, eager=eager)
    items = [
        item(
            "device_context", context, "laws.device_context.cuda", "measured: laws.device_context", basis="measured",
            counter="device", band=(context // 4, context // 2),
        )
    ]  # fmt: skip
    least = items[0].bytes.expected
    if communicators:
        items.append(
            item(
                "communication", communicators, "laws.runtime.training_communicators", "NVIDIA/nccl issues 964, 864",
                basis="calibrated", counter="device", band=(communicators // 2, communicators),
            )
        )  # fmt: skip
        least += items[1].bytes.low
    size = Amount(
        sum(i.bytes.low for i in items), sum(i.bytes.expected for i in items), sum(i.bytes.high for i in items)
    )
    if gpu is None:
        return Outside(tuple(items), size, None, 0)
    usable = gpu.memory_usable_bytes
    claim = 0 if share is None else budget.fraction_of_total(fraction=share, total=usable)
    return Outside(tuple(items), size, usable - least, claim)
