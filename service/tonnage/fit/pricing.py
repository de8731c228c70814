"""
What an order costs: exact decimals, whole periods, minimum terms, several hosts. Nothing is converted or rounded away.

Source:
    SOURCES.md C (order page of a package seller: 3-day packages); provider pages named by each offer
"""

import re
from collections.abc import Container, Iterable
from decimal import ROUND_CEILING, Decimal

from msgspec import Struct

from tonnage.spec.facts import Offer, Package
from tonnage.spec.fit import CandidatePrice

HOURS = {"h": 1, "hour": 1, "d": 24, "day": 24, "w": 168, "week": 168, "month": 730}
"""A month is 730 hours, a twelfth of 8,760. [hours]"""
INTERRUPTIBLE = "spot"
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([a-z]{1,6})")
_MONEY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([A-Z]{3})")


class Bill(Struct, frozen=True, gc=False):
    """One offer for one order."""

    offer: Offer
    total: Decimal
    """Of all hosts. [currency]"""
    billed_hours: Decimal
    """Of each host: what is paid for, at least the asked duration. [hours]"""


def duration_hours(duration: float | str) -> Decimal:
    """
    Hours of a duration.

    Args:
        duration: Hours, or text such as "3 days".

    Returns:
        Length. [hours]

    Raises:
        ValueError: It is neither.
    """
    if not isinstance(duration, str):
        return Decimal(str(duration))
    match = _DURATION.fullmatch(duration)
    unit = "" if match is None else match[2] if len(match[2]) == 1 else match[2].removesuffix("s")
    if match is None or unit not in HOURS:
        raise ValueError(f"{duration!r} is not a duration: write hours or text such as '3 days'")
    return Decimal(match[1]) * HOURS[unit]


def money(text: str) -> tuple[Decimal, str]:
    """Amount and currency of a text such as "500 USD"."""
    match = _MONEY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a price: write amount and currency, such as '500 USD'")
    return Decimal(match[1]), match[2]


def period_hours(offer: Offer) -> Decimal:
    """Hours that one `price` pays for. [hours]"""
    if offer.per == "term":
        return Decimal(offer.term_hours or 1)
    return Decimal({"hour": 1, "day": 24, "month": offer.hours_per_month}[offer.per])


def bill(offer: Offer, *, hosts: int, hours: Decimal | None) -> Bill:
    """
    Price of an order under one offer.

    Args:
        offer: Price of one host for one period.
        hosts: Hosts ordered. [unitless]
        hours: Asked duration; None: the pro-rata hour, for comparing without a duration. [hours]

    Returns:
        Total over all hosts; whole periods and the minimum term are paid in full.
    """
    period = period_hours(offer)
    if hours is None:
        return Bill(offer, offer.price * hosts / period, Decimal(1))
    asked = max(hours, Decimal(offer.minimum_hours or 0))
    periods = (asked / period).to_integral_value(rounding=ROUND_CEILING)
    return Bill(offer, offer.price * periods * hosts, periods * period)


def cheapest(
    offers: Iterable[Offer], *, hosts: int, hours: Decimal | None, currency: str | None, apart: Container[str]
) -> Bill | None:
    """
    The offer an order would use.

    Args:
        offers: Of one package.
        hosts: Hosts ordered. [unitless]
        hours: Asked duration, or None. [hours]
        currency: Preferred: another currency is used only where this one is not offered.
        apart: Kinds of offers that may not be used.

    Returns:
        Lowest total; None when nothing may be used.
    """
    bills = [bill(o, hosts=hosts, hours=hours) for o in offers if o.kind not in apart]
    if len(bills) < 2:
        return bills[0] if bills else None
    wanted = currency or "USD"
    return min(
        bills, key=lambda b: (b.offer.currency != wanted, b.offer.currency, b.total, b.offer.kind, b.offer.source)
    )


def candidate_price(chosen: Bill, package: Package, *, hosts: int, hours: Decimal | None) -> CandidatePrice:
    """The price of a candidate as it is shown, with the interruptible price beside it where one is offered."""
    spot = [bill(o, hosts=hosts, hours=hours) for o in package.offers if o.kind == INTERRUPTIBLE]
    cheapest_spot = min((b.total for b in spot if b.offer.currency == chosen.offer.currency), default=None)
    return CandidatePrice(
        amount=chosen.offer.price,
        currency=chosen.offer.currency,
        per=chosen.offer.per if chosen.offer.per != "term" else f"{chosen.offer.term_hours} h",
        for_duration=plain(chosen.total),
        duration_hours=float(hours if hours is not None else 1),
        billed_hours=float(chosen.billed_hours),
        kind=chosen.offer.kind,
        as_of=chosen.offer.as_of,
        source=chosen.offer.source,
        spot=None if cheapest_spot is None or chosen.offer.kind == INTERRUPTIBLE else plain(cheapest_spot),
        detail=_arithmetic(chosen, hosts, hours),
    )


def plain(amount: Decimal) -> Decimal:
    """The amount without exponent, at most 6 decimals and at least cents where it has any."""
    rounded = amount.quantize(Decimal("0.000001"))
    cents = rounded.quantize(Decimal("0.01"))
    return cents if rounded == cents else rounded.normalize()


def _arithmetic(chosen: Bill, hosts: int, hours: Decimal | None) -> str:
    offer, period = chosen.offer, period_hours(chosen.offer)
    each = f"{offer.price} {offer.currency} per {offer.per if offer.per != 'term' else f'{offer.term_hours} h term'}"
    if hours is None:
        return f"{hosts} x {each}, pro rata for one hour: no duration stated"
    note = f" (minimum {offer.minimum_hours} h)" if offer.minimum_hours and offer.minimum_hours > hours else ""
    return f"{hosts} x {each} x {(chosen.billed_hours / period).normalize():f}{note}"
