"""What each operator allocates, saves and returns a gradient for, worked out by hand at widths that cannot be confused."""

import pytest

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.tape import (
    ZERO,
    Parameter,
    Tape,
    constant,
    gradient,
    per_pair,
    per_token,
    plus,
)

W = 7
"""Elements per token of the input, in two bytes."""
TWO, FOUR = per_token(2 * W), per_token(4 * W)


def tensor(tape, width=W, element_bytes=2, *, flows=True):
    made = tape.new(per_token(width), element_bytes)
    return tape.leaf(made) if flows else made


def weight(elements=11, width=2, *, trains=True):
    return Parameter(elements, width, trains)


def saved(result):
    """Sizes that the operator keeps for backward; None for a parameter."""
    return [None if s is None else s.form for s in result.node.saved]


def flows(result):
    """Gradients it makes, as computed and as summed."""
    return [(out.computed, out.summed) for out in result.node.outputs]


def size(result):
    return result.form


PASSED = (None, None)


def made(form):
    return (form, None)


# ---- copies, views, sums ----


def test_a_cast_to_the_same_width_is_the_tensor_itself():
    x = tensor(Tape())

    assert op.cast(Tape(), x, 2) is x


def test_a_cast_is_a_copy_whose_gradient_has_the_old_width():
    tape = Tape()
    y = op.cast(tape, tensor(tape), 4)

    assert (size(y), saved(y), flows(y)) == (FOUR, [], [made(TWO)])


def test_a_view_shares_the_storage_and_the_node():
    tape = Tape()
    x = tensor(tape)
    y = op.view(x, per_token(3))

    assert (y.storage, y.node, y.elements, y.element_bytes) == (x.storage, x.node, per_token(3), 2)


def test_the_gradient_of_a_part_has_the_size_of_the_whole():
    tape = Tape()
    x = tensor(tape)
    y = op.part(tape, x, per_token(3))

    assert (y.storage, size(y), flows(y), y.node.collects) == (x.storage, per_token(6), [made(TWO)], False)


def test_pieces_of_a_split_share_a_node_that_collects_their_gradients():
    tape = Tape()
    x = tensor(tape)
    first, second = op.split(tape, x, per_token(3), per_token(4))

    assert first.node is second.node
    assert first.node.collects
    assert (size(first), size(second), flows(first)) == (per_token(6), per_token(8), [made(TWO)])


def test_a_split_of_what_needs_no_gradient_has_no_node():
    tape = Tape()

    assert [p.node for p in op.split(tape, tensor(tape, flows=False), per_token(3), per_token(4))] == [None, None]


@pytest.mark.parametrize(
    ("kind", "expected"), [(op.copy, PASSED), (op.shift, PASSED), (op.negate, made(TWO)), (op.scale, made(TWO))]
)
def test_elementwise_without_anything_saved(kind, expected):
    tape = Tape()
    y = kind(tape, tensor(tape))

    assert (size(y), saved(y), flows(y)) == (TWO, [], [expected])


def test_repeated_elements_are_summed_to_the_original():
    tape = Tape()
    y = op.repeat(tape, tensor(tape), 3)

    assert (size(y), saved(y), flows(y)) == (per_token(42), [], [made(TWO)])


def test_pieces_joined_are_as_wide_as_all_of_them_in_the_widest_type():
    tape = Tape()
    y = op.concatenate(tape, tensor(tape), tensor(tape, 5, 4), tensor(tape, 1))

    assert (size(y), flows(y)) == (per_token(4 * 13), [PASSED] * 3)


def test_a_sum_is_made_in_the_wider_type_and_only_the_narrow_side_gets_a_gradient_of_its_own():
    tape = Tape()
    y = op.add(tape, tensor(tape), tensor(tape, W, 4))

    assert (size(y), saved(y), flows(y)) == (FOUR, [], [made(TWO), PASSED])


def test_a_sum_with_fewer_elements_has_the_size_of_the_larger():
    tape = Tape()
    y = op.add(tape, tensor(tape, 3), tensor(tape, W))

    assert (size(y), flows(y)) == (TWO, [made(per_token(6)), PASSED])


