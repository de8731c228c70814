"""The engine's rules, on graphs small enough to count by hand."""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.tape import (
    ZERO,
    Parameter,
    Tape,
    constant,
    gradient,
    per_token,
    plus,
    scaled,
    times,
    undominated,
    value,
)

H = 10


def parameter(elements=H * H, trains=True, width=2):
    return Parameter(elements, width, trains)


def levels(tape):
    return {s.name: s.net for s in tape.segments}


def run(body, *, autocast=0, accumulates=False):
    """Forward and backward of a function of one input that requires grad; what is there between them, output included."""
    tape = Tape(autocast=autocast, accumulates=accumulates)
    tape.forward_segment("inputs")
    x = tape.leaf(tape.new(per_token(H), 2))
    tape.forward_segment("body")
    y = body(tape, x)
    del x
    kept = plus(tape.segments[0].net, tape.segments[1].net)
    tape.segment("loss")
    tape.backward(y, constant(0))
    del y
    return tape, kept


def test_forms_add_scale_and_evaluate():
    form = plus(per_token(3), gradient(5))

    assert value(times(form, 2), (1, 10, 0, 0, 1, 0)) == 70
    assert scaled(per_token(3), 1.5) == per_token(4)


def test_points_below_another_are_dropped():
    assert undominated([ZERO, per_token(1), per_token(2), constant(3)]) == (constant(3), per_token(2))


def test_a_linear_that_trains_keeps_its_input_and_leaves_a_gradient():
    weight = parameter()

    tape, kept = run(lambda tape, x: op.linear(tape, x, weight, per_token(H)))

    assert kept == per_token(4 * H)
    assert sum(s.net[4] for s in tape.segments) == 2 * H * H


def test_a_frozen_linear_keeps_nothing():
    def two(tape, x):
        return op.linear(
            tape, op.linear(tape, x, parameter(trains=False), per_token(H)), parameter(trains=False), per_token(H)
        )

    tape, kept = run(two)

    assert kept == per_token(2 * H)
    assert sum(s.net[4] for s in tape.segments) == 0


def test_an_activation_keeps_its_input_and_tanh_its_result():
    def body(kind):
        return lambda tape, x: op.add(tape, kind(tape, op.scale(tape, x)), x)

    assert run(body(op.activation))[1] == per_token(4 * H)
    assert run(body(op.from_result))[1] == per_token(4 * H)
    assert run(body(op.negate))[1] == per_token(2 * H)


def test_a_product_keeps_both_sides_and_dropout_a_byte():
    assert run(lambda tape, x: op.dropout(tape, x, active=True))[1] == per_token(3 * H)
    both = run(lambda tape, x: op.multiply(tape, op.scale(tape, x), op.scale(tape, x)))[1]

    assert both == per_token(6 * H)


def test_accumulated_gradients_are_added_in_place():
    weight = parameter()

    tape, _ = run(lambda tape, x: op.linear(tape, x, weight, per_token(H)), accumulates=True)

    assert sum(s.net[4] for s in tape.segments) == 0
    assert max(p[4] for s in tape.segments for p in s.points) == 2 * H * H


def test_a_checkpointed_call_keeps_only_its_input():
    weight = parameter()

    def body(tape, x):
        h = op.activation(tape, op.linear(tape, x, weight, per_token(H)))
        return op.linear(tape, h, weight, per_token(H))

    for reentrant in (False, True):
        tape, kept = run(lambda tape, x, again=reentrant: tape.checkpoint(lambda y: body(tape, y), x, reentrant=again))

        assert kept == per_token(4 * H)
        assert sum(s.net[1] for s in tape.segments) == 0


def test_autocast_keeps_one_copy_of_a_weight_that_trains():
    weight = parameter(width=4)

    def twice(tape, x):
        h = op.linear(tape, x, weight, per_token(H))
        return op.linear(tape, h, weight, per_token(H))

    assert run(twice, autocast=2)[1][0] == 2 * H * H


def test_a_four_bit_matrix_is_unpacked_for_the_moment():
    tape, kept = run(
        lambda tape, x: op.dequantized(tape, x, per_token(H), elements=H * H, scales=0, keeps_input=False, copies=1)
    )

    assert kept[0] == 0
    assert max(p[0] for s in tape.segments for p in s.points) == 2 * H * H
