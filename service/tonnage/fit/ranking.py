"""Which candidate stands before which: total price, then headroom, then name; what is dominated; and why."""

from collections.abc import Iterable

from tonnage.fit.found import Found
from tonnage.fit.judged import EXCLUDED, MET
from tonnage.fit.need import Need
from tonnage.fit.pricing import plain
from tonnage.units import format_size


def ranked(found: Iterable[Found], need: Need) -> list[Found]:
    """Candidates that nothing excludes, best first."""
    return sorted((f for f in found if f.status != EXCLUDED), key=lambda f: rank_key(f, need))


def rank_key(found: Found, need: Need) -> tuple[object, ...]:
    """Price in the asked currency first, then other currencies, then no price; headroom; names."""
    bill = found.bill
    headroom = -found.technical.headroom
    if bill is None:
        return (2, "", 0, headroom, *_names(found))
    return (int(bill.offer.currency != need.currency), bill.offer.currency, bill.total, headroom, *_names(found))


def _names(found: Found) -> tuple[object, ...]:
    technical = found.technical
    return (
        found.order.package.id,
        found.order.hosts,
        technical.variant.weight_format.id,
        technical.variant.kv_cache_dtype or "",
    )


def without_dominated(found: list[Found]) -> tuple[list[Found], int]:
    """
    Candidates less those that the same package beats.

    Args:
        found: Judged candidates, excluded ones among them; of one package fewer hosts come first.

    Returns:
        What is left, and how many were left out: same package and format, no cheaper, no better status.
    """
    best: dict[tuple[str, tuple[str, str | None]], list[Found]] = {}
    for one in found:
        kept = best.setdefault((one.order.package.id, one.technical.variant.name), [])
        if not kept or one.status < kept[-1].status:  # each kept one is better than the one before it
            kept.append(one)
    left = [one for kept in best.values() for one in kept]
    return left, len(found) - len(left)


def selected(candidates: Iterable[Found]) -> Found | None:
    """First candidate whose every requirement is met."""
    return next((f for f in candidates if f.status == MET), None)


def explain(first: Found, second: Found) -> str:
    """Why the first stands before the second, in words."""
    one, two = first.bill, second.bill
    if one is None or two is None:
        return "it has a price" if one is not None else "neither has a price: headroom, then name decides"
    if one.offer.currency != two.offer.currency:
        return f"priced in {one.offer.currency}; {two.offer.currency} is not converted"
    if one.total != two.total:
        return f"{plain(one.total):f} against {plain(two.total):f} {one.offer.currency} for the duration"
    if first.technical.headroom != second.technical.headroom:
        more, less = (format_size(f.technical.headroom) for f in (first, second))
        return f"same price, {more} of headroom against {less}"
    return "same price and headroom: the name decides"