def test_a_number_per_row_taken_off_has_a_gradient_that_is_summed():
    tape = Tape()
    y = op.minus(tape, tensor(tape), tensor(tape, 1))

    assert (size(y), flows(y)) == (TWO, [PASSED, (TWO, per_token(2))])


# ---- products ----


@pytest.mark.parametrize(
    ("width", "expected"), [(2, (TWO, (TWO, None))), (4, (FOUR, (FOUR, TWO))), (1, (TWO, (TWO, None)))]
)
def test_a_rotation_is_made_in_the_wider_of_both_types(width, expected):
    tape = Tape()
    y = op.turn(tape, tensor(tape), width)

    assert (size(y), flows(y), saved(y)) == (expected[0], [expected[1]], [None])


def test_a_product_saves_each_side_for_the_other():
    tape = Tape()
    y = op.multiply(tape, tensor(tape), tensor(tape, 1, 4))

    assert size(y) == FOUR
    assert saved(y) == [per_token(4), TWO]
    assert flows(y) == [(FOUR, TWO), (FOUR, per_token(4))]


def test_equal_sides_of_a_product_have_gradients_that_need_no_sum():
    tape = Tape()
    y = op.multiply(tape, tensor(tape), tensor(tape))

    assert flows(y) == [made(TWO), made(TWO)]


@pytest.mark.parametrize(("first", "kept"), [(True, per_token(10)), (False, per_token(6))])
def test_a_side_without_gradient_is_all_that_a_product_saves(first, kept):
    tape = Tape()
    y = op.multiply(tape, tensor(tape, 3, flows=first), tensor(tape, 5, flows=not first))

    assert saved(y) == [kept]


def test_a_norms_weight_gets_a_gradient_and_saves_the_input():
    tape = Tape()
    y = op.weighted(tape, tensor(tape), weight(W, 2))

    assert (size(y), saved(y)) == (TWO, [TWO, None])
    assert flows(y) == [(TWO, gradient(14)), made(TWO)]


def test_a_wider_weight_widens_the_product():
    tape = Tape()
    y = op.weighted(tape, tensor(tape), weight(W, 4))

    assert (size(y), flows(y)) == (FOUR, [(FOUR, gradient(28)), (FOUR, TWO)])


def test_a_derived_weight_has_the_width_of_the_input():
    tape = Tape()
    y = op.weighted(tape, tensor(tape), weight(W, 4), derived=True)

    assert (size(y), flows(y)) == (TWO, [(TWO, gradient(28)), made(TWO)])


def test_a_frozen_weight_saves_nothing_of_the_input():
    tape = Tape()

    assert saved(op.weighted(tape, tensor(tape), weight(W, trains=False))) == [None]


def test_a_weight_over_what_needs_no_gradient_saves_the_input_only():
    tape = Tape()

    assert saved(op.weighted(tape, tensor(tape, flows=False), weight(W))) == [TWO]


# ---- activations ----


def test_an_activation_saves_its_input():
    tape = Tape()
    x = tensor(tape)
    y = op.activation(tape, x)

    assert (size(y), saved(y), flows(y)) == (TWO, [TWO], [made(TWO)])
    assert y.node.saved == [x.storage]


def test_a_result_is_saved_in_place_of_the_input():
    tape = Tape()
    y = op.from_result(tape, tensor(tape))

    assert y.node.saved == [y.storage]
    assert flows(y) == [made(TWO)]


def test_the_fused_gate_saves_both_halves_and_writes_one_gradient_over_the_other():
    tape = Tape()
    y = op.fused_gate(tape, tensor(tape), tensor(tape, W, 4))

    assert (size(y), saved(y), flows(y)) == (TWO, [TWO, FOUR], [PASSED, made(FOUR)])


@pytest.mark.parametrize(("autocast", "width"), [(0, 2), (2, 4)])
def test_a_power_is_made_in_fp32_under_autocast_with_two_temporaries_in_backward(autocast, width):
    tape = Tape(autocast=autocast)
    y = op.power(tape, tensor(tape))
    form = per_token(width * W)

    assert (size(y), saved(y), flows(y), y.node.workspace) == (form, [form], [made(form)], per_token(2 * width * W))


