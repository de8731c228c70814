"""Any card is answered or refused with a reason; an answer holds together."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from tests.golden.predictions import cases
from tests.properties.mutations import Card, Mutator

from tonnage import evidence
from tonnage.api.law_book import law_book_with_topics
from tonnage.errors import SizingError
from tonnage.library import builtin
from tonnage.spec.card import Placement, SizingCard
from tonnage.spec.report import Amount, Estimate

SEEDS = range(8)
CARDS = 60
LAWS = frozenset(law.id for law in law_book_with_topics())


@cache
def answered(seed: int) -> tuple[tuple[Card, Estimate], ...]:
    """Cards of a seed with their answers; those refused are left out, anything else raised fails the test."""
    mutator, found = Mutator(builtin(), list(cases().values()), seed), []
    for _ in range(CARDS):
        card = mutator.card()
        try:
            found.append((card, evidence.estimate(builtin(), msgspec.convert(card, SizingCard))))
        except (SizingError, msgspec.ValidationError):
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} from {msgspec.json.encode(card).decode()}") from error
    return tuple(found)


def amounts(value: Any) -> Iterator[Amount]:
    """Every band of an answer."""
    if isinstance(value, Amount):
        yield value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            if field != "headroom" and field != "remedies":
                yield from amounts(getattr(value, field))
    elif isinstance(value, tuple):
        for entry in value:
            yield from amounts(entry)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_card_is_answered_or_refused_with_a_reason(seed: int) -> None:
    assert answered(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_bands_do_not_cross_and_nothing_is_negative(seed: int) -> None:
    for _, answer in answered(seed):
        assert all(0 <= amount.low <= amount.expected <= amount.high for amount in amounts(answer))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verdict_follows_from_what_is_required_and_the_reasons(seed: int) -> None:
    order = ("met", "needs_confirmation", "excluded")
    for card, answer in answered(seed):
        assert (answer.verdict is None) == (answer.capacity is None), card
        if answer.capacity is not None:
            usable = answer.capacity.usable_bytes
            assert order.index(answer.verdict) == max(order.index(r.status) for r in answer.reasons), card
            assert answer.verdict != "met" or answer.required.high <= usable, card
            assert answer.verdict == "excluded" or answer.required.low <= usable, card
            assert answer.headroom == Amount(
                usable - answer.required.high, usable - answer.required.expected, usable - answer.required.low
            )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_item_names_a_law_of_the_catalogue_and_a_source_and_what_is_exact_has_no_band(seed: int) -> None:
    for card, answer in answered(seed):
        for item in (i for load in answer.gpus for i in load.items):
            assert item.source, (item, card)
            assert item.basis != "exact" or item.bytes.low == item.bytes.high, (item, card)
            assert item.law in LAWS or item.basis == "user", (item, card)


@pytest.mark.parametrize("seed", SEEDS)
def test_items_of_a_phase_add_up_by_counter_and_the_peak_is_the_largest(seed: int) -> None:
    seen_by = {
        "allocated": ("allocated", "reserved", "device"),
        "reserved": ("reserved", "device"),
        "device": ("device",),
    }
    for card, answer in answered(seed):
        for load in answer.gpus:
            for phase in load.phases:
                for counter in seen_by:
                    expected = sum(i.bytes.expected for i in phase.items if counter in seen_by[i.counter])
                    assert expected == getattr(phase.total, counter).expected, (phase.phase, counter, card)
            largest = max(phase.total.device.expected for phase in load.phases)
            assert largest == load.peak.device.expected, card


@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_are_listed_once_and_none_lies_outside_the_placement(seed: int) -> None:
    for card, answer in answered(seed):
        ranks = [rank for load in answer.gpus for rank in load.ranks]
        assert len(set(ranks)) == len(ranks), card
        split = len(card.get("serving", {}).get("tensor_split", ())) or 1
        assert len(ranks) <= msgspec.convert(card.get("placement", {}), Placement).gpus * split, card


@pytest.mark.parametrize("seed", SEEDS)
def test_caches_hold_finite_numbers_of_tokens_and_requests(seed: int) -> None:
    for card, answer in answered(seed):
        cache_report = answer.kv_cache
        if cache_report is not None:
            assert cache_report.bytes_per_token >= 0, card
            assert cache_report.max_concurrency is None or 0 <= cache_report.max_concurrency < math.inf, card


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_resident_is_listed(seed: int) -> None:
    for card, answer in answered(seed):
        components = {item.component for load in answer.gpus for item in load.items}
        on_host = card.get("serving", {}).get("n_gpu_layers") == 0 or card.get("training", {}).get("offload")
        assert "weights" in components or on_host, card
        cached = answer.kv_cache is not None and answer.kv_cache.bytes_per_token
        assert not cached or components & {"kv_cache", "recurrent_state"} or on_host, card
