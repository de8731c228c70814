"""The points a step passes, by hand: a profile whose segments each change another power of ten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.training.course import BACKWARD, FORWARD, TAIL, Point, Way, _candidates, _course, counts_of
from tonnage.estimate.training.profile import Part, StepProfile
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.step import Batch, _highest, highest, moment
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


def rank(counts):
    return Rank(0, None, counts, True, True, 0, 0, 0, 0, 0)


def course(found=None, counts=(3,), *, first=True, last=True, hooks=0):
    return _course(found or profile(), Way(counts, first, last, hooks))


def seen(points):
    return [(p.name, p.tokens, p.fixed, p.passed, p.live, p.layers) for p in points]


def height(point, kept=None, measures=(1, 1, 1, 1, 1, 1), **more):
    """What the point comes to, by its parts."""
    return _highest("backward", (point,), measures, kept or held(), **more)


# ---- the way through a step ----


def test_forward_looks_at_the_last_layer_of_a_kind_and_at_the_loss():
    assert [
        ("forward of the last layer", 1 + 20 + 3, 0, 0, FORWARD, 0),
        ("loss, forward", 1 + 30 + 4000, 0, 0, TAIL, 0),
    ] == seen(course().forward)


LEFT = 1 + 30 + 1000 - 100 - 6
"""Per token when backward begins."""


def test_backward_looks_at_the_loss_both_ends_of_a_kind_and_the_embedding():
    after = LEFT - 500
    expected = [
        ("loss, backward", LEFT + 7, 0, 0, TAIL, 0),
        ("backward of the last layer", after + 5, 30, 0, BACKWARD, 0),
        ("backward of the first layer", after - 16 + 5, 30, 200, BACKWARD, 2),
        ("gradient of the embedding", after - 24, 9, 300, BACKWARD, 0),
    ]

    assert expected == seen(course().backward)


def test_a_single_layer_is_first_and_last():
    found = course(profile(counts=(1,)), (1,))

    assert ["loss, backward", "backward of the last layer", "gradient of the embedding"] == [
        p.name for p in found.backward
    ]


def test_a_kind_without_layers_here_is_passed_by():
    two = profile(forward=(part(10, 3), part(20, 6)), layer_leaving=(part(0), part(0)), counts=(3, 0),
                  backward=(profile().backward[0],) * 2)  # fmt: skip
    found = course(two, (3, 0))

    assert [24, 4031] == [p.tokens for p in found.forward]
    assert 4 == len(found.backward)


def test_a_middle_stage_has_neither_loss_nor_embedding():
    found = course(first=False, last=False)

    assert ["forward of the last layer"] == [p.name for p in found.forward]
    assert ["backward of the last layer", "backward of the first layer"] == [p.name for p in found.backward]
    assert 1 + 30 - 6 + 5 == found.backward[0].tokens


def test_micro_batches_under_way_are_kept_while_backward_runs():
    assert per_token(LEFT) == course().kept

    loss = course().backward[0]
    assert 3 * LEFT + 7 == height(loss, under_way=per_token(2 * LEFT)).activations
    assert LEFT + 7 == height(loss).activations


def test_every_measure_of_what_is_under_way_counts():
    point = course().backward[0]._replace(tokens=0, pairs=0, padded=0, scored=0, live=FORWARD)
    found = height(point, measures=(1, 10, 50, 128, 1, 4), under_way=(1, 2, 3, 4, 5, 6))

    assert (20 + 150 + 512, 24, 1, 5) == (found.activations, found.logits, found.scratch, found.gradients)


def test_gradients_that_go_as_they_are_finished_leave_their_part():
    found = height(course().backward[2], held(gradients_done=0.25))

    assert 30 + 50 == found.gradients
    assert 300_000 + 30 + 50 + found.activations == found.total


def test_gradients_of_an_earlier_micro_batch_stand_beside_those_of_the_layer():
    assert 11 + 30 == height(course().backward[1], held(gradients_before=11)).gradients


def test_units_that_stay_gathered_are_there_for_every_layer_behind():
    assert [300_000, 300_000 + 2 * 7] == [height(p, held(held_units=7)).live for p in course().backward[1:3]]


def test_scratch_is_what_no_batch_changes():
    plain = profile(tail=Part(ZERO, (constant(40),)), embedding=Part(constant(2), (ZERO,)))

    assert [2, 42] == [height(p).scratch for p in course(plain).forward]
    less = profile(tail=Part(ZERO, (constant(-40),)), embedding=Part(constant(2), (ZERO,)))
    assert 0 == height(course(less).forward[1]).scratch


def test_hooks_keep_every_input_and_its_gradient():
    found = course(hooks=50)
    after = LEFT - 500

    # two layers behind it: what they kept (8 each) is still there, and one gradient of an input more
    assert after - 16 + 50 * 1 + 16 + 5 == found.backward[2].tokens


def test_hooks_of_a_single_layer_change_nothing():
    one = profile(counts=(1,))

    assert seen(course(one, (1,)).backward) == seen(course(one, (1,), hooks=50).backward)


def test_every_measure_of_a_level_is_added_to_that_of_a_point():
    level, point = (1, 20, 300, 4000, 5, 60_000), (7, 80, 900, 1000, 11, 120_000)
    found = course(profile(embedding=Part(level, (ZERO,)), forward=(Part(ZERO, (point,)),)), (1,))
    first = found.forward[0]

    assert (100, 1200, 5000, 180_000) == (first.tokens, first.pairs, first.padded, first.scored)
    assert (1 + 7 + 11, 5) == (first.fixed, first.passed)
    assert (8, 11 + 5, 100_000) == (height(first).scratch, height(first).gradients, height(first).live)


def test_hooks_of_two_layers_keep_what_the_first_one_kept_and_no_gradient_yet():
    found = course(profile(counts=(2,)), (2,), hooks=50)

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


ALONE = course().forward[0]._replace(fixed=0, tokens=0, pairs=0, padded=0, scored=0)
NOTHING = held(live_forward=0)


def name_of(*points, measures=None, kept=NOTHING):
    return _highest("forward", points, measures or BATCH.measures, kept).name


def test_each_measure_counts_at_its_own_factor():
    forms = {"fixed": 1, "tokens": 10, "pairs": 50, "padded": 128, "scored": 4}
    for name, factor in forms.items():
        low = ALONE._replace(name="low")
        high = low._replace(name="high", **{name: 2})
        other = low._replace(name="other", fixed=2 * factor - 1)
        assert "high" == name_of(low, high, other)
        assert "other" == name_of(other._replace(fixed=2 * factor + 1), high)


def test_what_sharding_adds_counts_too():
    low, high = ALONE._replace(name="low", fixed=99), ALONE._replace(name="high")

    assert "high" == name_of(low, high._replace(live=TAIL), kept=held(live_forward=0, live_tail=100))
    assert "high" == name_of(low, high._replace(layers=2), kept=held(live_forward=0, held_units=50))
    assert "high" == name_of(low, high._replace(passed=400), kept=held(live_forward=0, gradients_done=0.25))


def test_of_equal_points_the_first_is_taken_whatever_its_sign():
    low = ALONE._replace(fixed=-5)

    assert "a" == name_of(low._replace(name="a"), low._replace(name="b"))
    assert "b" == name_of(low._replace(name="a", fixed=-6), low._replace(name="b"))


def test_a_stage_without_layers_is_refused():
    with pytest.raises(ValueError, match="without layers"):
        _highest("forward", (), BATCH.measures, NOTHING)


def test_the_moments_of_a_step_say_what_they_are_made_of():
    forward, backward = highest(course(), BATCH, held(buckets=77), more=3)

    assert moment("forward", "loss, forward", activations=40313, live=200_000) == forward
    assert ("backward", "backward of the first layer", 77) == (backward.phase, backward.name, backward.buckets)
    assert (230, 300_000, 3 + 10 * (LEFT - 500 - 16 + 5)) == (backward.gradients, backward.live, backward.activations)
    assert backward.activations + 230 + 300_000 + 77 == backward.total


def test_what_further_micro_batches_keep_is_added_to_both():
    alone = highest(course(), BATCH, held())
    two = highest(course(), BATCH, held(), further=1)

    assert [10 * LEFT] * 2 == [more.activations - one.activations for one, more in zip(alone, two, strict=True)]


# ---- points that no batch makes the highest ----

DRAWN = st.tuples(st.sampled_from([FORWARD, TAIL]), *[st.integers(0, 3)] * 7)
BATCHES = st.tuples(*[st.integers(1, 9)] * 4).map(lambda n: Batch(n[0] + n[1], n[2], n[3], n[0]))


def point(name, drawn):
    live, fixed, passed, tokens, pairs, padded, scored, layers = drawn
    return Point(str(name), fixed, passed, tokens, pairs, padded, scored, live, layers, 0, 0, 0)


@given(st.lists(DRAWN, min_size=1, max_size=8), BATCHES, st.sampled_from([0.0, 1.0]), st.integers(0, 3))
def test_the_highest_point_is_among_those_that_are_kept(drawn, batch, done, size):
    points = tuple(point(place, one) for place, one in enumerate(drawn))
    kept = held(gradients_done=done, live_forward=size, live_tail=3 - size, held_units=size)
    measures = batch.measures

    assert _highest("forward", points, measures, kept) == _highest("forward", _candidates(points, done), measures, kept)


def test_points_below_others_are_left_out():
    low, high, late = (point(name, (0, *[size] * 7)) for name, size in (("low", 1), ("high", 2), ("late", 2)))

    assert (high,) == _candidates((low, high, late), 1.0)


def test_points_below_the_line_between_others_are_left_out():
    ends = [point(name, (0, fixed, 0, tokens, 0, 0, 0, 0)) for name, fixed, tokens in (("a", 0, 10), ("b", 100, 0))]
    below, above = (point("c", (0, 50, 0, tokens, 0, 0, 0, 0)) for tokens in (4, 6))

    assert (ends[0], ends[1]) == _candidates((ends[0], below, ends[1]), 1.0)
    assert (ends[0], above, ends[1]) == _candidates((ends[0], above, ends[1]), 1.0)