def test_a_power_of_what_needs_no_gradient_keeps_nothing():
    tape = Tape()

    assert op.power(tape, tensor(tape, flows=False)).node is None


@pytest.mark.parametrize("rows", [1, 3])
def test_a_mean_is_one_element_per_row(rows):
    tape = Tape()
    y = op.mean(tape, tensor(tape), rows)

    assert (size(y), flows(y)) == (per_token(2 * rows), [made(TWO)])


def test_a_mean_is_over_one_row_unless_said_otherwise():
    tape = Tape()

    assert size(op.mean(tape, tensor(tape))) == per_token(2)


def test_dropout_keeps_a_byte_per_element_and_is_nothing_when_off():
    tape = Tape()
    x = tensor(tape)
    y = op.dropout(tape, x, active=True)

    assert (size(y), saved(y), flows(y)) == (TWO, [per_token(W)], [made(TWO)])
    assert op.dropout(tape, x, active=False) is x


@pytest.mark.parametrize(("autocast", "asked", "width"), [(0, 2, 2), (0, 4, 4), (2, 2, 4)])
def test_softmax_keeps_its_result_in_the_width_it_is_made_in(autocast, asked, width):
    tape = Tape(autocast=autocast)
    y = op.softmax(tape, tensor(tape), element_bytes=asked)

    assert (size(y), saved(y)) == (per_token(width * W), [per_token(width * W)])


def test_softmax_is_made_in_fp32_unless_said_otherwise():
    tape = Tape()

    assert size(op.softmax(tape, tensor(tape))) == FOUR


# ---- rows picked and placed ----


def test_a_gather_saves_its_index():
    tape = Tape()
    y = op.gather(tape, tensor(tape), per_token(3), index_bytes=8)

    assert (size(y), saved(y), flows(y)) == (per_token(6), [per_token(8)], [made(TWO)])


def test_pieces_copied_into_an_empty_tensor_have_gradients_of_their_own():
    tape = Tape()
    y = op.filled(tape, per_token(20), tensor(tape), tensor(tape, 3))

    assert (size(y), saved(y), flows(y)) == (per_token(40), [], [made(TWO), made(per_token(6))])


def test_what_is_placed_into_zeros_is_saved():
    tape = Tape()
    y = op.placed(tape, tensor(tape), per_token(20))

    assert (size(y), saved(y), flows(y)) == (per_token(40), [TWO], [made(TWO)])


def test_the_gradient_of_a_sum_over_a_dimension_is_a_view():
    tape = Tape()
    y = op.total(tape, tensor(tape), per_token(3))

    assert (size(y), saved(y), flows(y)) == (per_token(6), [], [PASSED])


# ---- matrix products ----


def test_a_linear_saves_its_input_for_the_weight_and_the_weight_for_the_input():
    tape = Tape()
    y = op.linear(tape, tensor(tape), weight(), per_token(3))

    assert (size(y), saved(y), flows(y)) == (per_token(6), [TWO, None], [made(TWO), made(gradient(22))])


def test_a_frozen_linear_saves_the_weight_only_and_one_after_the_data_the_input_only():
    tape = Tape()

    assert saved(op.linear(tape, tensor(tape), weight(trains=False), per_token(3))) == [None]
    assert saved(op.linear(tape, tensor(tape, flows=False), weight(), per_token(3))) == [TWO]


def test_a_linear_under_autocast_works_on_copies_and_keeps_the_weights_copy():
    tape = Tape(autocast=2)
    matrix = weight(11, 4)
    y = op.linear(tape, tensor(tape, W, 4), matrix, per_token(3))

    assert size(y) == per_token(6)
    assert saved(y) == [TWO, constant(22)]
    assert flows(y) == [made(TWO), made(constant(22))]
    assert (matrix.cast.form, flows(matrix.cast), tape.casts) == (constant(22), [made(gradient(44))], [matrix])


