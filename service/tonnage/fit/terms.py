"""What an order has to be, whatever runs on it: price, term, region, provider, delivery, age of the price."""

from datetime import date
from decimal import Decimal
from functools import lru_cache

from tonnage.fit.judged import CONFIRM, EXCLUDED, MET, Judged
from tonnage.fit.need import DEFAULT_MAX_PRICE_AGE_DAYS, Need
from tonnage.fit.packages import Order
from tonnage.fit.pricing import Bill, plain

EVERYWHERE = {None, "global", "marketplace", "us", "eu", "europe-01", "it"}
"""Regions too wide to say where a host stands."""


def price(bill: Bill | None, order: Order, need: Need) -> Judged:
    """Total against the budget."""
    budget = need.budget
    if bill is None:
        spot = bool(order.package.offers)
        words = "only interruptible or marketplace prices, which are not allowed" if spot else "no price is known"
        return Judged("price", EXCLUDED if spot else CONFIRM, lambda: words, order.package.source)
    offer = bill.offer
    if budget is not None and offer.currency != budget[1]:
        return Judged(
            "price",
            CONFIRM,
            lambda: f"priced in {offer.currency}, budget in {budget[1]}: nothing is converted",
            offer.source,
        )
    if budget is not None and bill.total > budget[0]:
        return Judged("price", EXCLUDED, lambda: f"{_money(bill)} is above {budget[0]} {budget[1]}", offer.source)
    if not offer.confirmed or offer.kind == "marketplace":
        why = "a marketplace price moves" if offer.kind == "marketplace" else "the source of the price is doubtful"
        return Judged("price", CONFIRM, lambda: f"{_money(bill)}: {why}", offer.source)
    limit = "" if budget is None else f", {budget[0]} {budget[1]} allowed"
    return Judged("price", MET, lambda: f"{_money(bill)}{limit}", offer.source)


def _money(bill: Bill) -> str:
    total: Decimal = plain(bill.total)
    return f"{total:f} {bill.offer.currency}"


def term(bill: Bill | None, need: Need) -> Judged | None:
    """Fixed terms and minimum billing against the asked duration."""
    if bill is None:
        return None
    offer = bill.offer
    if need.hours is None:
        if offer.per == "hour" and not offer.minimum_hours:
            return None
        return Judged("term", CONFIRM, lambda: "sold by fixed or minimum terms and no duration is stated", offer.source)
    hours = need.hours
    if offer.kind in {"reserved", "capacity-block"}:
        return Judged("term", CONFIRM, lambda: f"{offer.kind}: has to be free on the asked dates", offer.source)
    return Judged("term", MET, lambda: _hours_billed(hours, bill), offer.source)


def _hours_billed(hours: Decimal, bill: Bill) -> str:
    words = f"{hours.normalize():f} h asked, {bill.billed_hours.normalize():f} h billed"
    return words if bill.billed_hours <= hours else f"{words}: whole periods"


def region(order: Order, need: Need) -> Judged | None:
    """Regions the caller allows."""
    allowed = need.request.offer.regions
    if allowed is None:
        return None
    have = order.package.region
    if have is not None and have.lower() in {r.lower() for r in allowed}:
        return Judged("region", MET, lambda: have, order.package.source)
    if have is None or have.lower() in EVERYWHERE:
        return Judged(
            "region", CONFIRM, lambda: "the provider does not say where the host stands", order.package.source
        )
    return Judged("region", EXCLUDED, lambda: f"{have} is not among {', '.join(allowed)}", order.package.source)


def provider(order: Order, need: Need) -> Judged | None:
    """Providers the caller allows."""
    allowed = need.request.offer.providers
    if allowed is None:
        return None
    have = order.package.provider
    status = MET if have.lower() in {p.lower() for p in allowed} else EXCLUDED
    return Judged("provider", status, lambda: have if status == MET else f"{have} is not among {', '.join(allowed)}")


def delivery(order: Order, need: Need) -> Judged | None:
    """Delivery until the asked day."""
    by = need.wanted.delivery_by
    if by is None:
        return None
    days, ordered = order.package.delivery_days, need.wanted.order_date
    if days is None:
        return Judged("delivery", CONFIRM, lambda: "the provider states no delivery time", order.package.source)
    if ordered is None:
        return Judged(
            "delivery", CONFIRM, lambda: f"{days} days after an order date that is not stated", order.package.source
        )
    left = (date.fromisoformat(by) - date.fromisoformat(ordered)).days
    status = MET if days <= left else EXCLUDED
    return Judged(
        "delivery", status, lambda: f"{days} days to deliver, {left} days left until {by}", order.package.source
    )


def data_age(bill: Bill | None, need: Need) -> Judged | None:
    """Date of the price; an undated price needs confirmation."""
    if bill is None:
        return None
    offer = bill.offer
    if offer.as_of is None:
        return Judged("data_age", CONFIRM, lambda: "the price is undated", offer.source)
    most = need.wanted.max_price_age_days
    limit = DEFAULT_MAX_PRICE_AGE_DAYS if most is None else most
    age = _days_between(offer.as_of, need.today) if need.today is not None else 0
    status = MET if age <= limit else CONFIRM
    return Judged(
        "data_age",
        status,
        lambda: f"price of {offer.as_of}, {age} days before {need.today}, {limit} allowed",
        offer.source,
    )


@lru_cache(maxsize=1024)
def _days_between(earlier: str, later: str) -> int:
    first, second = (date.fromisoformat(f"{text}-01" if len(text) == 7 else text) for text in (earlier, later))
    return max(0, (second - first).days)
