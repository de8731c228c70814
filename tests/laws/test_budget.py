from tonnage.laws import budget
from tonnage.units import GiB


def test_a_fraction_is_of_the_total():
    assert 9 * GiB == budget.fraction_of_total(fraction=0.9, total=10 * GiB)


def test_glm_5_2_leaves_what_its_log_prints():
    # 0.92 x 184.31 - 106.69 - 6.31 - 0.95 - 4.99 = 50.62 GiB
    pool = budget.pool_of_budget(budget=16_956, weights=10_669, activation=631, non_torch=95, graphs=499)

    assert 5_062 == pool


def test_a_pool_may_be_less_than_nothing():
    assert -1 == budget.pool_of_budget(budget=10, weights=9, activation=1, non_torch=1)


def test_a_static_fraction_covers_weights_and_cache():
    # 23.08 x 0.8 - 7.08 = 11.38
    assert 1_139 == budget.pool_of_static_fraction(fraction=0.8, free_before=2_308, free_after=2_308 - 708)


def test_smallest_fraction_is_the_inverse_in_hundredths():
    assert 0.91 == budget.smallest_fraction(needed=9_001, total=10_000)
    assert 0.9 == budget.smallest_fraction(needed=9_000, total=10_000)
    assert budget.smallest_fraction(needed=11, total=10) > 1


def test_an_engine_asleep_keeps_no_more_than_it_took():
    assert budget.asleep(claim=1000) == 1000
    assert budget.asleep(claim=80 * 2**30) == 3 * 2**29
