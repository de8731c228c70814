"""Numbers that remember how they came about: they compute as numbers do, and can be written down."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.explain.sums import Names, atoms, is_tangled, terms
from tonnage.explain.traced import Named, Traced, bare


def named(name, value):
    return Traced(value, Named(name))


A, B = named("a", 7), named("b", 3)


@pytest.mark.parametrize(
    ("made", "value", "text"),
    [
        (A + B, 10, "7 + 3"),
        (A - B, 4, "7 − 3"),
        (5 - A, -2, "5 − 7"),
        (2 * A + B * 4 - A, 19, "4 × 3 + 7"),
        (A * B, 21, "7 × 3"),
        (A // 2, 3, "⌊7 / 2⌋"),
        (A / 2, 3.5, "7 / 2"),
        (0.5 * A, 3.5, "0.5 × 7"),
        (round(A * 0.5), 4, "round(7 × 0.5)"),
        (math.ceil(A / 2), 4, "⌈7 / 2⌉"),
        (A**2, 49, "7^2"),
        (-A, -7, "0 − 7"),
        (sum([A, B, A]), 17, "3 + 2 × 7"),
    ],
    ids=str,
)
def test_a_sum_is_written_with_its_numbers(made, value, text):
    assert (value, text) == (made.value, Names(None)(made).text)


def test_terms_that_cancel_are_gone():
    assert [(3, "b")] == [(term.times, term.of.origin.name) for term in terms(A + 3 * B - A)]


def test_adding_nothing_and_taking_once_leave_a_number_as_it_is():
    assert A is A + 0
    assert A is 0 + A
    assert A is A * 1
    assert A is 1 * A
    assert A is A // 1


def test_names_stand_where_numbers_do():
    made = (A + B) * (A - 1)
    known = {("a", 7): "rows", ("b", 3): "columns"}

    assert "(rows + columns) × (rows − 1)" == Names(known)(made).text
    assert ["a", "b"] == [atom.origin.name for atom in atoms(made)]


@given(st.integers(-9, 9), st.integers(1, 9), st.floats(0.1, 9))
def test_it_computes_compares_and_prints_as_the_number_does(first, second, share):
    one, other = named("one", first), named("other", second)

    assert first * share == bare(one * share) == bare(share * one)
    assert (first + second, first // second, first % second) == tuple(
        map(bare, (one + other, one // other, one % other))
    )
    assert (first < second, first <= second, first == second) == (one < other, one <= other, one == other)
    assert (f"{first:,}", str(first), hash(first), bool(first)) == (f"{one:,}", str(one), hash(one), bool(one))
    assert list(range(second)) == list(range(other))


def test_a_sum_is_never_tangled_and_operations_within_operations_soon_are():
    long, deep = A, A
    for _ in range(2000):
        long = long + B
    for _ in range(6):
        deep = (deep + 1) // 2

    assert not is_tangled(long)
    assert is_tangled(deep)
    assert 2000 == terms(long)[1].times
