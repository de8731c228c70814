"""Answers stay as they are until somebody says otherwise: `make golden`, and a line in CHANGELOG.md."""

import pytest
from tests.golden import drawn, orders
from tests.golden.predictions import cases, figures, kept, moved

from tonnage.library import estimate

CASES = cases()
KEPT = kept()
ORDERS = orders.kept()
DRAWN = drawn.kept()


@pytest.mark.parametrize("name", CASES)
def test_no_figure_moves_without_being_written_down(name: str) -> None:
    changes = moved(KEPT.get(name, {}), figures(estimate(CASES[name])))

    assert not changes, f"{len(changes)} figures of {name!r} moved; `make golden` writes them:\n" + "\n".join(changes)


@pytest.mark.parametrize("name", orders.REQUESTS)
def test_no_order_changes_without_being_written_down(name: str) -> None:
    now, before = orders.answer(orders.REQUESTS[name]), ORDERS.get(name)

    assert before == now, f"the answer to {name!r} is another one; `make golden` writes it"


@pytest.mark.parametrize("kind", drawn.models())
def test_no_drawn_card_moves_without_being_written_down(kind: str) -> None:
    now = {name: drawn.kept_of(card) for name, card in drawn.cards(kind, drawn.models()[kind])}
    changes = [f"{name}: {DRAWN.get(name)} is now {found}" for name, found in now.items() if found != DRAWN.get(name)]

    assert not changes, "`make golden` writes them:\n" + "\n".join(changes)


def test_the_kept_orders_are_those_of_the_requests() -> None:
    assert set(orders.REQUESTS) == set(ORDERS)


def test_the_kept_answers_are_those_of_the_cases() -> None:
    assert list(CASES) == list(KEPT)


def test_a_change_is_named_by_gpu_phase_component_old_and_new() -> None:
    before = {"gpu 0 prefill activations": [90, 100, 110], "verdict": "met", "required": [1, 2, 3]}
    after = {"gpu 0 prefill activations": [99, 110, 121], "verdict": "excluded", "required": [0, 2, 3], "claimed": 5}

    assert [
        "gpu 0 prefill activations: 100 is now 110 (+10.00%)",
        "verdict: met is now excluded",
        "required: band 1 .. 3 is now 0 .. 3, expected 2 as before",
        "claimed: None is now 5",
    ] == moved(before, after)
