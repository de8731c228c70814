"""vLLM's accounting: budget, weights, profile run, cache pool and graphs of every distinct GPU."""

from math import isqrt

from msgspec import Struct

from tonnage.estimate.serving import moe_kernels, vllm_findings, vllm_items
from tonnage.estimate.serving.demand import Demand, demand
from tonnage.estimate.serving.rank_shape import rank_shape
from tonnage.estimate.serving.vllm_cache import Layout, layout
from tonnage.estimate.serving.vllm_profile import Peak, Rank, peak
from tonnage.estimate.serving.vllm_runtime import Graphs, Outside, graphs, outside
from tonnage.estimate.serving.vllm_settings import Settings, settings, traits
from tonnage.estimate.serving.vllm_weights import Loaded, buffers, expert_ranks, loaded_weights, lora_slots
from tonnage.estimate.weights import StageWeights
from tonnage.laws import budget, kv_blocks
from tonnage.spec import card
from tonnage.spec.facts import Gpu
from tonnage.spec.report import Account, Amount, CapacityTokens, GpuLoad, Host, KvCache, MemoryItem, exactly
from tonnage.spec.workload import Workload
from tonnage.units import GiB, MiB

_WEIGHT_SLACK = 32 * MiB
"""A rotary table more or less: checkpoints of one architecture differ in their longest position. [bytes]"""
_WEIGHT_BANDS = {"plain": 0.003, "fp8": 0.006, "int8": 0.006, "mxfp4": 0.01}
_WEIGHT_BAND = 0.02
_LATENT_ALIGN = 64


class RankAccount(Struct, frozen=True, kw_only=True):
    """Everything of one distinct GPU."""

    stage: int
    ranks: tuple[int, ...]
    weights: Amount
    buffers: int
    lora: int
    offloaded: int
    peak: Peak
    outside: Outside
    graphs: Graphs
    pool: Amount
    """What the budget leaves for the cache; below nothing when it leaves none. [bytes]"""


def account(workload: Workload) -> Account:
    """
    What vLLM makes of a card.

    Args:
        workload: Resolved card for vLLM.

    Returns:
        One load per distinct GPU, the cache as the log prints it, the claim, the engine's own refusals.
    """
    chosen = settings(workload)
    serving = workload.serving
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    kernel = moe_kernels.kernel(
        chosen.release.moe_backends,
        workload.weight_format,
        chosen.major,
        expert_parallel=expert_ranks(workload.placement, workload) > 1,
    )
    loaded = loaded_weights(workload, chosen, kernel)
    ranks = _ranks(workload, chosen, loaded, kernel)
    cut = _layout(workload, chosen, loaded.stages)
    wanted = demand(serving, workload.placement, chosen.max_model_len)
    total = total_memory(workload.gpu)
    blocks = _blocks(ranks, cut) if total is not None else None
    needed = demand_blocks(cut, chosen, wanted, shares_prefixes(serving, chosen))
    loads = tuple(_load(rank, cut, chosen, workload, blocks, needed) for rank in ranks)
    cache = _kv_cache(ranks, cut, chosen, blocks)
    facts = vllm_findings.Facts(
        workload=workload, settings=chosen, ranks=ranks, layout=cut, demand=wanted, total=total,
        blocks=blocks, needed_blocks=needed,
    )  # fmt: skip
    return Account(
        loads=loads,
        kv_cache=cache,
        claimed_bytes=_claim(total, chosen),
        host=_host(workload, chosen, ranks),
        assumptions=chosen.assumptions,
        unknowns=vllm_findings.unknowns(facts),
        invalidated_by=vllm_findings.INVALIDATED_BY,
        findings=vllm_findings.findings(facts),
    )


def total_memory(gpu: Gpu | None) -> Amount | None:
    """What CUDA reports as the card's total, which the fraction is taken of."""
    if gpu is None:
        return None
    expected = max(gpu.memory_usable_expected_bytes or 0, gpu.memory_usable_bytes)
    return Amount(gpu.memory_usable_bytes, expected, 2 * expected - gpu.memory_usable_bytes)


def _claim(total: Amount | None, chosen: Settings) -> int | None:
    if total is None or chosen.pool_bytes is not None:
        return None
    return budget.fraction_of_total(fraction=chosen.fraction, total=total.expected)


# ---- ranks ----


