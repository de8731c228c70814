"""From allocated to reserved, and gradients beside buckets."""

from tonnage.laws import gradients, reserved


def test_only_what_comes_and_goes_is_multiplied():
    assert 230 + reserved.CUBLAS_SEGMENT == reserved.transient_share(transient=100, ratio_percent=330)
    assert reserved.CUBLAS_SEGMENT == reserved.transient_share(transient=0, ratio_percent=330)


def test_sharded_runs_take_a_part_of_everything():
    assert 6 == reserved.whole_share(allocated=100, ratio_percent=106)


def test_pressure_bounds_the_pool_but_not_below_its_tensors():
    assert 80 == reserved.capped(reserved=100, allocated=50, usable=80)
    assert 90 == reserved.capped(reserved=100, allocated=90, usable=80)


def test_ddp_keeps_a_second_copy_unless_gradients_are_views():
    assert 400 == gradients.accumulated(parameters=100, element_bytes=4)
    assert 400 == gradients.ddp_buckets(gradient_bytes=400)
    assert 0 == gradients.ddp_buckets(gradient_bytes=400, view=True)


def test_part_of_what_comes_and_goes_stays_stuck_on_a_full_card():
    assert 50 == reserved.unavoidable(transient=1000, percent=5)


def test_gathered_parameters_leave_no_more_behind_than_may_be_gathered():
    small = reserved.gathered_pool(weights=10**9, activations=0, logits=0, ratio_percent=100)
    large = reserved.gathered_pool(weights=140 * 10**9, activations=0, logits=0, ratio_percent=100)

    assert (small, large) == (10**9, 4 * 10**9)


def test_checkpoints_of_one_size_serve_each_other_and_logits_less():
    assert reserved.gathered_pool(weights=0, activations=1000, logits=1000, ratio_percent=190) == 30 + 100


def test_gradients_at_a_point_are_the_kept_the_finished_and_those_at_hand():
    assert 111 == gradients.at_point(before=100, finished=10, here=1)
    assert 0 == gradients.at_point(before=0, finished=0, here=-5)


def test_segments_pinned_by_live_blocks_hold_a_third_of_the_tensors_again():
    assert 35 == reserved.pinned(allocated=100)
    assert 0 == reserved.pinned(allocated=0)
