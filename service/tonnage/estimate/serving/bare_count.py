"""What an engine's account says when only a parameter count is known: what does not follow from it is left out and named."""

from collections.abc import Iterator

from msgspec.structs import replace

from tonnage.spec.report import Account, Amount, MemoryItem, PhaseItems, exactly

UNKNOWN = "cache, activations, logits and graphs: they follow from layers, heads and vocabulary, only a parameter count is known"
_OPEN = frozenset(
    {"activations", "logits", "sampler", "recurrent_state", "vision_encoder", "fragmentation", "cuda_graphs"}
)


def without_architecture(account: Account) -> Account:
    """
    An account without the figures that no count gives.

    Args:
        account: As the engine makes it of a model without layers.

    Returns:
        Weights, what the process takes, and the pool where a fraction claims one; the rest among the unknowns.
    """
    pool = None if account.kv_cache is None else account.kv_cache.pool
    loads = tuple(
        replace(
            load,
            phases=tuple(PhaseItems(p.phase, tuple(_known(p.items, pool))) for p in load.phases),
            demand_kv=exactly(0) if account.claimed_bytes is not None else load.demand_kv,
        )
        for load in account.loads
    )
    return replace(account, loads=loads, kv_cache=None, unknowns=(*account.unknowns, UNKNOWN))


def _known(items: tuple[MemoryItem, ...], pool: Amount | None) -> Iterator[MemoryItem]:
    for item in items:
        if item.component == "kv_cache" and not item.bytes.high:
            if pool is not None and pool.expected:
                yield replace(item, bytes=pool)
        elif item.component not in _OPEN:
            yield item