def _ranks(
    workload: Workload, chosen: Settings, loaded: Loaded, kernel: moe_kernels.Kernel
) -> tuple[RankAccount, ...]:
    placement, model = workload.placement, workload.model
    tp = placement.tensor_parallel_size
    experts = expert_ranks(placement, workload)
    beside = outside(model, chosen, placement)
    total = total_memory(workload.gpu)
    found: list[RankAccount] = []
    stages = loaded.stages
    for stage in stages:
        last = stage.stage == len(stages) - 1
        held = stage.layers or None
        shape = rank_shape(model, held, tensor_parallel_size=tp, expert_parallel_size=experts)
        graph = graphs(shape, chosen, kernel.family, chosen_lora(workload) is not None)
        stored = buffers(
            model, stage.layers, stage.stage == 0,
            tensor_parallel_size=tp, element_bytes=chosen.element_bytes,
            tokens=chosen.max_num_batched_tokens, images=chosen.images, local_rope=chosen.release.local_rope_model_types,
            absorbs_matrices=chosen.release.absorbs_matrices,
        )  # fmt: skip
        stored += loaded.remainders[stage.stage]
        lora = chosen_lora(workload)
        slots = lora_slots(model, lora, stage.layers, chosen, tp) if lora is not None else 0
        weights, offloaded = _weights(workload, stage.total, len(stages) * tp)
        first = stage.stage * tp
        for samples, numbers in _sampling_ranks(chosen, last, tuple(range(first, first + tp))):
            place = Rank(
                first=stage.stage == 0, last=last, samples=samples, tensor_parallel_size=tp,
                data_parallel_size=placement.data_parallel_size, expert_parallel_size=experts, stages=len(stages),
            )  # fmt: skip
            profiled = peak(model, shape, chosen, place, kernel)
            pool = _pool(total, chosen, weights, stored + slots, profiled, beside, graph)
            found.append(
                RankAccount(
                    stage=stage.stage,
                    ranks=numbers,
                    weights=weights,
                    buffers=stored,
                    lora=slots,
                    offloaded=offloaded,
                    peak=profiled,
                    outside=beside,
                    graphs=graph,
                    pool=pool,
                )  # fmt: skip
            )
    return tuple(found)


def chosen_lora(workload: Workload) -> card.ServingLora | None:
    """Adapter slots the card asks for."""
    serving = workload.serving
    return serving.lora if serving is not None else None


def _sampling_ranks(chosen: Settings, last: bool, ranks: tuple[int, ...]) -> tuple[tuple[bool, tuple[int, ...]], ...]:
    """V1 gathers logits on every rank of the last stage, V0 on its first rank only."""
    if not last or not chosen.legacy or len(ranks) == 1:
        return ((last, ranks),)
    return (True, ranks[:1]), (False, ranks[1:])


def _weights(workload: Workload, computed: int, shares: int) -> tuple[Amount, int]:
    known = workload.weight_bytes
    size = computed if known is None else known // shares
    offload = getattr(workload.serving, "cpu_offload_gb", None) or 0
    offloaded = min(size, int(offload * GiB))
    family = "plain" if workload.weight_format.kind == "plain" else workload.weight_format.family
    part = _WEIGHT_BANDS.get(family, _WEIGHT_BAND)
    if not workload.model.known:
        part = 0.1
    half = int(size * part) + _WEIGHT_SLACK
    held = size - offloaded
    return Amount(max(0, held - half), held, held + half), offloaded


def _pool(
    total: Amount | None, chosen: Settings, weights: Amount, stored: int, profiled: Peak, beside: Outside, graph: Graphs
) -> Amount:
    if chosen.pool_bytes is not None:
        return exactly(chosen.pool_bytes)
    if total is None:
        return exactly(0)
    graphs_expected = graph.estimate.expected
    expected = budget.pool_of_budget(
        budget=budget.fraction_of_total(fraction=chosen.fraction, total=total.expected),
        weights=weights.expected + stored,
        activation=profiled.total,
        non_torch=beside.framework.expected + beside.communication.expected,
        graphs=graphs_expected,
    )
    parts = (weights, beside.framework, beside.communication, graph.estimate)
    spread = chosen.fraction * (total.expected - total.low)
    smaller = spread**2 + (profiled.above * profiled.total) ** 2 + sum((a.high - a.expected) ** 2 for a in parts)
    larger = spread**2 + (profiled.below * profiled.total) ** 2 + sum((a.expected - a.low) ** 2 for a in parts)
    return Amount(expected - isqrt(int(smaller)), expected, expected + isqrt(int(larger)))


# ---- cache ----


def _layout(workload: Workload, chosen: Settings, stages: tuple[StageWeights, ...]) -> Layout:
    model, placement = workload.model, workload.placement
    return layout(
        model,
        *chosen.kv_formats,
        stages,
        tensor_parallel_size=placement.tensor_parallel_size,
        block_size=chosen.block_size,
        hybrid="none" if chosen.legacy else chosen.release.hybrid_kv,
        element_bytes=chosen.element_bytes,
        align=_LATENT_ALIGN if traits(model).mla else chosen.release.block_size,
    )


def _blocks(ranks: tuple[RankAccount, ...], cut: Layout) -> Amount:
    """Blocks of the pool: the fewest of any rank."""
    found = [
        tuple(max(0, cut.blocks(pool, rank.stage)) for pool in (rank.pool.low, rank.pool.expected, rank.pool.high))
        for rank in ranks
    ]
    low, expected, high = (min(column) for column in zip(*found, strict=True))
    return Amount(low, expected, high)


def shares_prefixes(serving: card.Vllm, chosen: Settings) -> bool:
    """Whether requests share the blocks of a common prefix: on by default since V1, never beside recurrent layers."""
    return serving.enable_prefix_caching if serving.enable_prefix_caching is not None else not chosen.legacy