def test_the_copy_of_a_frozen_weight_is_made_anew_each_time():
    tape = Tape(autocast=2)
    matrix = weight(11, 4, trains=False)
    y = op.linear(tape, tensor(tape), matrix, per_token(3))

    assert (saved(y), matrix.cast, tape.casts) == ([constant(22)], None, [])


def test_the_copy_of_a_weight_that_trains_is_used_again():
    tape = Tape(autocast=2)
    matrix = weight(11, 4)
    first = op.linear(tape, tensor(tape), matrix, per_token(3))
    second = op.linear(tape, tensor(tape), matrix, per_token(3))

    assert first.node.saved[1] is second.node.saved[1]
    assert tape.casts == [matrix]


def test_a_weight_that_autocast_need_not_narrow_is_used_itself():
    tape = Tape(autocast=2)
    y = op.linear(tape, tensor(tape, W, 4), weight(11, 2), per_token(3))

    assert (size(y), saved(y), flows(y)) == (per_token(6), [TWO, None], [made(TWO), made(gradient(22))])


def test_a_product_per_expert_is_in_the_weights_type():
    tape = Tape(autocast=2)
    y = op.grouped(tape, tensor(tape), weight(11, 4), per_token(3))

    assert (size(y), saved(y), flows(y)) == (per_token(12), [FOUR, None], [made(FOUR), made(gradient(44))])


def test_a_product_of_activations_saves_both_in_the_width_of_autocast():
    tape = Tape(autocast=2)
    y = op.matmul(tape, tensor(tape, W, 4), tensor(tape, 3, 4), op.pairs(5))

    assert (size(y), saved(y)) == (per_pair(10), [TWO, per_token(6)])
    assert flows(y) == [made(TWO), made(per_token(6))]


@pytest.mark.parametrize(("first", "kept"), [(True, per_token(6)), (False, TWO)])
def test_a_product_of_activations_saves_what_the_others_gradient_needs(first, kept):
    tape = Tape()
    y = op.matmul(tape, tensor(tape, flows=first), tensor(tape, 3, flows=not first), op.pairs(1))

    assert saved(y) == [kept]


def test_a_temporary_matrix_needs_no_gradient_and_is_kept_by_its_product():
    tape = Tape()
    matrix = op.matrix(tape, 50, 2)
    y = op.product(tape, tensor(tape), matrix, per_token(3))

    assert (size(matrix), matrix.node) == (constant(100), None)
    assert (size(y), saved(y), flows(y)) == (per_token(6), [constant(100)], [made(TWO)])


@pytest.mark.parametrize(
    ("keeps", "copies", "scales"), [(False, 1, 0), (True, 1, 0), (False, 2, 0), (False, 1, 13), (True, 2, 13)]
)
def test_a_four_bit_matrix_is_unpacked_in_forward_and_again_in_backward(keeps, copies, scales):
    tape = Tape()
    x = tensor(tape)
    tape.segment("here")
    y = op.dequantized(tape, x, per_token(3), elements=50, scales=scales, keeps_input=keeps, copies=copies)
    unpacked = constant(100 * copies)

    assert (size(y), saved(y), flows(y)) == (per_token(6), [TWO] if keeps else [], [made(TWO)])
    assert y.node.workspace == unpacked
    assert plus(unpacked, per_token(6)) in tape.current.points
    assert (plus(unpacked, constant(scales)) in tape.current.points) == bool(scales)
    assert tape.current.net == per_token(6)


# ---- norms ----


@pytest.mark.parametrize(("autocast", "width"), [(0, 2), (2, 4)])
def test_a_layer_norm_saves_its_input_and_two_numbers_per_row(autocast, width):
    tape = Tape(autocast=autocast)
    form = per_token(width * W)
    y = op.layer_norm(tape, tensor(tape), weight(W, 4))

    assert (size(y), saved(y), flows(y)) == (form, [form, per_token(8)], [made(form), made(gradient(28))])


def test_a_layer_norm_may_have_no_weight():
    tape = Tape()

    assert flows(op.layer_norm(tape, tensor(tape), None)) == [made(TWO), made(ZERO)]


