"""SGLang's accounting: a fraction of free memory for weights and cache; graphs, activations and tables outside it."""

from math import isqrt

from msgspec import Struct

from tonnage.estimate.caches import decoder_groups, state_bytes_per_sequence, token_bytes
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.resident import resident_tensors
from tonnage.estimate.serving import sglang_items
from tonnage.estimate.serving.demand import Demand, demand
from tonnage.estimate.serving.drafts import Draft, draft
from tonnage.estimate.serving.rank_shape import RankShape, rank_shape
from tonnage.estimate.serving.sglang_settings import Settings, settings
from tonnage.estimate.serving.vllm import total_memory
from tonnage.estimate.serving.vllm_cache import state_element_bytes
from tonnage.estimate.serving.vllm_weights import rotary_positions
from tonnage.estimate.weights import StageWeights, WeightRules, stage_weights
from tonnage.laws import allocator, budget, device_context, runtime, serving_activations, serving_buffers
from tonnage.laws import static_fraction as laws
from tonnage.spec import card
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Account, Amount, CapacityTokens, Finding, GpuLoad, KvCache, Verdict, exactly
from tonnage.spec.workload import Workload
from tonnage.units import MiB, format_size

RULES = WeightRules(
    vocabulary_multiple=64,
    layer_surplus="first",
    absent=frozenset({"mtp"}),
    without_zeros=frozenset({"gptq"}),
    merges=True,
    stacks_experts=True,
)
_LOAD_GROWTH = 32 * MiB
"""Modules and first workspaces that loading itself brings in: what small models show beyond their tensors. [bytes]"""
_NCCL_SWITCHED = 1_600 * MiB
_NCCL_PCIE = 250 * MiB
"""Communicators before the weights: B200 with four ranks 3.0 GiB in all, L4 with four about 0.45. [bytes]"""


class Pools(Struct, frozen=True, kw_only=True):
    """Cache of one rank."""

    memory: Amount
    """What the fraction leaves for states and keys. [bytes]"""
    tokens: CapacityTokens
    slots: int
    """Recurrent states, 0 without recurrent layers. [unitless]"""
    requests: int
    token_bytes: int
    state_bytes: int


class Rank(Struct, frozen=True, kw_only=True):
    """Everything of one pipeline stage's GPU."""

    stage: int
    ranks: tuple[int, ...]
    before: Amount
    """Context and communicators, taken before the weights. [bytes]"""
    weights: Amount
    buffers: int
    pools: Pools
    table: int
    """Map from requests to cache slots. [bytes]"""
    graphs: Amount
    activations: int
    logits: int
    draft: int
    draft_cache: int
    """The draft's own pool: as many tokens as the target's, outside the fraction. [bytes]"""


def account(workload: Workload) -> Account:
    """
    What SGLang makes of a card.

    Args:
        workload: Resolved card for SGLang.

    Returns:
        One load per pipeline stage, the cache as the log prints it, the engine's own refusals.
    """
    chosen = settings(workload)
    serving, total = workload.serving, total_memory(workload.gpu)
    assert isinstance(serving, card.Sglang)  # noqa: S101  (dispatch is by this type)
    wanted = demand(serving, workload.placement, chosen.context)
    before = _before(workload, chosen)
    drafted = draft(workload, chosen.kv_formats, chosen.dtype)
    ranks = [_rank(workload, chosen, stage, total, (before, drafted)) for stage in _stages(workload, chosen)]
    tightest = min(ranks, key=lambda rank: rank.pools.tokens.expected)
    known = total is not None
    return Account(
        loads=tuple(
            GpuLoad(
                ranks=rank.ranks,
                stage=rank.stage,
                phases=sglang_items.phases(rank, chosen, _demand_bytes(rank.pools, wanted), claims=known),
                demand_kv=exactly(_demand_of_pool(rank.pools, wanted, chosen)),
            )
            for rank in ranks
        ),
        kv_cache=_kv_cache(tightest.pools, chosen, known),
        claimed_bytes=int(chosen.fraction * (total.expected - before.expected)) if total is not None else None,
        host=sglang_items.host(workload),
        assumptions=chosen.assumptions,
        unknowns=_unknowns(workload, chosen),
        invalidated_by=(
            "another process on the same GPU: the fraction is of what is free",
            "another engine version or attention backend",
        ),
        findings=_findings(workload, chosen, tightest.pools, wanted) if known else (),
    )