def demand_blocks(cut: Layout, chosen: Settings, wanted: Demand, shares: bool) -> int:
    """Blocks that the traffic takes. [blocks]"""
    flight, drafts = chosen.in_flight_tokens, chosen.speculative_tokens
    each = cut.request_blocks(wanted.tokens, flight, drafts)
    if not (shares and wanted.shared_tokens):
        return wanted.requests * each
    common = sum(
        count * (wanted.shared_tokens // c.block_size)
        for c, count in zip(cut.classes, cut.groups, strict=True)
        if c.kind == "full"
    )
    return common + wanted.requests * (each - common)


def _kv_cache(ranks: tuple[RankAccount, ...], cut: Layout, chosen: Settings, blocks: Amount | None) -> KvCache:
    per_request = cut.request_blocks(chosen.max_model_len, chosen.in_flight_tokens, chosen.speculative_tokens)
    if blocks is None:
        return KvCache(
            bytes_per_token=max(cut.token_bytes), state_bytes_per_sequence=max(cut.state_bytes),
            max_model_len=chosen.max_model_len, block_size=cut.block_size,
            detail="no card stated: no pool",
        )  # fmt: skip
    printed = [printed_tokens(cut, chosen, n, per_request) for n in (blocks.low, blocks.expected, blocks.high)]
    pool = ranks[0].pool
    return KvCache(
        bytes_per_token=max(cut.token_bytes),
        state_bytes_per_sequence=max(cut.state_bytes),
        pool=Amount(max(0, pool.low), max(0, pool.expected), max(0, pool.high)),
        capacity_tokens=CapacityTokens(*printed),
        max_concurrency=round(blocks.expected / per_request, 2) if per_request else None,
        max_model_len=chosen.max_model_len,
        blocks=blocks.expected,
        block_size=cut.block_size,
        largest_max_model_len=largest_length(cut, chosen, blocks.expected),
        detail=_cache_detail(cut),
    )


def printed_tokens(cut: Layout, chosen: Settings, blocks: int, per_request: int) -> int:
    """ "GPU KV cache size" as the release prints it. [tokens]"""
    rule = chosen.release.printed_tokens
    if rule == "concurrency" and per_request:
        return kv_blocks.printed_by_concurrency(concurrency=blocks / per_request, max_model_len=chosen.max_model_len)
    groups = cut.group_count if rule == "groups" and not chosen.legacy else 1
    return kv_blocks.printed_by_group(blocks=blocks, groups=max(groups, 1), block_size=cut.block_size)


def largest_length(cut: Layout, chosen: Settings, blocks: int) -> int:
    """
    Longest request that a pool holds.

    Args:
        cut: Layout of the pool.
        chosen: vLLM's settings.
        blocks: Blocks of the pool. [blocks]

    Returns:
        Length; windows count as full until they are. [tokens]
    """
    flight, drafts = chosen.in_flight_tokens, chosen.speculative_tokens
    growing = [(c, n) for c, n in zip(cut.classes, cut.groups, strict=True) if n and c.kind == "full"]
    capped = [(c, n) for c, n in zip(cut.classes, cut.groups, strict=True) if n and c.kind != "full"]
    endless = 1 << 40
    fixed = sum(n * c.request_blocks(endless, flight, drafts) for c, n in capped)
    if not growing:
        return chosen.max_model_len if fixed <= blocks else 0
    each = sum(n for _, n in growing)
    smallest = min(c.block_size for c, _ in growing)
    length = max(0, blocks - fixed) // each * smallest
    windows = [(c, n) for c, n in capped if c.kind in ("sliding", "chunked")]
    if not windows or length >= max(c.window for c, _ in windows) + flight:
        return length
    constant = sum(n for c, n in windows if c.kind == "sliding") + sum(
        n * c.request_blocks(endless, flight, drafts) for c, n in capped if c.kind not in ("sliding", "chunked")
    )
    return max(length, max(0, blocks - constant) // (each + sum(n for _, n in windows)) * smallest)


def _cache_detail(cut: Layout) -> str:
    if cut.group_count <= 1:
        return f"blocks of {cut.block_size} tokens"
    parts = ", ".join(f"{n} of {c.kind}" for c, n in zip(cut.classes, cut.groups, strict=True))
    return f"{cut.group_count} groups share the pool ({parts}); blocks of {cut.block_size} tokens"


# ---- loads ----


def _load(
    rank: RankAccount, cut: Layout, chosen: Settings, workload: Workload, blocks: Amount | None, needed: int
) -> GpuLoad:
    block = cut.block_bytes(rank.stage)
    claimed = 0 if blocks is None else blocks.expected * block
    return GpuLoad(
        ranks=rank.ranks,
        stage=rank.stage,
        phases=vllm_items.phases(rank, chosen, workload, claimed if blocks is not None else needed * block),
        demand_kv=exactly(needed * block),
    )


def _host(workload: Workload, chosen: Settings, ranks: tuple[RankAccount, ...]) -> Host:
    return vllm_items.host(workload, chosen, sum(r.offloaded * len(r.ranks) for r in ranks))


__all__ = ["MemoryItem", "RankAccount", "account", "demand_blocks", "total_memory"]
