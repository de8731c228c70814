"""Our answers to measured cases, for the tests of this folder; cases are asked once."""

from functools import cache

import comparison
import msgspec

from tonnage import evidence
from tonnage.catalog import load_catalog, resolve
from tonnage.estimate import estimate
from tonnage.spec.card import SizingCard


@cache
def catalog():
    return load_catalog()


def answer(case):
    """As JSON has it."""
    return msgspec.to_builtins(estimate(resolve(catalog(), msgspec.convert(case["request"], SizingCard))))


def compared(cases):
    """Every case with each of its printed figures beside ours."""
    return [(case, row) for engine, case in cases for row in comparison.compare(engine, case, answer(case))]


def verdicts(reports):
    return {r["id"]: evidence.estimate(catalog(), msgspec.convert(r["request"], SizingCard)).verdict for r in reports}