# ---- weights ----


def _stages(workload: Workload, chosen: Settings) -> tuple[StageWeights, ...]:
    placement = workload.placement
    return stage_weights(
        workload.model,
        workload.weight_format,
        workload.formats,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        expert_parallel_size=placement.expert_parallel_size,
        rules=RULES,
        dtype=chosen.dtype,
    )


def _rank(
    workload: Workload, chosen: Settings, stage: StageWeights, total: Amount | None, beside: tuple[Amount, Draft]
) -> Rank:
    placement, model = workload.placement, workload.model
    tp, held = placement.tensor_parallel_size, stage.layers or None
    shape = rank_shape(model, held, tensor_parallel_size=tp, expert_parallel_size=placement.expert_parallel_size)
    before, drafted = beside
    weights = _weights(workload, chosen, stage)
    tables = _rotary(model, stage.layers, chosen.element_bytes)
    pools = _pools(workload, chosen, stage, _memory(chosen, total, before, weights, tables + drafted.weights))
    rows = pools.requests + chosen.release.spare_request_rows
    return Rank(
        stage=stage.stage,
        ranks=tuple(range(stage.stage * tp, (stage.stage + 1) * tp)),
        before=before,
        weights=weights,
        buffers=tables,
        pools=pools,
        table=runtime.request_table(
            requests=rows,
            max_model_len=chosen.context,
            extra_tokens=chosen.release.spare_request_columns + chosen.draft_tokens,
        ),
        graphs=_graphs(chosen, shape, tp),
        activations=_activations(chosen, shape),
        draft=drafted.weights,
        draft_cache=drafted.layers * drafted.layer_token_bytes * pools.tokens.expected,
        logits=4 * max(chosen.decode_sizes, default=1) * model.vocab_size,
    )


