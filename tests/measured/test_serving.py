"""Public start-up logs beside our answers: no case may leave its band unrecorded, no term's error may grow."""

import tomllib
from functools import cache

import comparison
import pytest
from answering import compared

LIMITS = tomllib.loads((comparison.HERE / "limits.toml").read_text())
ENGINES = sorted(LIMITS["serving"])


@cache
def rows(engine):
    return [row for _, row in compared(comparison.cases(engine))]


@pytest.mark.parametrize("engine", ENGINES)
def test_cases_outside_their_band_are_the_recorded_ones(engine):
    outside = {f"{row.case} {row.term}" for row in rows(engine) if not row.inside}
    recorded = {f"{case} {term}" for case, terms in LIMITS["outside"].get(engine, {}).items() for term in terms}

    assert recorded == outside


@pytest.mark.parametrize(
    ("engine", "term"), [(engine, term) for engine in ENGINES for term in LIMITS["serving"][engine]]
)
def test_error_of_a_term_does_not_grow(engine, term):
    limits = LIMITS["serving"][engine][term]
    found = comparison.summary([row for row in rows(engine) if row.term == term])

    assert found.cases == limits["cases"]
    assert found.median <= limits["median"]
    assert found.p90 <= limits["p90"]
    assert found.coverage >= limits["coverage"]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_measured_term_has_a_limit(engine):
    assert set(LIMITS["serving"][engine]) == {row.term for row in rows(engine)}
