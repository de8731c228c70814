import pytest

from tonnage.laws import runtime
from tonnage.units import GiB, MiB


def test_custom_all_reduce_registers_two_buffers():
    assert 16 * MiB == runtime.custom_all_reduce()


@pytest.mark.parametrize(("ranks", "major", "mib"), [(2, 9, 64), (4, 9, 32), (8, 10, 64), (3, 9, 0), (2, 8, 0)])
def test_symmetric_memory_is_for_data_centre_hopper_and_blackwell(ranks, major, mib):
    assert mib * MiB == runtime.symmetric_memory(tensor_parallel_size=ranks, major=major)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_multicast_granularity_makes_every_fusion_workspace_one_and_a_half_gib(ranks):
    assert 3 * GiB // 2 == runtime.fusion_workspace(tensor_parallel_size=ranks, major=9, granular=True)


@pytest.mark.parametrize(("ranks", "major", "mib"), [(2, 9, 512), (4, 9, 32), (8, 9, 16), (4, 10, 512), (8, 10, 32)])
def test_without_rounding_it_is_four_times_ranks_and_limit(ranks, major, mib):
    assert mib * MiB == runtime.fusion_workspace(tensor_parallel_size=ranks, major=major, granular=False)


@pytest.mark.parametrize(("ranks", "major"), [(1, 9), (16, 9), (2, 8)])
def test_other_ranks_and_cards_have_no_fusion_workspace(ranks, major):
    assert 0 == runtime.fusion_workspace(tensor_parallel_size=ranks, major=major, granular=True)


def test_a_request_table_of_2049_long_requests_takes_a_gib():
    assert 1.0 == pytest.approx(runtime.request_table(requests=2049, max_model_len=131_072) / GiB, abs=0.001)


def test_block_tables_hold_a_number_for_every_block():
    assert 256 * 8192 * 4 == runtime.block_tables(max_num_seqs=256, max_model_len=131_072, block_size=16)


def test_growth_outside_torch_is_modules_buffers_and_the_host_where_it_is_the_same_memory():
    assert 1_700_000_000 == runtime.growth_outside_torch(
        modules=150_000_000, runner_buffers=150_000_000, host=1_400_000_000
    )
    assert 40_000_000 == runtime.growth_outside_torch(modules=40_000_000)


@pytest.mark.parametrize(("ranks", "alone", "size"), [(8, False, GiB), (1, True, GiB // 2), (1, False, 0)])
def test_communicators_of_training_are_built_for_several_ranks_or_by_deepspeed(ranks, alone, size):
    assert size == runtime.training_communicators(ranks=ranks, built_alone=alone)
