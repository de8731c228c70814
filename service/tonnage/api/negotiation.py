"""Which media type of the answer a caller wants (RFC 9110, 12.5.1)."""

from collections.abc import Sequence
from functools import lru_cache

from tonnage.api.problems import NOT_ACCEPTABLE, ProblemError

JSON = "application/json"
MSGPACK = "application/vnd.msgpack"
TEXT = "text/plain"
SVG = "image/svg+xml"
CSV = "text/csv"
MARKDOWN = "text/markdown"
NDJSON = "application/x-ndjson"

_MAX_RANGES = 64


@lru_cache(maxsize=512)
def preferred(accept: str, offers: tuple[str, ...]) -> str | None:
    """
    The offer a caller likes best.

    Args:
        accept: Accept header; "" accepts everything.
        offers: Media types the route can answer in, the default first.

    Returns:
        One of the offers, None when none is acceptable. Ties go to the earlier offer.
    """
    ranges = _ranges(accept)
    if not ranges:
        return offers[0]
    weighed = [(_weight(offer, ranges), -place, offer) for place, offer in enumerate(offers)]
    best = max(weighed)
    return best[2] if best[0] > 0 else None


def choose(accept: bytes | None, offers: tuple[str, ...]) -> str:
    """The offer to answer in, or the 406 that lists all of them."""
    if accept is None or accept in (b"*/*", b"application/json"):
        return offers[0]
    chosen = preferred(accept.decode("latin-1"), offers)
    if chosen is None:
        raise ProblemError(NOT_ACCEPTABLE, f"the answer can be had as {', '.join(offers)}")
    return chosen


def _ranges(accept: str) -> list[tuple[str, float]]:
    ranges = []
    for part in accept.split(",")[:_MAX_RANGES]:
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if kind:
            ranges.append((kind, _quality(parameters)))
    return ranges


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                return 0.0
            return quality if 0 <= quality <= 1 else 0.0
    return 1.0


def _weight(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Quality of the most specific range that matches, 0 when none does."""
    family = offer.partition("/")[0]
    for pattern in (offer, f"{family}/*", "*/*"):
        matching = [quality for kind, quality in ranges if kind == pattern]
        if matching:
            return max(matching)
    return 0.0
