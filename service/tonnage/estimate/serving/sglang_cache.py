"""SGLang's cache: what the static fraction leaves, states and tokens in it, what traffic takes of it."""

from math import isqrt

from msgspec import Struct

from tonnage.estimate.caches import decoder_groups, state_bytes_per_sequence, token_bytes
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.demand import Demand
from tonnage.estimate.serving.sglang_settings import Settings
from tonnage.estimate.serving.vllm_cache import state_element_bytes
from tonnage.estimate.weights import StageWeights
from tonnage.laws import budget
from tonnage.laws import static_fraction as laws
from tonnage.spec.model import Model
from tonnage.spec.report import Amount, CapacityTokens, KvCache, exactly
from tonnage.spec.workload import Workload


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


def memory(chosen: Settings, total: Amount | None, before: Amount, weights: Amount, tables: int) -> Amount:
    """
    What the fraction leaves for the cache once weights are loaded.

    Args:
        chosen: SGLang's settings.
        total: The card's memory; None without a card.
        before: Context and communicators, taken before the fraction is.
        weights: Weights.
        tables: Other tensors that loading brings. [bytes]

    Returns:
        Memory; below nothing when the weights use the fraction up. [bytes]
    """
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


def pools(workload: Workload, chosen: Settings, stage: StageWeights, memory: Amount) -> Pools:
    """
    States and tokens of one rank.

    Args:
        workload: Resolved card.
        chosen: SGLang's settings.
        stage: Pipeline stage.
        memory: What the fraction leaves. [bytes]

    Returns:
        Pools.
    """
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


def demand_bytes(pools: Pools, wanted: Demand) -> int:
    """What the traffic takes of the cache. [bytes]"""
    tokens = wanted.shared_tokens + wanted.requests * (wanted.tokens - wanted.shared_tokens)
    return tokens * pools.token_bytes + wanted.requests * pools.state_bytes


def demand_of_pool(pools: Pools, wanted: Demand, chosen: Settings) -> int:
    """What must be there to start: a request of the longest length that the pool does not hold is refused later."""
    needed = demand_bytes(pools, wanted)
    if wanted.tokens < chosen.context:
        return needed
    return min(needed, max(0, pools.memory.expected))


def kv_cache(pools: Pools, chosen: Settings, known: bool) -> KvCache:
    """
    The cache as the log reports it.

    Args:
        pools: Pools of the tightest rank.
        chosen: SGLang's settings.
        known: A card is stated.

    Returns:
        Pool, tokens, concurrency and the longest request.
    """
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
