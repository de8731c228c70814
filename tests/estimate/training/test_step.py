"""The points a step passes, by hand: a profile whose segments each change another power of ten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.training.profile import Part, StepProfile
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.step import Batch, Point, _candidates, _course, _highest, counts_of, highest, moment
from tonnage.estimate.training.tape import ZERO, constant, gradient, per_token, plus


def part(net, *points):
    return Part(per_token(net), tuple(per_token(p) for p in points) or (ZERO,))


def profile(**more):
    usual = {
        "embedding": part(1),
        "forward": (part(10, 3),),
        "tail": part(1000, 4000),
        "layer_leaving": (part(-2),),
        "leaving": part(-100),
        "tail_backward": Part(per_token(-500), (per_token(7),)),
        "backward": (Part(plus(per_token(-8), gradient(100)), (plus(per_token(5), gradient(30)),)),),
        "embedding_backward": Part(gradient(9), (gradient(9),)),
        "counts": (3,),
    }
    return StepProfile(**usual | more)


def held(**more):
    usual = dict.fromkeys(Held._fields, 0) | {
        "gradients_done": 1.0, "live_forward": 100_000, "live_tail": 200_000, "live_backward": 300_000,
    }  # fmt: skip
    return Held(**usual | more)


def rank(counts=(3,), *, first=True, last=True):
    return Rank(0, None, counts, first, last, 0, 0, 0, 0, 0)


def course(found=None, kept=None, at=None, in_flight=1):
    return _course(found or profile(), kept or held(), at or rank(), in_flight)


def seen(points):
    return [(p.name, p.tokens, p.fixed, p.live) for p in points]


# ---- the way through a step ----


def test_forward_looks_at_the_last_layer_of_a_kind_and_at_the_loss():
    assert [
        ("forward of the last layer", 1 + 20 + 3, 100_000, 100_000),
        ("loss, forward", 1 + 30 + 4000, 200_000, 200_000),
    ] == seen(course().forward)


LEFT = 1 + 30 + 1000 - 100 - 6
"""Per token when backward begins."""


def test_backward_looks_at_the_loss_both_ends_of_a_kind_and_the_embedding():
    after = LEFT - 500
    expected = [
        ("loss, backward", LEFT + 7, 200_000, 200_000),
        ("backward of the last layer", after + 5, 300_000 + 30, 300_000),
        ("backward of the first layer", after - 16 + 5, 300_000 + 30 + 200, 300_000),
        ("gradient of the embedding", after - 24, 300_000 + 300 + 9, 300_000),
    ]

    assert expected == seen(course().backward)


def test_a_single_layer_is_first_and_last():
    found = course(at=rank((1,)), found=profile(counts=(1,)))

    assert ["loss, backward", "backward of the last layer", "gradient of the embedding"] == [
        p.name for p in found.backward
    ]


def test_a_kind_without_layers_here_is_passed_by():
    two = profile(forward=(part(10, 3), part(20, 6)), layer_leaving=(part(0), part(0)), counts=(3, 0),
                  backward=(profile().backward[0],) * 2)  # fmt: skip
    found = course(found=two, at=rank((3, 0)))

    assert [24, 4031] == [p.tokens for p in found.forward]
    assert 4 == len(found.backward)


def test_a_middle_stage_has_neither_loss_nor_embedding():
    found = course(at=rank(first=False, last=False))

    assert ["forward of the last layer"] == [p.name for p in found.forward]
    assert ["backward of the last layer", "backward of the first layer"] == [p.name for p in found.backward]
    assert 1 + 30 - 6 + 5 == found.backward[0].tokens


def test_micro_batches_under_way_are_kept_while_backward_runs():
    found = course(in_flight=3)

    assert per_token(2 * LEFT) == found.kept
    assert 3 * LEFT + 7 == found.backward[0].tokens
    assert ZERO == course().kept


def test_gradients_that_go_as_they_are_finished_leave_their_part():
    found = course(kept=held(gradients_done=0.25))

    assert 300_000 + 30 + 50 == found.backward[2].fixed
    assert 30 + 50 == found.backward[2].gradients


def test_gradients_of_an_earlier_micro_batch_stand_beside_those_of_the_layer():
    assert 11 + 30 == course(kept=held(gradients_before=11)).backward[1].gradients


def test_scratch_is_what_no_batch_changes():
    plain = profile(tail=Part(ZERO, (constant(40),)), embedding=Part(constant(2), (ZERO,)))

    assert [2, 42] == [p.scratch for p in course(found=plain).forward]
    less = profile(tail=Part(ZERO, (constant(-40),)), embedding=Part(constant(2), (ZERO,)))
    assert 0 == course(found=less).forward[1].scratch


def test_hooks_keep_every_input_and_its_gradient():
    found = course(kept=held(held_inputs=50))
    after = LEFT - 500

    # two layers behind it: what they kept (8 each) is still there, and one gradient of an input more
    assert after - 16 + 50 * 1 + 16 + 5 == found.backward[2].tokens


def test_hooks_of_a_single_layer_change_nothing():
    one = profile(counts=(1,))

    assert seen(course(found=one, at=rank((1,))).backward) == seen(
        course(found=one, at=rank((1,)), kept=held(held_inputs=50)).backward
    )


def test_every_measure_of_a_level_is_added_to_that_of_a_point():
    level, point = (1, 20, 300, 4000, 5, 60_000), (7, 80, 900, 1000, 11, 120_000)
    found = course(found=profile(embedding=Part(level, (ZERO,)), forward=(Part(ZERO, (point,)),)), at=rank((1,)))
    first = found.forward[0]

    assert (100, 1200, 5000, 180_000) == (first.tokens, first.pairs, first.padded, first.scored)
    assert (1 + 7 + 11 + 5 + 100_000, 8, 11 + 5) == (first.fixed, first.scratch, first.gradients)


def test_hooks_of_two_layers_keep_what_the_first_one_kept_and_no_gradient_yet():
    found = course(found=profile(counts=(2,)), at=rank((2,)), kept=held(held_inputs=50))

    assert (LEFT - 8 - 500) + 5 == found.backward[2].tokens


# ---- layers by kind ----


@pytest.mark.parametrize(
    ("here", "of_profile", "expected"),
    [((4, 2), (3, 3), (4, 2)), ((3,), (1, 2), (1, 2)), ((2,), (1, 2), (0, 2)), ((5,), (0, 3), (0, 5))],
)
def test_the_first_layer_of_a_frozen_model_is_a_kind_of_its_own(here, of_profile, expected):
    assert expected == counts_of(profile(counts=of_profile), rank(here))


# ---- the highest of them ----

BATCH = Batch(tokens=10, length=5, padded=128, scored=4)


def test_measures_of_a_batch():
    assert (1, 10, 50, 128, 1, 4) == BATCH.measures


def test_each_measure_counts_at_its_own_factor():
    forms = {"fixed": 1, "tokens": 10, "pairs": 50, "padded": 128, "scored": 4}
    for name, factor in forms.items():
        low = course().forward[0]._replace(name="low", fixed=0, tokens=0, pairs=0, padded=0, scored=0, live=0)
        high = low._replace(name="high", **{name: 2})
        other = low._replace(name="other", fixed=2 * factor - 1)
        assert "high" == _highest("forward", (low, high, other), BATCH.measures).name
        assert "other" == _highest("forward", (other._replace(fixed=2 * factor + 1), high), BATCH.measures).name


def test_of_equal_points_the_first_is_taken_whatever_its_sign():
    low = course().forward[0]._replace(fixed=-5, tokens=0, live=0)

    assert "a" == _highest("forward", (low._replace(name="a"), low._replace(name="b")), BATCH.measures).name
    assert "b" == _highest("forward", (low._replace(name="a", fixed=-6), low._replace(name="b")), BATCH.measures).name


def test_a_stage_without_layers_is_refused():
    with pytest.raises(ValueError, match="without layers"):
        _highest("forward", (), BATCH.measures)


def test_the_moments_of_a_step_say_what_they_are_made_of():
    forward, backward = highest(course(), BATCH, buckets=77)

    assert moment("forward", "loss, forward", activations=40310, live=200_000) == forward
    assert ("backward", "backward of the first layer", 77) == (backward.phase, backward.name, backward.buckets)
    assert (230, 300_000, 10 * (LEFT - 500 - 16 + 5)) == (backward.gradients, backward.live, backward.activations)
    assert backward.activations + 230 + 300_000 + 77 == backward.total


def test_what_further_micro_batches_keep_is_added_to_forward():
    alone = highest(course(), BATCH)[0]
    two = highest(course(in_flight=2), BATCH)[0]

    assert 10 * LEFT == two.activations - alone.activations


# ---- points that no batch makes the highest ----


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 5), min_size=1, max_size=8),
    st.tuples(*[st.integers(1, 3)] * 4),
)
def test_the_highest_point_is_among_those_that_are_kept(factors, measures):
    points = tuple(Point(str(place), *five, 0, 0, 0) for place, five in enumerate(factors))
    tokens, pairs, padded, scored = measures
    batch = (1, tokens, pairs, padded, 1, scored)

    assert _highest("forward", points, batch) == _highest("forward", _candidates(points), batch)


def test_points_below_others_are_left_out():
    low, high, late = (Point(name, *([size] * 5), 0, 0, 0) for name, size in (("low", 1), ("high", 2), ("late", 2)))

    assert (high,) == _candidates((low, high, late))