def test_a_norm_in_one_kernel_saves_its_input_and_one_number_per_row():
    tape = Tape()
    y = op.fused_norm(tape, tensor(tape), weight(W, 4))

    assert (size(y), saved(y), flows(y)) == (TWO, [TWO, per_token(4)], [made(TWO), made(gradient(28))])


# ---- attention ----


def flash(heads=4, head_dim=8, kv_heads=4):
    tape = Tape()
    q, k, v = (tensor(tape, n * head_dim) for n in (heads, kv_heads, kv_heads))
    return op.flash_attention(tape, q, k, v, heads=heads, head_dim=head_dim)


def test_flash_attention_saves_queries_keys_values_output_and_a_number_per_head():
    y = flash()

    assert size(y) == per_token(64)
    assert saved(y) == [per_token(64)] * 4 + [per_token(16), None, None]
    assert flows(y) == [made(per_token(64))] * 3


@pytest.mark.parametrize(
    ("head_dim", "rounded"), [(8, 32), (32, 32), (33, 64), (128, 128), (129, 192), (192, 192), (193, 256), (256, 256)]
)
def test_the_workspace_of_flash_attention_goes_by_the_rounded_head(head_dim, rounded):
    assert flash(heads=3, head_dim=head_dim, kv_heads=3).node.workspace == (0, 0, 0, 4 * 3 * (rounded + 1), 0, 0)


def test_fewer_key_heads_need_expanded_gradients_of_both():
    y = flash(heads=4, head_dim=8, kv_heads=2)

    assert y.node.workspace == (0, 2 * 64, 0, 4 * 4 * 33, 0, 0)
    assert saved(y)[:4] == [per_token(64), per_token(32), per_token(32), per_token(64)]


@pytest.mark.parametrize("masked", [True, False])
def test_the_kernel_for_a_mask_keeps_the_mask_and_has_the_width_of_the_values(masked):
    tape = Tape()
    q, k, v = (tensor(tape, n) for n in (20, 21, 22))
    mask = tape.new(op.pairs(1), 2) if masked else None
    y = op.efficient_attention(tape, q, k, v, heads=4, value_width=3, mask=mask)

    assert size(y) == per_token(24)
    inputs = [per_token(40), per_token(42), per_token(44)]
    assert saved(y) == [*inputs, per_pair(2) if masked else None, per_token(24), per_token(16), None, None]
    assert flows(y) == [made(form) for form in inputs]


# ---- embedding and loss ----


def test_the_gradient_of_an_embedding_is_dense():
    tape = Tape()
    y = op.embedding(tape, weight(11, 4), 3)

    assert (size(y), saved(y), flows(y)) == (per_token(12), [None], [made(gradient(44))])


@pytest.mark.parametrize(("autocast", "width"), [(0, 2), (2, 4)])
def test_the_loss_saves_the_logarithms_twice_over_one_storage(autocast, width):
    tape = Tape(autocast=autocast)
    y = op.cross_entropy(tape, tensor(tape))
    form = per_token(width * W)

    assert (size(y), saved(y), flows(y)) == (constant(4), [form], [made(form)])


# ---- an activation of many operators ----


def xielu_levels(*, trains, autocast=0):
    tape = Tape(autocast=autocast)
    x = tensor(tape)
    tape.segment("here")
    y = op.xielu(tape, x, trains=trains)
    return y, tape.current.net


def test_xielu_keeps_what_its_branches_need_and_a_byte_per_element():
    y, net = xielu_levels(trains=False)

    # -x of the square; the result of the exponential; the condition; the output itself
    assert net == per_token(3 * 2 * W + W)
    assert (size(y), saved(y), flows(y)) == (TWO, [per_token(W)], [made(TWO), made(TWO)])


def test_a_xielu_that_trains_keeps_the_shifted_branch_as_well():
    assert xielu_levels(trains=True)[1] == per_token(4 * 2 * W + W)


def test_xielu_works_in_fp32_under_autocast():
    y, net = xielu_levels(trains=False, autocast=2)

    assert (size(y), net) == (FOUR, per_token(4 * 4 * W + W))
