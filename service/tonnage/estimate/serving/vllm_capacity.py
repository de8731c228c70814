"""What vLLM's pool holds and what traffic takes of it, in the release's own way of counting."""

from typing import NamedTuple

from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.demand import Demand
from tonnage.estimate.serving.vllm_cache import Layout
from tonnage.estimate.serving.vllm_settings import Settings
from tonnage.laws import kv_blocks
from tonnage.spec.report import Amount, CapacityTokens, KvCache
from tonnage.units import BILLION

_ENDLESS = 1_000 * BILLION
"""Longer than any request: windows are full. [tokens]"""


class TrafficBlocks(NamedTuple):
    """What the stated traffic takes of the pool. [blocks]"""

    one: int
    """Of one request."""
    common: int
    """Those of them that all requests share."""
    needed: int
    """Of all requests together."""


def traffic_blocks(cut: Layout, chosen: Settings, wanted: Demand) -> TrafficBlocks:
    """Blocks that the traffic takes. [blocks]"""
    each = cut.request_blocks(wanted.tokens, chosen.in_flight_tokens, chosen.spare_states)
    if not (chosen.prefix_caching and wanted.shared_tokens):
        return TrafficBlocks(each, 0, wanted.requests * each)
    common = sum(
        count * (wanted.shared_tokens // c.block_size)
        for c, count in zip(cut.classes, cut.groups, strict=True)
        if c.kind == "full"
    )
    return TrafficBlocks(each, common, common + wanted.requests * (each - common))


def kv_cache(pool: Amount, cut: Layout, chosen: Settings, blocks: Amount | None, *, request_blocks: int) -> KvCache:
    """
    The cache as the log reports it.

    Args:
        pool: Cache memory of the first rank, nothing where it is less than none. [bytes]
        cut: Layout of the pool.
        chosen: vLLM's settings.
        blocks: Blocks of the pool; None without a card. [blocks]
        request_blocks: Of one request of max_model_len. [blocks]

    Returns:
        Pool, tokens, blocks, concurrency and the longest request that fits.
    """
    if blocks is None:
        return KvCache(
            bytes_per_token=max(cut.token_bytes), state_bytes_per_sequence=max(cut.state_bytes),
            max_model_len=chosen.max_model_len, block_size=cut.block_size,
            detail="no card stated: no pool",
        )  # fmt: skip
    per_request = request_blocks
    if cut.printed_weights:
        per_request = cut.printed_request_blocks(chosen.max_model_len, chosen.in_flight_tokens, chosen.spare_states)
    return KvCache(
        bytes_per_token=max(cut.token_bytes),
        state_bytes_per_sequence=max(cut.state_bytes),
        pool=pool,
        capacity_tokens=printed_tokens(cut, chosen, blocks, per_request),
        max_concurrency=_printed_concurrency(cut, chosen, blocks.expected, per_request),
        max_model_len=chosen.max_model_len,
        blocks=blocks.expected,
        block_size=cut.block_size,
        largest_max_model_len=largest_length(cut, chosen, blocks.expected),
        detail=_cache_detail(cut),
    )


def _printed_concurrency(cut: Layout, chosen: Settings, blocks: int, per_request: int) -> float | None:
    if not per_request:
        return None
    if chosen.legacy or chosen.release.concurrency_by_tokens:
        return round(blocks * cut.block_size / chosen.max_model_len, 2)
    return round(blocks / per_request, 2)


def with_traffic(cache: KvCache, wanted: Demand, traffic: TrafficBlocks, blocks: Amount | None) -> KvCache:
    """
    The cache with what it holds of the stated traffic.

    Args:
        cache: The cache as the log reports it.
        wanted: Traffic.
        traffic: Blocks that it takes.
        blocks: Blocks of the pool; None without a card. [blocks]

    Returns:
        The cache, its detail longer.
    """
    if blocks is None or not wanted.stated:
        return cache
    one, another = traffic.one, traffic.one - traffic.common
    held = 0 if blocks.expected < one else 1 + (blocks.expected - one) // another if another else wanted.requests
    risk = (
        "" if held >= wanted.requests else f" of {wanted.requests} asked: the rest waits, or running ones are preempted"
    )
    return replace(cache, detail=f"{cache.detail}; {held} requests of {wanted.tokens} tokens fit at once{risk}")


def printed_tokens(cut: Layout, chosen: Settings, blocks: Amount, per_request: int) -> CapacityTokens:
    """Cache size that the log prints, by the rule of the release. [tokens]"""
    rule = chosen.release.printed_tokens
    if rule == "concurrency" and per_request:
        held = [blocks.low / per_request, blocks.expected / per_request, blocks.high / per_request]
        longest = chosen.max_model_len
        return CapacityTokens(
            *[kv_blocks.printed_by_concurrency(concurrency=one, max_model_len=longest) for one in held]
        )
    return _printed_by_group(cut, rule == "groups" and not chosen.legacy, blocks)


@remembered()
def _printed_by_group(cut: Layout, grouped: bool, blocks: Amount) -> CapacityTokens:
    groups = max(cut.group_count, 1) if grouped else 1
    counts, size = (blocks.low, blocks.expected, blocks.high), cut.block_size
    return CapacityTokens(*[kv_blocks.printed_by_group(blocks=n, groups=groups, block_size=size) for n in counts])


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
    length = _largest_length(cut, chosen.in_flight_tokens, chosen.spare_states, blocks)
    return chosen.max_model_len if length is None else length


@remembered()
def _largest_length(cut: Layout, flight: int, spare: int, blocks: int) -> int | None:
    """The same, None where no layer's cache grows and any length fits. [tokens]"""
    growing = [(c, n) for c, n in zip(cut.classes, cut.groups, strict=True) if n and c.grows]
    capped = [(c, n) for c, n in zip(cut.classes, cut.groups, strict=True) if n and not c.grows]
    fixed = sum(n * c.request_blocks(_ENDLESS, flight, spare) for c, n in capped)
    if not growing:
        return None if fixed <= blocks else 0
    each = sum(n for _, n in growing)
    smallest = min(c.block_size for c, _ in growing)
    length = max(0, blocks - fixed) // each * smallest
    windows = [(c, n) for c, n in capped if c.kind in ("sliding", "chunked")]
    if not windows or length >= max(c.window for c, _ in windows) + flight:
        return length
    low, high = length, max(c.window for c, _ in windows) + flight
    while low < high:
        middle = (low + high + 1) // 2
        if cut.request_blocks(middle, flight, spare) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low


@remembered()
def _cache_detail(cut: Layout) -> str:
    if cut.group_count <= 1:
        return f"blocks of {cut.block_size} tokens"
    parts = ", ".join(f"{n} of {c.kind}" for c, n in zip(cut.classes, cut.groups, strict=True))
    return f"{cut.group_count} groups share the pool ({parts}); blocks of {cut.block_size} tokens"
