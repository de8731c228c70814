"""vLLM's account as items by phase: what is alive in each, by which law, seen by which counter."""

from tonnage.estimate.serving.terms import Term
from tonnage.estimate.serving.vllm_ranks import RankAccount
from tonnage.estimate.serving.vllm_runtime import uncounted_runner_buffers
from tonnage.estimate.serving.vllm_settings import Settings, traits
from tonnage.estimate.weights import disk_bytes
from tonnage.kept import recent
from tonnage.laws import allocator, serving_buffers
from tonnage.spec.report import Amount, Host, MemoryItem, PhaseItems, exactly, within
from tonnage.spec.workload import Workload
from tonnage.units import GiB

_LOGS = "start-up logs in tests/measured/serving_vllm.json; catalog/data/engines/vllm.toml"
_SAMPLER_SOURCE = "vllm/v1/sample/ops/topk_topp_sampler.py"

_CONTEXT = Term(
    "device_context", "measured", "laws.device_context.cuda", "3.05 MiB per multiprocessor, and its libraries",
    counter="device", inside_budget=False,
)  # fmt: skip
_COMMUNICATOR = Term(
    "device_context", "calibrated", "laws.runtime.symmetric_memory", "vllm/distributed/device_communicators; " + _LOGS,
    counter="device", inside_budget=False,
)  # fmt: skip
_WEIGHTS = Term(
    "weights", "derived", "laws.weights.blocks", "tensors of the architecture, cut as vllm/model_executor/layers"
)
_KNOWN_WEIGHTS = Term("weights", "user", "laws.weights.blocks", "request: /weights/bytes, or the published file size")
_BUFFERS = Term(
    "buffers", "derived", "laws.serving_buffers.rotary_cache", "vllm/model_executor/layers/rotary_embedding"
)
_LORA = Term("lora_adapters", "derived", "laws.serving_buffers.lora_slots", "vllm/lora/layers create_lora_weights")
_LORA_LATER = Term(
    "adapter_slots", "derived", "laws.serving_buffers.lora_slots",
    "vllm-project/vllm@0.7.3 vllm/worker/model_runner.py load_model", inside_budget=False,
)  # fmt: skip
_DRAFT = Term("draft_model", "derived", "laws.weights.blocks", "vllm/v1/spec_decode; tensors of the draft")
_STATES = Term(
    "recurrent_state", "derived", "laws.recurrent_state",
    "vllm-project/vllm@0.7.3 vllm/model_executor/models/mamba_cache.py MambaCacheManager",
)  # fmt: skip
_FRAMEWORK = Term("framework", "calibrated", "laws.runtime.growth_outside_torch", _LOGS, counter="device")
_COMMUNICATION = Term("communication", "calibrated", "laws.runtime.fusion_workspace", _LOGS, counter="device")
_PENALTIES = Term(
    "sampler_state", "derived", "laws.serving_buffers.penalty_counts", "vllm/v1/worker/gpu/sample/penalties.py",
    inside_budget=False,
)  # fmt: skip
_ATTENTION = Term(
    "workspace", "derived", "laws.serving_buffers.flashinfer_wrappers",
    "vllm-project/vllm@0.12.0 vllm/v1/attention/backends/flashinfer.py", inside_budget=False,
)  # fmt: skip
_RUNNER = "vllm/v1/worker/gpu_model_runner.py profile_run"
_FORWARD = Term("activations", "derived", "laws.serving_activations.mlp_compiled", _RUNNER)
_EAGER = Term("activations", "derived", "laws.serving_activations.mlp_eager", "vllm/worker/model_runner.py profile_run")
_HIDDEN = Term("activations", "derived", "laws.sampler.hidden_rows", _RUNNER)
_LOGITS = Term("logits", "derived", "laws.sampler.logits", _RUNNER)
_VISION = Term("vision_encoder", "derived", "laws.vision_encoder.features", "vllm/multimodal/encoder_budget.py")
_POOL = Term(
    "kv_cache", "derived", "laws.budget.pool_of_budget", "vllm/v1/worker/gpu_worker.py determine_available_memory"
)
_GRAPHS_OUTSIDE = Term(
    "cuda_graphs", "calibrated", "laws.cuda_graphs.captured", _LOGS, counter="device", inside_budget=False
)
_GRAPHS_INSIDE = _GRAPHS_OUTSIDE._replace(inside_budget=True)
_TRIAL_GRAPHS = Term(
    "workspace", "calibrated", "laws.cuda_graphs.captured",
    "vllm-project/vllm@0.27.0 vllm/v1/worker/gpu_worker.py determine_available_memory",
)  # fmt: skip
_SAMPLERS = {
    name: Term("sampler", "derived", f"laws.sampler.{name}", source)
    for name, source in (
        ("torch_sort", _SAMPLER_SOURCE),
        ("triton_top_k_top_p", _SAMPLER_SOURCE),
        ("flashinfer_top_k_top_p", _SAMPLER_SOURCE),
        ("gumbel", "vllm/v1/worker/gpu/sample/gumbel.py"),
    )
}
_KEPT = Term(
    "framework", "derived", "laws.moe_workspace.triton",
    "vllm-project/vllm@0.27.0 vllm/utils/mem_utils.py memory_profiling (total_consumed)",
)  # fmt: skip
_KEPT_ABOVE = 0.5
"""Attention may keep a workspace of its own beside it (0.47 of 1.0 GiB on four RTX PRO 6000). [fraction]"""
_WARM = {name: term._replace(counter="reserved") for name, term in _SAMPLERS.items()}
_SLACK = Term(
    "fragmentation", "calibrated", "laws.allocator.warm_up_slack", "vllm/v1/worker/gpu_worker.py compile_or_warm_up_model",
    counter="reserved", inside_budget=False,
)  # fmt: skip
_LATER = _SAMPLERS["flashinfer_top_k_top_p"]._replace(inside_budget=False)

