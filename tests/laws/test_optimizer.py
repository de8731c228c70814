"""Optimizer states: the published bytes per parameter, the small-tensor rule, factored moments, step temporaries."""

import pytest

from tonnage.laws import optimizer
from tonnage.units import GiB

SEVEN_BILLION = ((4096, 4096, 400), (5, 1, 3))


def test_adam_in_bf16_keeps_four_bytes_per_parameter():
    assert 4 * (4096 * 4096 * 400 + 15) == optimizer.elementwise_states(shapes=SEVEN_BILLION, states=2, state_bytes=2)


def test_eight_bit_states_take_two_bytes_and_a_scale_per_256():
    states = optimizer.blockwise_states(
        shapes=((4096, 4096, 1),), states=2, state_bytes=1, block_size=256, minimum_elements=4096
    )

    assert 2.03125 * 4096 * 4096 == states


def test_four_bit_states_take_1_06_bytes():
    states = optimizer.blockwise_states(
        shapes=((4096, 4096, 1),), states=2, state_bytes=0.5, block_size=128, minimum_elements=4096
    )

    assert pytest.approx(1.0625) == states / 4096**2


def test_small_tensors_and_excluded_embeddings_keep_fp32():
    states = optimizer.blockwise_states(
        shapes=((4095, 1, 1),), rest=((1000, 10, 1),), states=2, state_bytes=1, block_size=256, minimum_elements=4096
    )

    assert 8 * (4095 + 10_000) == states


def test_torchao_eight_bit_saves_what_its_readme_measured_on_seven_billion():
    shapes = ((6_738_415_616 // 4096, 4096, 1),)
    saved = optimizer.elementwise_states(shapes=shapes, states=2, state_bytes=2) - optimizer.blockwise_states(
        shapes=shapes, states=2, state_bytes=1, block_size=256, minimum_elements=4096
    )

    assert pytest.approx(12.4, abs=0.2) == saved / GiB


def test_factored_moments_are_rows_and_columns_and_vectors_whole():
    shapes = ((1000, 500, 2), (1000, 1, 1))

    assert 4 * (2 * 1500 + 1000) == optimizer.factored_states(shapes=shapes, states=0, state_bytes=4)
    assert 4 * (2 * 501_500 + 2000) == optimizer.factored_states(shapes=shapes, states=1, state_bytes=4)


def test_sgd_without_momentum_keeps_nothing():
    assert 0 == optimizer.no_states(shapes=SEVEN_BILLION)


def test_muon_keeps_one_state_of_matrices_and_two_of_the_rest():
    states = optimizer.momentum_and_adamw_states(
        shapes=((100, 100, 1), (100, 1, 1)), rest=((1000, 100, 1),), states=1, state_bytes=4
    )

    assert 4 * (10_000 + 2 * 100 + 2 * 100_000) == states


def test_galore_projects_the_shorter_side():
    states = optimizer.low_rank_states(
        shapes=((1000, 4000, 1),), rest=((10, 1, 1),), rank=128, states=2, state_bytes=2, projector_bytes=2,
        rest_state_bytes=2,
    )  # fmt: skip

    assert 2 * 2 * 128 * 4000 + 2 * 128 * 1000 + 40 == states


def test_a_rank_above_the_shorter_side_is_cut_to_it():
    huge = optimizer.low_rank_states(
        shapes=((8, 4000, 1),), rest=(), rank=128, states=2, state_bytes=2, projector_bytes=0, rest_state_bytes=2
    )

    assert 2 * 2 * 8 * 4000 == huge


def test_foreach_makes_one_copy_and_the_loop_two_of_the_largest_tensor():
    assert 2 * 10 == optimizer.foreach_step(parameters=10, element_bytes=2)
    assert 2 * 2 * 4 == optimizer.for_loop_step(largest_tensor=4, element_bytes=2)


def test_newton_schulz_works_on_the_shorter_side():
    assert 2 * (2 * 100 * 50 + 2 * 50 * 50) == optimizer.orthogonalisation_step(rows=100, columns=50)


def test_a_master_copy_is_fp32():
    assert 28 * 10**9 == optimizer.master_copy(parameters=7 * 10**9)


def test_a_factored_optimizer_within_a_projection_keeps_sums_of_rows_and_columns():
    known = {"shapes": ((704, 256, 1),), "rest": ((1000, 256, 1), (256, 1, 5)), "rank": 128, "states": 0}
    widths = {"state_bytes": 4, "projector_bytes": 0, "rest_state_bytes": 4}

    assert 4 * (128 + 704 + 1256 + 5 * 256) == optimizer.low_rank_states(**known, **widths, factored=True)


def test_a_vector_has_one_second_moment_however_many_a_matrix_has():
    assert 4 * (256 + 256) == optimizer.factored_states(
        shapes=((256, 1, 1),), states=1, state_bytes=4, factored_moments=2
    )