def _weights(workload: Workload, chosen: Settings, stage: StageWeights) -> Amount:
    """Change of free memory while loading: whole segments of the allocator, and what loading brings in."""
    size = stage.total
    if workload.model.known and workload.weight_format.kind != "file-mix":
        placement = workload.placement
        size = _reserved(
            workload.model,
            workload.weight_format,
            workload.formats,
            chosen.dtype,
            tensor_parallel_size=placement.tensor_parallel_size,
            pipeline_parallel_size=placement.pipeline_parallel_size,
            expert_parallel_size=placement.expert_parallel_size,
        )[stage.stage]
    plain = workload.weight_format.kind == "plain"
    part = int(size * (0.004 if plain else 0.02))
    return Amount(size - part, size + _LOAD_GROWTH // 4, size + part + 2 * _LOAD_GROWTH)


@remembered()
def _reserved(
    model: Model, weight_format: WeightFormat, formats: dict[str, WeightFormat], dtype: str, **cut: int
) -> tuple[int, ...]:
    tensors = resident_tensors(model, weight_format, formats, **cut, rules=RULES, dtype=dtype)
    return tuple(allocator.reserved(tensors=stage) for stage in tensors)


@remembered()
def _rotary(model: Model, layers: tuple[int, ...], element_bytes: int) -> int:
    widths = {
        group.layer.attention.rotary_dim
        for group, _ in decoder_groups(model, layers or None)
        if group.layer.attention is not None and group.layer.attention.rotary in ("rope", "partial")
    }
    positions = rotary_positions(model, local=False)
    return sum(
        serving_buffers.rotary_cache(positions=positions, rotary_dim=width, element_bytes=element_bytes)
        for width in widths
    )


# ---- cache ----


def _before(workload: Workload, chosen: Settings) -> Amount:
    """Context and communicators that free memory is measured after."""
    if chosen.rocm:
        context = device_context.rocm()
    else:
        context = device_context.cuda(multiprocessors=chosen.multiprocessors) + device_context.torch_libraries()
    ranks = workload.placement.tensor_parallel_size * workload.placement.pipeline_parallel_size
    nccl = 0 if ranks == 1 else _NCCL_SWITCHED if chosen.nvswitch else _NCCL_PCIE
    return Amount(int(context * 0.7 + nccl * 0.5), context + nccl, int(context * 1.5 + nccl * 1.8))


def _memory(chosen: Settings, total: Amount | None, before: Amount, weights: Amount, tables: int) -> Amount:
    if total is None:
        return exactly(0)
    free = total.expected - before.expected
    expected = budget.pool_of_static_fraction(
        fraction=chosen.fraction, free_before=free, free_after=free - weights.expected - tables
    )
    part = chosen.fraction
    smaller = (
        (part * (total.expected - total.low)) ** 2
        + (part * (before.high - before.expected)) ** 2
        + (weights.high - weights.expected) ** 2
    )
    larger = (
        (part * (total.high - total.expected)) ** 2
        + (part * (before.expected - before.low)) ** 2
        + (weights.expected - weights.low) ** 2
    )
    return Amount(expected - isqrt(int(smaller)), expected, expected + isqrt(int(larger)))


def _pools(workload: Workload, chosen: Settings, stage: StageWeights, memory: Amount) -> Pools:
    model, tp, release = workload.model, workload.placement.tensor_parallel_size, chosen.release
    layers = stage.layers or None
    each = token_bytes(model, *chosen.kv_formats, tensor_parallel_size=tp, layers=layers) if model.known else 0
    state = _state_bytes(model, chosen.element_bytes, tp, layers) if model.known else 0
    slots = (
        laws.state_slots(pool=max(0, memory.expected), state_bytes=state, ratio=release.recurrent_ratio) if state else 0
    )
    tokens = CapacityTokens(
        *(_tokens(chosen, model, layers, size, token=each, state=state) for size in _bounds(memory))
    )
    requests = laws.running_requests(
        tokens=tokens.expected,
        context=chosen.context,
        per_context=release.requests_per_context,
        least=release.least_running_requests,
        most=release.most_running_requests,
    )
    if chosen.max_running_requests is not None:
        requests = chosen.max_running_requests
    if state:
        requests = min(requests, slots // release.recurrent_slots_per_request)
    return Pools(memory=memory, tokens=tokens, slots=slots, requests=requests, token_bytes=each, state_bytes=state)


def _bounds(memory: Amount) -> tuple[int, int, int]:
    return max(0, memory.low), max(0, memory.expected), max(0, memory.high)


def _tokens(
    chosen: Settings, model: Model, layers: tuple[int, ...] | None, memory: int, *, token: int, state: int
) -> int:
    release = chosen.release
    if state:
        slots = laws.state_slots(pool=memory, state_bytes=state, ratio=release.recurrent_ratio)
        memory -= slots * state
    tokens = laws.tokens(pool=memory, token_bytes=token, page_size=chosen.page_size)
    sliding, full = _window_layers(model, layers)
    if not sliding or not full or release.sliding_ratio == 1.0:
        return tokens
    return laws.full_attention_tokens(
        tokens=tokens, full_layers=full, sliding_layers=sliding, ratio=release.sliding_ratio
    )


@remembered()
def _window_layers(model: Model, layers: tuple[int, ...] | None) -> tuple[int, int]:
    """Sliding-window and full-attention layers of a stage."""
    counts = {"sliding": 0, "full": 0}
    for group, count in decoder_groups(model, layers):
        attention = group.layer.attention
        if attention is not None and attention.kind in counts:
            counts[attention.kind] += count
    return counts["sliding"], counts["full"]


@remembered()
def _state_bytes(model: Model, element_bytes: int, ranks: int, layers: tuple[int, ...] | None) -> int:
    kinds = {g.layer.recurrent.kind for g, _ in decoder_groups(model, layers) if g.layer.recurrent is not None}
    if not kinds:
        return 0
    width = max(
        4 if kind in ("gated_delta", "kda") else state_element_bytes(model, kind, element_bytes) for kind in kinds
    )
    return state_bytes_per_sequence(
        model, conv_bytes=element_bytes, state_bytes=width, tensor_parallel_size=ranks, layers=layers
    )


def _demand_bytes(pools: Pools, wanted: Demand) -> int:
    tokens = wanted.shared_tokens + wanted.requests * (wanted.tokens - wanted.shared_tokens)
    return tokens * pools.token_bytes + wanted.requests * pools.state_bytes


def _demand_of_pool(pools: Pools, wanted: Demand, chosen: Settings) -> int:
    """What must be there to start: a request of the longest length that the pool does not hold is refused later."""
    needed = _demand_bytes(pools, wanted)
    if wanted.tokens < chosen.context:
        return needed
    return min(needed, max(0, pools.memory.expected))


def _kv_cache(pools: Pools, chosen: Settings, known: bool) -> KvCache:
    if not known:
        return KvCache(
            bytes_per_token=pools.token_bytes,
            state_bytes_per_sequence=pools.state_bytes,
            max_model_len=chosen.context,
            detail="no card stated: no pool",
        )
    low, expected, high = _bounds(pools.memory)
    detail = f"{pools.slots} recurrent states beside the keys and values" if pools.slots else ""
    return KvCache(
        bytes_per_token=pools.token_bytes,
        state_bytes_per_sequence=pools.state_bytes,
        pool=Amount(low, expected, high),
        capacity_tokens=pools.tokens,
        max_concurrency=round(pools.tokens.expected / chosen.context, 2),
        max_model_len=chosen.context,
        block_size=chosen.page_size,
        largest_max_model_len=pools.tokens.expected,
        detail=detail,
    )


# ---- outside the fraction ----


def _graphs(chosen: Settings, shape: RankShape, ranks: int) -> Amount:
    if not chosen.decode_sizes:
        return exactly(0)
    release, sizes = chosen.release, len(chosen.decode_sizes)
    reductions = 0 if ranks == 1 or chosen.nvswitch else 2 * release.graph_bytes_per_reduction
    size = shape.layers * sizes * (release.graph_bytes_per_node + reductions)
    size += len(chosen.prefill_sizes) * release.prefill_graph_bytes
    return Amount(int(size / release.graph_spread), size, int(size * release.graph_spread))


def _activations(chosen: Settings, shape: RankShape) -> int:
    return serving_activations.mlp_eager(
        tokens=chosen.chunked_prefill_size,
        hidden_size=shape.hidden_size,
        width=max(shape.mlp_width, _expert_width(shape)),
        gated=shape.gated,
        element_bytes=chosen.element_bytes,
        keeps_gate_up=True,
    )


def _expert_width(shape: RankShape) -> int:
    return shape.experts.per_token * shape.experts.width if shape.experts is not None else 0


# ---- findings ----


def _findings(workload: Workload, chosen: Settings, pools: Pools, wanted: Demand) -> tuple[Finding, ...]:
    found = []
    if not workload.profile_certain:
        reason = f"SGLang version not checked: answered with the profile of {chosen.release.since}"
        found.append(Finding(status="needs_confirmation", reason=reason, field="/serving/engine_version"))
    if pools.memory.expected <= 0:
        status: Verdict = "excluded" if pools.memory.high <= 0 else "needs_confirmation"
        reason = f"not enough memory: mem_fraction_static {chosen.fraction:g} is used up by the weights"
        found.append(Finding(status=status, reason=reason, field="/serving/gpu_memory_utilization"))
        return tuple(found)
    found += _against_tokens(chosen, pools, wanted)
    if wanted.requests > pools.requests:
        reason = f"{wanted.requests} requests at once, {pools.requests} may run: the rest waits"
        found.append(Finding(status="needs_confirmation", reason=reason, field="/serving/concurrency"))
    return tuple(found)


def _against_tokens(chosen: Settings, pools: Pools, wanted: Demand) -> list[Finding]:
    """A request longer than the pool is refused when it comes, not at start."""
    needed = _demand_bytes(pools, wanted)
    available = pools.tokens.expected * pools.token_bytes + pools.slots * pools.state_bytes
    lowest = pools.tokens.low * pools.token_bytes + pools.slots * pools.state_bytes
    if needed <= lowest:
        return []
    asked = wanted.tokens < chosen.context
    status: Verdict = "excluded" if asked and needed > available * 1.1 else "needs_confirmation"
    reason = (
        f"{wanted.requests} x {wanted.tokens} tokens need {format_size(needed)} of cache, the fraction leaves "
        f"{format_size(available)}: it starts, but cannot serve that at once"
    )
    return [Finding(status=status, reason=reason, field="/serving/gpu_memory_utilization")]


def _unknowns(workload: Workload, chosen: Settings) -> tuple[str, ...]:
    found = ["prefill activations: taken from layer widths, SGLang does not profile them"]
    if workload.draft is not None:
        found.append("graphs of the draft model")
    if chosen.images:
        found.append("vision encoder activations")
    if chosen.rocm:
        found.append("attention workspaces on AMD")
    return tuple(found)
