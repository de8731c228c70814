"""SGLang's cache: what the static fraction leaves, states and tokens in it, what traffic takes of it."""

from collections import Counter
from math import ceil, isqrt

from msgspec import Struct, structs

from tonnage.estimate.caches import decoder_groups, layer_cache_bytes_per_token, state_bytes_per_sequence
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.demand import Demand
from tonnage.estimate.serving.sglang_settings import Settings
from tonnage.estimate.serving.vllm_cache import state_element_bytes
from tonnage.estimate.weights import StageWeights
from tonnage.laws import budget
from tonnage.laws import static_fraction as laws
from tonnage.spec.engines.sglang import Sglang as Release
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Attention, Layer, Model
from tonnage.spec.report import Amount, CapacityTokens, KvCache, exactly
from tonnage.spec.workload import Workload

_BLACKWELL = 10
"""Major compute capability of data-centre Blackwell."""


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


def pools(
    workload: Workload, chosen: Settings, stage: StageWeights, memory: Amount, *, draft_token_bytes: int = 0
) -> Pools:
    """
    States and tokens of one rank.

    Args:
        workload: Resolved card.
        chosen: SGLang's settings.
        stage: Pipeline stage.
        memory: What the fraction leaves. [bytes]
        draft_token_bytes: One token in the cache of the draft. [bytes/token]

    Returns:
        Pools.
    """
    model, tp, release = workload.model, chosen.attention_ranks, chosen.release
    layers = stage.layers or None
    drafts, blackwell = bool(chosen.draft_tokens), chosen.major == _BLACKWELL
    each: float = 0
    if model.known:
        each = _token(model, chosen.kv_formats, release, layers, speculative=drafts, ranks=tp, blackwell=blackwell)
        each += draft_token_bytes if release.draft_cache_inside else 0
    state = _state_bytes(model, chosen.element_bytes, tp, layers) if model.known else 0
    slots = _slots(chosen, max(0, memory.expected), state)
    tokens = CapacityTokens(*(_tokens(chosen, size, token=each, state=state) for size in _bounds(memory)))
    found = Pools(memory=memory, tokens=tokens, slots=slots, requests=0, token_bytes=ceil(each), state_bytes=state)
    return for_context(found, chosen)


def for_context(found: Pools, chosen: Settings) -> Pools:
    """The same pools with as many requests as the settings' longest context lets run."""
    release, requests = chosen.release, chosen.max_running_requests
    if requests is None:
        requests = laws.running_requests(
            tokens=found.tokens.expected,
            context=chosen.context,
            per_context=release.requests_per_context,
            least=release.least_running_requests,
            most=release.most_running_requests,
        )
    if found.state_bytes:
        requests = min(requests, found.slots // (release.recurrent_slots_per_request if chosen.keeps_prefixes else 1))
    return structs.replace(found, requests=requests)


def _bounds(memory: Amount) -> tuple[int, int, int]:
    return max(0, memory.low), max(0, memory.expected), max(0, memory.high)


def _slots(chosen: Settings, memory: int, state: int) -> int:
    """Recurrent states: as many as their share of the memory; before 0.5.4 and without kept prefixes one for every request."""
    if not state:
        return 0
    release, requests = chosen.release, chosen.max_running_requests
    usual = release.recurrent_slots or (0 if chosen.keeps_prefixes else release.recurrent_slots_without_prefixes)
    if usual or not (chosen.keeps_prefixes or requests is None):
        return requests or max(1, usual // chosen.attention_groups)
    left = max(0, memory - _draft_states(chosen, state))
    return laws.state_slots(pool=left, state_bytes=state, ratio=chosen.release.recurrent_ratio)


def _draft_states(chosen: Settings, state: int) -> int:
    """States between the tokens of a draft, of every request that may run. [bytes]"""
    return state * (chosen.max_running_requests or 0) * chosen.draft_tokens


def _tokens(chosen: Settings, memory: int, *, token: float, state: int) -> int:
    memory -= _draft_states(chosen, state) + _slots(chosen, memory, state) * state
    return laws.tokens(pool=max(0, memory), token_bytes=token, page_size=chosen.page_size)


@remembered()
def _token(
    model: Model,
    formats: tuple[KvFormat, KvFormat],
    release: Release,
    layers: tuple[int, ...] | None,
    *,
    speculative: bool,
    ranks: int,
    blackwell: bool,
) -> float:
    """What one token of the full-attention layers costs on a rank. [bytes/token]"""
    groups = [(g.layer, count) for g, count in decoder_groups(model, layers) if g.layer.attention is not None]
    latents = [(layer.attention, count) for layer, count in groups if layer.attention and _compressed(layer.attention)]
    if latents:
        return _latent_token(latents, model.mtp_layers, release.latent_window_ratio, speculative)
    full = sliding = 0
    for layer, count in groups:
        size = count * _layer_token(layer, formats, ranks)
        if _has_own_pool(model, layer, release, blackwell=blackwell):
            sliding += size
        else:
            full += size
    return laws.windowed_token(full_bytes=full, sliding_bytes=sliding, ratio=release.sliding_ratio)


def _compressed(attention: Attention) -> bool:
    return attention.kind == "mla" and attention.window is not None


def _latent_token(
    latents: list[tuple[Attention, int]], prediction_layers: int, ratio: float, speculative: bool
) -> float:
    first, _ = latents[0]
    nope, rope = first.kv_lora_rank or 0, first.qk_rope_head_dim or 0
    kinds: Counter[tuple[int, int]] = Counter()
    for attention, count in latents:
        if attention.compress_ratio > 1:
            kinds[attention.compress_ratio, attention.index_head_dim or 0] += count
    return laws.compressed_token(
        latent_bytes=nope + 2 * rope + _LATENT_SCALES,
        state_width=nope + rope,
        window=first.window or 1,
        ratio=ratio,
        windowed_layers=sum(count for _, count in latents) + prediction_layers,
        compressions=tuple((tokens, count, index) for (tokens, index), count in kinds.items()),
        speculative=speculative,
    )


_LATENT_SCALES = 8
"""Scales of the fp8 part of a compressed latent. [bytes/token]"""


def _layer_token(layer: Layer, formats: tuple[KvFormat, KvFormat], ranks: int) -> int:
    """A layer that reads an earlier layer's cache gets a pool all the same."""
    attention = layer.attention
    if attention is not None and attention.kv_shared:
        layer = structs.replace(layer, attention=structs.replace(attention, kv_shared=False))
    return layer_cache_bytes_per_token(layer, *formats, ranks)


def _has_own_pool(model: Model, layer: Layer, release: Release, *, blackwell: bool) -> bool:
    """Whether a layer's window has a pool of its own in this release."""
    attention, kind = layer.attention, model.model_type
    if attention is None or kind not in release.sliding_models or (blackwell and kind in release.whole_on_blackwell):
        return False
    return attention.kind in ("sliding", "chunked")


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