_SWAP = Term(
    "kv_cache", "derived", "laws.budget.fraction_of_total", "vllm/config.py CacheConfig.swap_space", "device", False
)
_OFFLOADED = Term("weights", "user", "laws.weights.blocks", "request: /serving/cpu_offload_gb", "device", False)
_PINNED = Term(
    "framework", "derived", "laws.serving_buffers.pinned_token_ids", "vllm/v1/worker/gpu/states.py", "device", False
)
_HOST_PER_WORKER = 3 * GiB
"""Python, torch and the engine's processes; usual, not measured here. [bytes]"""


def phases(rank: RankAccount, chosen: Settings, workload: Workload, claimed: int) -> tuple[PhaseItems, ...]:
    """
    Phases of one GPU.

    Args:
        rank: Its account.
        chosen: vLLM's settings.
        workload: Resolved card.
        claimed: Cache pool of the rank. [bytes]

    Returns:
        load, profile, kv_allocation, cuda_graph, prefill, decode and idle, as far as they happen.
    """
    loaded = _process(rank) + _loaded(rank, workload)
    growth = _growth(rank, workload, chosen)
    workspace, transient = _profiled(rank, chosen)
    resident = (*loaded, *growth, *workspace, _pool(claimed, chosen), *_attention_workspace(workload, chosen))
    found = [
        PhaseItems("load", loaded),
        PhaseItems("profile", (*loaded, *growth, *transient, *workspace, *_trial_graphs(rank, chosen))),
        PhaseItems("kv_allocation", resident),
    ]
    if chosen.captures:
        resident = (*resident, _graphs(rank, chosen))
        found.append(PhaseItems("cuda_graph", resident))
    later = _later(rank)
    found.append(PhaseItems("prefill", (*resident, *transient, *later, *_slack(rank, chosen))))
    found.append(PhaseItems("decode", (*resident, *_decoded(rank, chosen), *later)))
    found.append(PhaseItems("idle", (*resident, *_kept_by_warmup(rank, chosen))))
    return tuple(found)


def _process(rank: RankAccount) -> tuple[MemoryItem, ...]:
    beside = rank.outside
    items = []
    if beside.context.high:
        items.append(_CONTEXT.item(beside.context, "before the engine's baseline"))
    if beside.communicator.high:
        items.append(
            _COMMUNICATOR.item(beside.communicator, "NCCL and custom all-reduce, before the engine's baseline")
        )
    return tuple(items)


