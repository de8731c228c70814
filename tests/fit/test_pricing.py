"""Orders are priced exactly, in whole periods and without converting anything."""

from decimal import Decimal

import pytest

from tonnage.fit import pricing
from tonnage.spec.facts import Offer, Package


def offer(price, **more):
    return Offer(**({"kind": "on-demand", "price": Decimal(price), "source": "test"} | more))


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("3 days", 72),
        (12.5, "12.5"),
        ("1 day", 24),
        ("2 weeks", 336),
        ("6h", 6),
        ("1 month", 730),
        ("1.5 d", 36),
        ("1 hour", 1),
    ],
)
def test_durations_are_hours(text, hours):
    assert Decimal(hours) == pricing.duration_hours(text)


def test_three_days_by_the_hour():
    assert Decimal("47.52") == pricing.bill(offer("0.66"), hosts=1, hours=Decimal(72)).total


def test_the_published_three_day_packages_cost_what_they_say():
    package = offer("47.14", kind="package", per="term", term_hours=72)

    assert Decimal("47.14") == pricing.bill(package, hosts=1, hours=Decimal(72)).total
    assert Decimal("94.28") == pricing.bill(package, hosts=1, hours=Decimal(73)).total
    assert Decimal("94.28") == pricing.bill(package, hosts=2, hours=Decimal(1)).total


def test_a_month_is_as_long_as_the_provider_says():
    monthly = offer("11773.44", per="month", hours_per_month=672)

    assert Decimal("11773.44") == pricing.bill(monthly, hosts=1, hours=Decimal(672)).total
    assert Decimal("23546.88") == pricing.bill(monthly, hosts=1, hours=Decimal(673)).total


def test_a_minimum_term_is_paid_in_full():
    bill = pricing.bill(offer("2", minimum_hours=24), hosts=3, hours=Decimal(5))

    assert (Decimal(144), Decimal(24)) == (bill.total, bill.billed_hours)


def test_without_a_duration_offers_compare_by_the_hour():
    package = offer("47.14", kind="package", per="term", term_hours=72)

    assert pricing.bill(package, hosts=1, hours=None).total < pricing.bill(offer("0.66"), hosts=1, hours=None).total


def test_interruptible_prices_stand_apart_unless_allowed():
    both = (offer("2"), offer("1", kind="spot"))
    common = {"hosts": 1, "hours": Decimal(1), "currency": None}

    assert Decimal(2) == pricing.cheapest(both, apart={"spot"}, **common).total
    assert Decimal(1) == pricing.cheapest(both, apart=(), **common).total
    shown = pricing.candidate_price(
        pricing.cheapest(both, apart={"spot"}, **common),
        Package(id="a", provider="p", gpu="g", gpus_per_host=1, offers=both, source="test"),
        hosts=1,
        hours=Decimal(1),
    )
    assert (Decimal("2.00"), Decimal("1.00")) == (shown.for_duration, shown.spot)


def test_another_currency_is_used_only_where_the_asked_one_is_missing():
    common = {"hosts": 1, "hours": Decimal(1), "apart": ()}
    both = (offer("1", currency="EUR"), offer("9", currency="USD"))

    assert "USD" == pricing.cheapest(both, currency="USD", **common).offer.currency
    assert "EUR" == pricing.cheapest(both[:1], currency="USD", **common).offer.currency
    assert pricing.cheapest((), currency="USD", **common) is None


def test_money_is_an_amount_with_a_currency():
    assert (Decimal(500), "USD") == pricing.money("500 USD")
    with pytest.raises(ValueError, match="500"):
        pricing.money("500")
