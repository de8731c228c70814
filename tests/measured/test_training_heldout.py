"""Training runs collected after the laws were written: their errors may not grow, and the first score stays on record."""

from functools import cache

import answering
import comparison
import pytest
from answering import compared

LIMITS = comparison.heldout_training_limits()
REPORTS = comparison.heldout_training_decisions()


@cache
def rows():
    return compared(comparison.heldout_training_cases())


@cache
def verdicts():
    return answering.verdicts(REPORTS)


def test_every_run_is_compared():
    assert len(list(comparison.heldout_training_cases())) == len(rows())


def test_no_run_is_also_one_that_the_laws_were_written_with():
    known = {case["id"] for _, case in comparison.training_cases()}

    assert known.isdisjoint(case["id"] for case, _ in rows())


def test_every_run_has_a_first_score():
    scored = {case["id"] for case, _ in comparison.heldout_training_first_score()}

    assert scored == {case["id"] for case, _ in rows()}


def test_every_report_has_a_first_verdict():
    assert set(comparison.heldout_training_first_verdicts()) == {r["id"] for r in REPORTS}


def test_reports_judged_wrong_are_among_the_recorded_ones():
    wrong = {r["id"] for r in REPORTS if verdicts()[r["id"]] not in r["accept"]}

    assert wrong <= set(LIMITS["misjudged"])


def test_reports_that_are_decided_rightly_stay_so():
    right = {"fits": "met", "oom": "excluded"}

    assert LIMITS["decided"] <= sum(verdicts()[r["id"]] == right[r["outcome"]] for r in REPORTS)


def test_runs_outside_their_band_are_among_the_recorded_ones():
    outside = {row.case for _, row in rows() if not row.inside}

    assert outside <= set(LIMITS["outside"])


@pytest.mark.parametrize("name", sorted(LIMITS["groups"]))
def test_error_of_a_group_does_not_grow(name):
    limit = LIMITS["groups"][name]
    found = comparison.summary(comparison.training_groups(rows())[name])

    assert found.cases >= limit["cases"]
    assert found.median <= limit["median"]
    assert found.p90 <= limit["p90"]
    assert found.coverage >= limit["coverage"]