def _loaded(rank: RankAccount, workload: Workload) -> tuple[MemoryItem, ...]:
    term = _WEIGHTS if workload.weight_bytes is None else _KNOWN_WEIGHTS
    items = [term.item(rank.weights, workload.weight_format.id)]
    if rank.buffers:
        items.append(_BUFFERS.item(exactly(rank.buffers), "rotary tables, absorbed projections, allocator remainders"))
    if rank.lora:
        items.append(_LORA.item(within(rank.lora, 0.03), "slots, allocated at load"))
    if rank.lora_later:
        detail = "loaded after the printed weights; no budget of this release counts them"
        items.append(_LORA_LATER.item(within(rank.lora_later, 0.03), detail))
    if rank.draft:
        items.append(_DRAFT.item(within(rank.draft, 0.02, 0.1), "its cache is part of the pool"))
    return tuple(items)


def _growth(rank: RankAccount, workload: Workload, chosen: Settings) -> tuple[MemoryItem, ...]:
    beside = rank.outside
    items = [_FRAMEWORK.item(beside.framework, "modules and local memory loaded while profiling")]
    if beside.communication.high:
        items.append(
            _COMMUNICATION.item(beside.communication, "channels and all-reduce workspaces opened while profiling")
        )
    if rank.states:
        items.append(_STATES.item(exactly(rank.states), f"of {chosen.max_num_seqs} requests, beside the pool"))
    hidden = uncounted_runner_buffers(workload.model, chosen)
    if hidden:
        items.append(_PENALTIES.item(exactly(hidden), "no budget of this release counts it"))
    return tuple(items)


def _attention_workspace(workload: Workload, chosen: Settings) -> tuple[MemoryItem, ...]:
    """FlashInfer's buffers where it computes the attention: opened with the first batch, when the pool is taken."""
    first = chosen.release.flashinfer_attention_below
    if chosen.legacy or not 0 < chosen.major < first or traits(workload.model).mla:
        return ()
    size = serving_buffers.flashinfer_wrappers(graphs=len(chosen.captures))
    return (_ATTENTION.item(Amount(0, size, size), f"of {len(chosen.captures)} captured batches; no budget counts it"),)


def _profiled(rank: RankAccount, chosen: Settings) -> tuple[tuple[MemoryItem, ...], tuple[MemoryItem, ...]]:
    """
    Workspace that stays, and the rest of the activation peak; the band goes to the largest of them.

    A release that charges by free memory prints what stays as consumed beside the weights, not as activation.
    """
    peak = rank.peak
    forward = _EAGER if chosen.legacy else _FORWARD
    workspace = Term("workspace", "derived", peak.workspace_law, "vllm/v1/worker/workspace.py; cuBLAS")
    kept = peak.kept if chosen.release.consumed_accounting else 0
    parts = [
        (_HIDDEN if peak.leads == "sampler" else forward, peak.activations),
        (_LOGITS, peak.logits),
        (_SAMPLERS[sampler_law(chosen)], peak.sampler),
        (_VISION, peak.vision),
        (workspace, peak.workspace - kept),
    ]
    largest = max(size for _, size in parts)
    items = [
        term.item(_banded(rank, size), peak.detail) if size == largest else term.item(exactly(size))
        for term, size in parts
        if size
    ]
    staying = items[-1:]
    if kept:
        staying.append(_KEPT._replace(law=peak.workspace_law).item(within(kept, 0.1, _KEPT_ABOVE), "of experts"))
    return tuple(staying), tuple(items[:-1])


def _trial_graphs(rank: RankAccount, chosen: Settings) -> tuple[MemoryItem, ...]:
    """Graphs captured to estimate their size, which releases that charge by free memory print as activation."""
    if not (chosen.release.consumed_accounting and rank.graphs.estimate.expected):
        return ()
    return (_TRIAL_GRAPHS.item(rank.graphs.estimate, "captured once for an estimate, printed as peak activation"),)


def _decoded(rank: RankAccount, chosen: Settings) -> tuple[MemoryItem, ...]:
    """What one decode step of every request adds; layers run inside the graphs' own pool."""
    parts = ((_LOGITS, rank.peak.decode_logits), (_SAMPLERS[sampler_law(chosen)], rank.peak.decode_sampler))
    return tuple(term.item(exactly(size), f"{chosen.rows} requests at once") for term, size in parts if size)


