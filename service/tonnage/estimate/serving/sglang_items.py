"""SGLang's account as items by phase."""

from typing import TYPE_CHECKING, NamedTuple

from tonnage.estimate.serving.sglang_settings import Settings
from tonnage.estimate.serving.terms import Term
from tonnage.estimate.weights import disk_bytes
from tonnage.spec.report import Amount, Host, MemoryItem, PhaseItems, exactly, within
from tonnage.spec.workload import Workload
from tonnage.units import GiB

if TYPE_CHECKING:
    from tonnage.estimate.serving.sglang import Rank

_LOGS = "start-up logs in tests/measured/serving_sglang.json"
_CONTEXT = Term(
    "device_context", "measured", "laws.device_context.cuda", "3.05 MiB per multiprocessor; " + _LOGS,
    counter="device", inside_budget=False,
)  # fmt: skip
_WEIGHTS = Term(
    "weights", "derived", "laws.allocator.reserved", "python/sglang/srt/model_executor/model_runner.py load_model"
)
_BUFFERS = Term(
    "buffers", "derived", "laws.serving_buffers.rotary_cache", "python/sglang/srt/layers/rotary_embedding.py"
)
_POOL = Term(
    "kv_cache", "derived", "laws.budget.pool_of_static_fraction", "model_runner_kv_cache_mixin.py profile_max_num_token"
)
_TABLE = Term(
    "workspace", "derived", "laws.runtime.request_table", "mem_cache/memory_pool.py ReqToTokenPool", inside_budget=False
)
_GRAPHS = Term("cuda_graphs", "calibrated", "laws.static_fraction.decode_capture_sizes", _LOGS, "device", False)
_ACTIVATIONS = Term(
    "activations", "assumed", "laws.serving_activations.mlp_eager", "widths of the layers", inside_budget=False
)
_LOGITS = Term("logits", "derived", "laws.sampler.logits", "layers/logits_processor.py", inside_budget=False)
_DRAFT = Term("draft_model", "derived", "laws.weights.blocks", "python/sglang/srt/speculative; tensors of the draft")
_DRAFT_CACHE = Term(
    "kv_cache", "derived", "laws.kv_cache.full_attention", "draft_runner_cache_size of the target", inside_budget=False
)
_HOST_PER_WORKER = 3 * GiB


class Standing(NamedTuple):
    """Items of one GPU that neither traffic nor the longest request changes."""

    load: PhaseItems
    pool: MemoryItem
    """What the fraction leaves."""
    after: tuple[MemoryItem, ...]
    """Beside the pool once it is there."""
    graphs: tuple[MemoryItem, ...]
    running: tuple[MemoryItem, ...]
    """Activations and logits."""


def standing(rank: "Rank", chosen: Settings) -> Standing:
    """
    What of a GPU's items stands.

    Args:
        rank: Its account, for any longest request.
        chosen: SGLang's settings.

    Returns:
        Items by when they come.
    """
    loaded = [
        _CONTEXT.item(rank.before, "context and communicators, before the fraction is taken"),
        _WEIGHTS.item(rank.weights, "change of free memory while loading"),
    ]
    if rank.buffers:
        loaded.append(_BUFFERS.item(exactly(rank.buffers), "rotary tables"))
    if rank.draft:
        loaded.append(_DRAFT.item(exactly(rank.draft), "loaded before the pool is sized"))
    after: tuple[MemoryItem, ...] = ()
    if rank.draft_cache:
        after = (_DRAFT_CACHE.item(exactly(rank.draft_cache), "of the draft, outside the fraction"),)
    graphs: tuple[MemoryItem, ...] = ()
    if chosen.decode_sizes:
        detail = (
            f"{len(chosen.decode_sizes)} decode sizes, {len(chosen.prefill_sizes)} prefill sizes; outside the fraction"
        )
        graphs = (_GRAPHS.item(rank.graphs, detail),)
    activations = _ACTIVATIONS.item(within(rank.activations, 0.4, 1.0), f"{chosen.chunked_prefill_size} tokens")
    logits = _LOGITS.item(exactly(rank.logits), "largest decode batch, fp32")
    return Standing(PhaseItems("load", tuple(loaded)), _pool(rank), after, graphs, (activations, logits))


def phases(rank: "Rank", found: Standing, needed: int, *, claims: bool) -> tuple[PhaseItems, ...]:
    """
    Phases of one GPU.

    Args:
        rank: Its account.
        found: Its items that stand.
        needed: What the demand takes of the cache. [bytes]
        claims: A card is stated, so the pool is what the fraction leaves.

    Returns:
        load, kv_allocation, cuda_graph, prefill, decode and idle.
    """
    pool = found.pool if claims else _POOL.item(exactly(needed), "what the demand needs")
    allocated = (*found.load.items, pool, _TABLE.item(exactly(rank.table), "request to token map"))
    resident = (*allocated, *found.after, *found.graphs)
    captured = (PhaseItems("cuda_graph", resident),) if found.graphs else ()
    return (
        found.load,
        PhaseItems("kv_allocation", allocated),
        *captured,
        PhaseItems("prefill", (*resident, *found.running)),
        PhaseItems("decode", (*resident, found.running[1])),
        PhaseItems("idle", resident),
    )


def _pool(rank: "Rank") -> MemoryItem:
    pools = rank.pools
    states = f" and {pools.slots} states" if pools.slots * pools.state_bytes else ""
    return _POOL.item(exactly(max(0, pools.memory.expected)), f"{pools.tokens.expected} tokens{states}")


def host(workload: Workload) -> Host:
    """What the machine around the GPUs needs."""
    gpus = workload.placement.gpus
    disk = disk_bytes(workload.model, workload.weight_format, workload.formats) if workload.model.known else 0
    expected = _HOST_PER_WORKER * gpus
    return Host(
        memory=Amount(GiB, expected, expected + disk),
        disk_bytes=disk,
        shared_memory_bytes=0 if gpus == 1 else GiB,
    )
