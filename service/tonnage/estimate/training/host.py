"""What the machine around the GPUs holds: pinned copies of what is offloaded, the checkpoint on disk."""

from tonnage.estimate.training.settings import FSDP, ZERO, Settings
from tonnage.laws import training_sharding
from tonnage.spec.report import Host, MemoryItem, exactly, within
from tonnage.units import GiB

PROCESS = 2 * GiB
"""Python, CUDA libraries and data loaders of one training process; seen 1.5 to 4 GiB. [bytes]"""


def host_of(
    settings: Settings, *, weights: int, master: int, states: int, trainable: int, kept: int, disk: int
) -> Host:
    """
    Host memory of one machine with all ranks of the job.

    Args:
        settings: The job.
        weights: Weights of one rank before data parallelism cuts them. [bytes]
        master: fp32 copies, uncut. [bytes]
        states: Optimizer states, uncut. [bytes]
        trainable: Trainable parameters. [unitless]
        kept: Activations that checkpointing keeps, where they are offloaded. [bytes]
        disk: Checkpoint as loaded. [bytes]

    Returns:
        Memory with its items, and disk.
    """
    processes = settings.ranks * settings.tensor_parallel_size * settings.pipeline_parallel_size
    items = [_item("framework", processes * PROCESS, "assumed", "processes with their libraries", "laws.runtime")]
    pinned = _offloaded(settings, weights, master, states, trainable)
    if pinned:
        items.append(
            _item(
                "optimizer_states",
                pinned,
                "derived",
                "pinned parameters, gradients, states",
                "laws.training_sharding.shard",
            )
        )
    if settings.offload_activations and kept:
        items.append(
            _item(
                "activations",
                kept * settings.ranks,
                "derived",
                "block inputs of the micro-batch",
                "laws.activations.at_moment",
            )
        )
    total = sum(i.bytes.expected for i in items)
    return Host(memory=within(total, 0.3, 0.6), disk_bytes=disk, items=tuple(items))


def _offloaded(settings: Settings, weights: int, master: int, states: int, trainable: int) -> int:
    """All ranks together: shards add up to the whole."""
    if not (settings.offload_parameters or settings.offload_optimizer):
        return 0
    gradients = training_sharding.shard(amount=4 * trainable, ranks=1)
    total = states + master + gradients
    if settings.offload_parameters or settings.sharding in ZERO:
        total += weights
    return total if settings.sharding in FSDP or settings.sharding in ZERO else total * settings.ranks


def _item(component: str, amount: int, basis: str, detail: str, law: str) -> MemoryItem:
    return MemoryItem(
        component=component,
        bytes=exactly(amount),
        basis=basis,  # type: ignore[arg-type]  # one of Basis, by the callers above
        law=law,
        source="deepspeedai/DeepSpeed@edaa72212 runtime/zero (pinned buffers); pytorch/ao@v0.14.1 torchao/optim/cpu_offload.py",
        detail=detail,
        counter="device",
    )
