"""vLLM's account as items by phase: what is alive in each, by which law, seen by which counter."""

from typing import TYPE_CHECKING

from tonnage.estimate.serving.vllm_runtime import uncounted_runner_buffers
from tonnage.estimate.serving.vllm_settings import Settings
from tonnage.estimate.weights import disk_bytes
from tonnage.laws import serving_buffers
from tonnage.spec.report import Amount, Basis, Counter, Host, MemoryItem, PhaseItems, exactly, within
from tonnage.spec.workload import Workload
from tonnage.units import GiB

if TYPE_CHECKING:
    from tonnage.estimate.serving.vllm import RankAccount

_WORKER = "vllm/v1/worker/gpu_worker.py determine_available_memory"
_RUNNER = "vllm/v1/worker/gpu_model_runner.py profile_run"


def _item(
    component: str,
    amount: Amount,
    basis: Basis,
    law: str,
    source: str,
    detail: str = "",
    counter: Counter = "allocated",
    inside: bool = True,
) -> MemoryItem:
    return MemoryItem(
        component=component, bytes=amount, basis=basis, law=law, source=source, detail=detail, counter=counter,
        inside_budget=inside,
    )  # fmt: skip


def phases(rank: "RankAccount", chosen: Settings, workload: Workload, claimed: int) -> tuple[PhaseItems, ...]:
    """
    Phases of one GPU.

    Args:
        rank: Its account.
        chosen: vLLM's settings.
        workload: Resolved card.
        claimed: Cache pool of the rank. [bytes]

    Returns:
        load, profile, kv_allocation, cuda_graph, prefill and idle, as far as they happen.
    """
    process = _process(rank)
    loaded = _loaded(rank, workload)
    growth = _growth(rank, workload, chosen)
    profiled = _profiled(rank, chosen)
    workspace = tuple(i for i in profiled if i.component == "workspace")
    cache = (_pool(claimed, chosen),)
    graph = (_graphs(rank, chosen),) if chosen.captures else ()
    resident = process + loaded + growth + workspace + cache
    found = [
        PhaseItems("load", process + loaded),
        PhaseItems("profile", process + loaded + growth + profiled),
        PhaseItems("kv_allocation", resident),
    ]
    if graph:
        found.append(PhaseItems("cuda_graph", resident + graph))
    transient = tuple(i for i in profiled if i.component != "workspace")
    found.append(PhaseItems("prefill", resident + graph + transient + _later(rank)))
    found.append(PhaseItems("idle", resident + graph + _kept_by_warmup(rank, chosen, workload)))
    return tuple(found)


def _process(rank: "RankAccount") -> tuple[MemoryItem, ...]:
    beside = rank.outside
    items = []
    if beside.context.high:
        items.append(
            _item("device_context", beside.context, "measured", "laws.runtime.device_context",
                  "3.05 MiB per multiprocessor, plus what its libraries load", "before the baseline: outside the budget",
                  "device", inside=False)
        )  # fmt: skip
    if beside.communicator.high:
        items.append(
            _item("device_context", beside.communicator, "calibrated", "laws.runtime.symmetric_memory",
                  "vllm/distributed/device_communicators; free memory in start-up logs",
                  "NCCL and custom all-reduce, opened before the baseline: outside the budget", "device", inside=False)
        )  # fmt: skip
    return tuple(items)


def _loaded(rank: "RankAccount", workload: Workload) -> tuple[MemoryItem, ...]:
    basis: Basis = "user" if workload.weight_bytes is not None else "exact"
    items = [
        _item("weights", rank.weights, basis, "estimate.weights.stage_weights", workload.model.source,
              f"{workload.weight_format.id}, shard of stage {rank.stage}")
    ]  # fmt: skip
    if rank.buffers:
        items.append(
            _item("buffers", exactly(rank.buffers), "derived", "laws.serving_buffers.rotary_cache",
                  "vllm/model_executor/layers", "rotary tables, absorbed projections, index buffers")
        )  # fmt: skip
    if rank.lora:
        items.append(
            _item("lora_adapters", within(rank.lora, 0.03), "derived", "laws.serving_buffers.lora_slots",
                  "vllm/lora/layers create_lora_weights", "slots, allocated at load")
        )  # fmt: skip
    return tuple(items)


def _growth(rank: "RankAccount", workload: Workload, chosen: Settings) -> tuple[MemoryItem, ...]:
    beside, items = rank.outside, []
    items.append(
        _item("framework", beside.framework, "calibrated", "catalog engines/vllm.toml non_torch", chosen.release.source,
              "modules and local memory loaded while profiling", "device")
    )  # fmt: skip
    if beside.communication.high:
        items.append(
            _item("communication", beside.communication, "calibrated", "laws.runtime.fusion_workspace",
                  chosen.release.source, "channels and all-reduce workspaces opened while profiling", "device")
        )  # fmt: skip
    hidden = uncounted_runner_buffers(workload.model, chosen)
    if hidden:
        items.append(
            _item("sampler", exactly(hidden), "derived", "laws.serving_buffers.penalty_counts",
                  "vllm/v1/worker/gpu/sample/penalties.py", "no budget of this release counts it", inside=False)
        )  # fmt: skip
    return tuple(items)


