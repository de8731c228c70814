"""Start-up logs and reports collected after the laws were written: errors may not grow, the first score stays on record."""

from functools import cache

import answering
import comparison
import pytest
from answering import compared

LIMITS = comparison.heldout_serving_limits()
REPORTS = comparison.heldout_decisions()


@cache
def rows():
    return [row for _, row in compared(comparison.heldout_serving_cases())]


@cache
def verdicts():
    return answering.verdicts(REPORTS)


def test_every_printed_figure_is_compared():
    printed = sum(len(case["measured"]) for _, case in comparison.heldout_serving_cases())

    assert printed == len(rows())


def test_no_case_is_also_one_that_the_laws_were_written_with():
    known = {case["id"] for _, case in comparison.cases()}

    assert known.isdisjoint(case["id"] for _, case in comparison.heldout_serving_cases())


def test_every_figure_and_every_report_has_a_first_score():
    assert {(row.case, row.term) for row in rows()} == {
        (row.case, row.term) for row in comparison.heldout_serving_first_score()
    }
    assert {r["id"] for r in REPORTS} == set(comparison.heldout_first_verdicts())


def test_figures_outside_their_band_are_among_the_recorded_ones():
    outside = {f"{row.case} {row.term}" for row in rows() if not row.inside}

    assert outside <= {f"{case} {term}" for case, terms in LIMITS["outside"].items() for term in terms}


@pytest.mark.parametrize(
    ("engine", "term"), [(engine, term) for engine in sorted(LIMITS["serving"]) for term in LIMITS["serving"][engine]]
)
def test_error_of_a_term_does_not_grow(engine, term):
    limit = LIMITS["serving"][engine][term]
    found = comparison.summary([row for row in rows() if (row.engine, row.term) == (engine, term)])

    assert found.cases >= limit["cases"]
    assert found.median <= limit["median"]
    assert found.p90 <= limit["p90"]
    assert found.coverage >= limit["coverage"]


def test_every_term_has_a_limit():
    assert {(row.engine, row.term) for row in rows()} == {
        (engine, term) for engine, terms in LIMITS["serving"].items() for term in terms
    }


def test_reports_judged_wrong_are_among_the_recorded_ones():
    wrong = {r["id"] for r in REPORTS if verdicts()[r["id"]] not in r["accept"]}

    assert wrong <= set(LIMITS["misjudged"])


def test_reports_that_are_decided_rightly_stay_so():
    right = {"fits": "met", "oom": "excluded"}

    assert LIMITS["decided"] <= sum(verdicts()[r["id"]] == right[r["outcome"]] for r in REPORTS)
