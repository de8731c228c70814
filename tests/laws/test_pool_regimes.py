"""Figures of the allocator's pool."""

import pytest

from tonnage.laws import pool_regimes
from tonnage.laws.pool_regimes import Ratio, measured

REGIMES = [r for r in vars(pool_regimes).values() if isinstance(r, Ratio)] + list(pool_regimes.RECOMPUTED.values())


@pytest.mark.parametrize("regime", REGIMES, ids=lambda r: r.why)
def test_every_regime_s_ratio_lies_within_its_spread(regime: Ratio) -> None:
    assert regime.low <= regime.expected <= regime.high


def test_torchtitan_s_sharded_runs_reserve_six_percent_more_than_they_allocate() -> None:
    assert measured(ratio=1.06)[:3] == (106, 101, 114)


def test_a_framework_without_measured_runs_takes_a_tenth() -> None:
    assert measured(ratio=0.0)[:3] == (110, 105, 118)