def _profiled(rank: "RankAccount", chosen: Settings) -> tuple[MemoryItem, ...]:
    """Items of the activation peak; its band goes to the largest of them."""
    peak = rank.peak
    parts = {
        "activations": (peak.activations, "laws.serving_activations.mlp_compiled", _RUNNER),
        "logits": (peak.logits, "laws.sampler.logits", _RUNNER),
        "sampler": (peak.sampler, _sampler_law(chosen), "vllm/v1/sample/ops"),
        "vision_encoder": (peak.vision, "laws.vision_encoder.features", "vllm/multimodal/encoder_budget.py"),
        "workspace": (peak.workspace, peak.workspace_law, "vllm/v1/worker/workspace.py; cuBLAS"),
    }
    leading = max(parts, key=lambda name: parts[name][0])
    items = []
    for name, (size, law, source) in parts.items():
        if not size:
            continue
        amount = exactly(size)
        if name == leading:
            below = min(size, int(peak.below * peak.total))
            amount = Amount(size - below, size, size + int(peak.above * peak.total))
        items.append(_item(name, amount, "derived", law, source, peak.detail if name == leading else ""))
    return tuple(items)


def _sampler_law(chosen: Settings) -> str:
    if chosen.runner_v2 and not chosen.release.v2_samples_with_parameters:
        return "laws.sampler.gumbel"
    names = {"sort": "torch_sort", "triton": "triton_top_k_top_p", "flashinfer": "flashinfer_top_k_top_p"}
    return "laws.sampler." + names["sort" if chosen.legacy else chosen.release.sampler]


def _pool(claimed: int, chosen: Settings) -> MemoryItem:
    detail = "fixed by the caller" if chosen.pool_bytes is not None else f"rest of {chosen.fraction:g} of the card"
    return _item("kv_cache", exactly(claimed), "derived", "laws.budget.pool_of_budget", _WORKER, detail)


def _graphs(rank: "RankAccount", chosen: Settings) -> MemoryItem:
    inside = rank.graphs.estimate.high > 0
    where = "estimate inside the budget" if inside else "outside the budget"
    detail = f"{len(chosen.captures)} sizes up to {chosen.captures[-1]}; {where}"
    return _item("cuda_graphs", rank.graphs.size, "calibrated", "laws.cuda_graphs.captured",
                 "start-up logs in tests/measured/serving_vllm.json", detail, "device", inside=inside)  # fmt: skip


def _later(rank: "RankAccount") -> tuple[MemoryItem, ...]:
    if not rank.peak.sampler_later:
        return ()
    return (
        _item("sampler", Amount(0, rank.peak.sampler_later, rank.peak.sampler_later), "derived",
              "laws.sampler.flashinfer_top_k_top_p", "vllm/v1/worker/gpu/sample/sampler.py",
              "top-k, top-p or penalties of every request at once; not profiled, outside the budget", inside=False),
    )  # fmt: skip


def _kept_by_warmup(rank: "RankAccount", chosen: Settings, workload: Workload) -> tuple[MemoryItem, ...]:
    """V1 warms its sampler up after the pool exists; the allocator keeps those blocks."""
    size = rank.peak.logits + rank.peak.sampler
    if chosen.legacy or chosen.runner_v2 or not size or workload.model.vocab_size == 0:
        return ()
    return (
        _item("sampler", Amount(0, size, size), "derived", _sampler_law(chosen),
              "vllm/v1/worker/gpu_worker.py compile_or_warm_up_model", "kept by the allocator after warm-up", "reserved"),
    )  # fmt: skip


def host(workload: Workload, chosen: Settings, offloaded: int) -> Host:
    """
    What the machine around the GPUs needs.

    Args:
        workload: Resolved card.
        chosen: vLLM's settings.
        offloaded: Weights kept in host memory over all ranks. [bytes]

    Returns:
        Host memory, disk and shared memory.
    """
    gpus = workload.placement.gpus
    disk = disk_bytes(workload.model, workload.weight_format, workload.formats)
    swap = getattr(workload.serving, "swap_space", None)
    swap_bytes = int((chosen.release.swap_space_gib if swap is None else swap) * GiB) * gpus if chosen.legacy else 0
    pinned = 0
    if chosen.runner_v2:
        pinned = gpus * serving_buffers.pinned_token_ids(
            max_num_seqs=chosen.max_num_seqs, max_model_len=chosen.max_model_len
        )
    items = tuple(
        _item(name, exactly(size), "derived", law, source, detail, "device", inside=False)
        for name, size, law, source, detail in (
            (
                "kv_cache",
                swap_bytes,
                "catalog engines/vllm.toml swap_space_gib",
                chosen.release.source,
                "pinned swap space",
            ),
            (
                "weights",
                offloaded,
                "request: /serving/cpu_offload_gb",
                "vllm/model_executor/offloader",
                "offloaded weights",
            ),
            ("framework", pinned, "laws.serving_buffers.pinned_token_ids", "vllm/v1/worker/gpu/states.py", "token ids"),
        )
        if size
    )
    process = 3 * GiB * gpus
    expected = swap_bytes + offloaded + pinned + process
    return Host(
        memory=Amount(swap_bytes + offloaded + pinned + GiB, expected, expected + disk),
        disk_bytes=disk,
        shared_memory_bytes=0 if gpus == 1 else GiB,
        items=items,
    )
