"""What the stated traffic asks of a cache: how many requests, how long, what they share."""

from msgspec import Struct

from tonnage.spec.card import Placement, ServingCommon
from tonnage.units import ceil_div


class Demand(Struct, frozen=True):
    """Traffic on one replica."""

    requests: int
    tokens: int
    """Length of every request, prompt and answer. [tokens]"""
    shared_tokens: int
    """Prefix that all requests have in common. [tokens]"""
    stated: bool
    """False when the card states none: one request of the longest length stands for it."""


def demand(
    serving: ServingCommon, placement: Placement, max_model_len: int, groups: int = 1, *, keeps_prefixes: bool = True
) -> Demand:
    """
    Traffic that a card states, on one replica, or one group of its ranks.

    Args:
        serving: The card's serving part.
        placement: Its replicas share the requests.
        max_model_len: Length of a request that states none. [tokens]
        groups: Groups of ranks within a replica that share its requests too. [unitless]
        keeps_prefixes: Whether requests find what others have left in the cache.

    Returns:
        Requests, their length and what they share.
    """
    lengths = (serving.input_tokens, serving.output_tokens)
    stated = serving.concurrency is not None or any(lengths)
    tokens = sum(n or 0 for n in lengths) or max_model_len
    requests = ceil_div(serving.concurrency or 1, placement.data_parallel_size * groups)
    shared = min(serving.shared_prefix_tokens or 0, tokens)
    return Demand(requests, tokens, shared if keeps_prefixes and requests > 1 else 0, stated)
