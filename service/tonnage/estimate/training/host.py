"""What the machine around the GPUs holds: what is offloaded, what is being saved, the checkpoint on disk."""

from typing import NamedTuple

from tonnage.estimate.training.settings import FSDP, ZERO, Settings
from tonnage.laws import host_offload, training_sharding
from tonnage.spec.report import Host, MemoryItem, exactly, within
from tonnage.units import GiB

PROCESS = 2 * GiB
"""Python, CUDA libraries and data loaders of one training process; seen 1.5 to 4 GiB. [bytes]"""
_DEEPSPEED = "deepspeedai/DeepSpeed@v0.18.2 runtime/zero, runtime/swap_tensor; estimate_zero3_model_states_mem_needs"
_TORCHAO = "pytorch/ao@173b31ec3 torchao/optim/cpu_offload.py"
_FSDP = "pytorch/pytorch@v2.8.0 torch/distributed/fsdp/_fully_shard/_fsdp_param.py (CPUOffloadPolicy)"


class OnHost(NamedTuple):
    """The whole model, before anything is cut, as far as the host may hold it. [bytes]"""

    weights: int
    adapters: int
    master: int
    states: int
    trainable: int
    """[unitless]"""
    trainable_width: int
    kept: int
    """Activations that checkpointing keeps, where they are offloaded."""
    saved: int
    """What the saving rank holds."""
    disk: int
    """Checkpoint as loaded."""


def host_of(settings: Settings, whole: OnHost) -> Host:
    """
    Host memory of one machine with all ranks of the job.

    Args:
        settings: The job.
        whole: What of it may be on the host. [bytes]

    Returns:
        Memory with its items, and disk.
    """
    processes = settings.ranks * settings.tensor_parallel_size * settings.pipeline_parallel_size
    items = [
        _item(
            "framework",
            processes * PROCESS,
            "assumed",
            "processes with their libraries",
            law="laws.runtime",
            source="seen",
        )
    ]
    items += _offloaded(settings, whole)
    if settings.offload_activations and whole.kept:
        detail = "block inputs of the micro-batch"
        items.append(
            _item(
                "activations",
                whole.kept * settings.ranks,
                "derived",
                detail,
                law="laws.activations.at_moment",
                source=_TORCHAO,
            )
        )
    if whole.saved:
        detail = "what the saving rank holds"
        source = "huggingface/accelerate@v1.15.0 get_state_dict"
        items.append(
            _item("state_dict", whole.saved, "derived", detail, law="laws.host_offload.state_dict", source=source)
        )
    total = sum(i.bytes.expected for i in items)
    return Host(memory=within(total, 0.3, 0.6), disk_bytes=whole.disk + _on_nvme(settings, whole), items=tuple(items))


def _offloaded(job: Settings, whole: OnHost) -> list[MemoryItem]:
    """
    Parameters, gradients, master weights and states on the host: of all ranks, whose shards add up to the whole.

    Pinned blocks are rounded up to a power of two (CachingHostAllocator), which the band of the total allows for.
    """
    if not (job.offload_parameters or job.offload_optimizer):
        return []
    copies = 1 if job.sharding in FSDP or job.sharding in ZERO else job.ranks
    source = _DEEPSPEED if job.sharding in ZERO else _FSDP if job.sharding in FSDP else _TORCHAO
    parts = []
    if job.offload_parameters:
        parts.append(("weights", *_weights(job, whole)))
    if job.offload_optimizer or job.sharding in ("zero3", *FSDP):
        parts.append(("gradients", *_gradients(job, whole)))
        parts += _states(job, whole)
    return [
        _item(name, copies * amount, "derived", detail, law=law, source=source)
        for name, amount, detail, law in parts
        if amount
    ]


def _weights(job: Settings, whole: OnHost) -> tuple[int, str, str]:
    everything = whole.weights + whole.adapters
    if not job.offload_to_nvme:
        return everything, "parameters, pinned", "laws.training_sharding.shard"
    elements = training_sharding.shard(amount=everything // 2, ranks=job.shards)
    swap = host_offload.parameter_swap(elements=elements, element_bytes=2)
    return min(swap, everything) * job.shards, "buffers of the parameter swapper", "laws.host_offload.parameter_swap"


def _gradients(job: Settings, whole: OnHost) -> tuple[int, str, str]:
    if job.sharding in ZERO:
        amount = host_offload.zero_gradients(trainable=whole.trainable)
        return amount, "16 bit as reduced, fp32 as stepped with", "laws.host_offload.zero_gradients"
    if job.sharding in FSDP:
        amount = whole.trainable * whole.trainable_width
        return amount, "shards", "laws.training_sharding.shard"
    amount = host_offload.copied_gradients(trainable=whole.trainable, element_bytes=whole.trainable_width)
    return amount, "pinned copies of parameters and gradients", "laws.host_offload.copied_gradients"


def _states(job: Settings, whole: OnHost) -> list[tuple[str, int, str, str]]:
    if job.offload_to_nvme:
        elements = training_sharding.shard(amount=whole.trainable, ranks=job.shards)
        swap = host_offload.state_swap(elements=elements) * job.shards
        return [("optimizer_states", swap, "buffers of the optimizer swapper", "laws.host_offload.state_swap")]
    return [
        ("master_weights", whole.master, "fp32 copies", "laws.optimizer.master_copy"),
        ("optimizer_states", whole.states, "states of the step on the host", "laws.training_sharding.shard"),
    ]


def _on_nvme(job: Settings, whole: OnHost) -> int:
    """What the swappers write to disk: gradients beside weights and states. [bytes]"""
    if not job.offload_to_nvme:
        return 0
    parameters = whole.weights + whole.adapters if job.offload_parameters else 0
    states = whole.master + whole.states + 4 * whole.trainable if job.offload_optimizer else 0
    return parameters + states


def _item(component: str, amount: int, basis: str, detail: str, *, law: str, source: str) -> MemoryItem:
    return MemoryItem(
        component=component,
        bytes=exactly(amount),
        basis=basis,  # type: ignore[arg-type]  # one of Basis, by the callers above
        law=law,
        source=source,
        detail=detail,
        counter="device",
    )