def _banded(rank: RankAccount, size: int) -> Amount:
    peak = rank.peak
    return Amount(size - min(size, int(peak.below * peak.total)), size, size + int(peak.above * peak.total))


def sampler_law(chosen: Settings) -> str:
    """Name of the law of the profiled sampler."""
    if chosen.runner_v2 and not chosen.release.v2_samples_with_parameters:
        return "gumbel"
    names = {"sort": "torch_sort", "triton": "triton_top_k_top_p", "flashinfer": "flashinfer_top_k_top_p"}
    return names["sort" if chosen.legacy else chosen.release.sampler]


def _pool(claimed: int, chosen: Settings) -> MemoryItem:
    detail = "fixed by the caller" if chosen.pool_bytes is not None else f"rest of {chosen.fraction:g} of the card"
    return _POOL.item(exactly(claimed), detail)


def _graphs(rank: RankAccount, chosen: Settings) -> MemoryItem:
    inside = rank.graphs.estimate.high > 0
    where = "the engine sets an estimate aside inside its budget" if inside else "outside the budget"
    detail = f"{len(chosen.captures)} sizes up to {chosen.captures[-1]}; {where}"
    return (_GRAPHS_INSIDE if inside else _GRAPHS_OUTSIDE).item(rank.graphs.size, detail)


def _slack(rank: RankAccount, chosen: Settings) -> tuple[MemoryItem, ...]:
    """V1 runs the sampler once more after capture, in what the allocator kept in pieces."""
    if chosen.legacy or chosen.runner_v2 or not rank.peak.sampler:
        return ()
    most = allocator.warm_up_slack(profiled=rank.peak.total)
    return (_SLACK.item(Amount(0, 0, most), "pieces that the sampler's warm-up cannot use"),)


def _later(rank: RankAccount) -> tuple[MemoryItem, ...]:
    size = rank.peak.sampler_later
    if not size:
        return ()
    return (_LATER.item(Amount(0, size, size), "top-k, top-p or penalties of every request at once: not profiled"),)


def _kept_by_warmup(rank: RankAccount, chosen: Settings) -> tuple[MemoryItem, ...]:
    """V1 warms its sampler up once the pool exists; the allocator keeps those blocks."""
    size = rank.peak.logits + rank.peak.sampler
    if chosen.legacy or chosen.runner_v2 or not size:
        return ()
    return (_WARM[sampler_law(chosen)].item(Amount(0, size, size), "kept by the allocator after warm-up"),)


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
    return _host(gpus, _disk(workload), _swap_space(workload, chosen), offloaded, _pinned(chosen) * gpus)


@recent(4096)
def _host(gpus: int, disk: int, swap: int, offloaded: int, pinned: int) -> Host:
    sizes = (
        (_SWAP, swap, "pinned swap space"),
        (_OFFLOADED, offloaded, "offloaded weights"),
        (_PINNED, pinned, "token ids of every request"),
    )
    items = tuple(term.item(exactly(size), detail) for term, size, detail in sizes if size)
    held = swap + offloaded + pinned
    return Host(
        memory=Amount(held + GiB, held + _HOST_PER_WORKER * gpus, held + _HOST_PER_WORKER * gpus + disk),
        disk_bytes=disk,
        shared_memory_bytes=0 if gpus == 1 else GiB,
        items=items,
    )


def _disk(workload: Workload) -> int:
    if workload.weight_bytes is not None:
        return workload.weight_bytes
    return disk_bytes(workload.model, workload.weight_format, workload.formats) if workload.model.known else 0


def _swap_space(workload: Workload, chosen: Settings) -> int:
    if not chosen.legacy:
        return 0
    asked = getattr(workload.serving, "swap_space", None)
    return int((chosen.release.swap_space_gib if asked is None else asked) * GiB) * workload.placement.gpus


def _pinned(chosen: Settings) -> int:
    if not chosen.runner_v2:
        return 0
    return serving_buffers.pinned_token_ids(max_num_seqs=chosen.max_num_seqs, max_model_len=chosen.max_model_len)
