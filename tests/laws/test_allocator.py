import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.laws import allocator
from tonnage.units import GiB, MiB


def test_block_rounds_to_512_bytes():
    assert 512 == allocator.block(request=1)
    assert 1024 == allocator.block(request=1024)


@pytest.mark.parametrize(
    ("request_mib", "segment_mib"), [(0.5, 2), (1, 2), (1.5, 20), (9.9, 20), (10, 10), (11, 12), (135, 136)]
)
def test_segment_follows_the_three_sizes_of_the_source(request_mib, segment_mib):
    assert segment_mib * MiB == allocator.segment(request=int(request_mib * MiB))


def test_a_135_mib_matrix_counts_as_136_because_1_mib_is_not_split_off():
    # Qwen2.5-14B: 144 such matrices, 144 MiB more than its tensors
    assert 144 * 136 * MiB == allocator.allocated(tensors=[(135 * MiB, 144)])


def test_remainders_above_1_mib_are_split_off_and_not_counted():
    assert 3 * 8 * MiB == allocator.allocated(tensors=[(8 * MiB, 3)])


def test_thirteen_tensors_of_one_and_a_half_mib_fill_a_shared_segment():
    assert 20 * MiB == allocator.allocated(tensors=[(3 * MiB // 2, 13)])
    assert 20 * MiB == allocator.reserved(tensors=[(3 * MiB // 2, 13)])
    assert 40 * MiB == allocator.reserved(tensors=[(3 * MiB // 2, 14)])


def test_a_warm_up_of_all_weights_leaves_nothing_to_count_beyond_them():
    tensors = [(135 * MiB, 10), (3 * MiB // 2, 13)]
    exact = sum(size * count for size, count in tensors)

    assert exact <= allocator.allocated(tensors=tensors, warm=exact) <= exact + MiB
    assert allocator.allocated(tensors=tensors) > allocator.allocated(tensors=tensors, warm=exact)


def test_small_tensors_count_exactly():
    assert 3 * 1024 == allocator.allocated(tensors=[(1000, 3)])


def test_gaps_are_what_segments_have_left():
    assert (4 * MiB,) == allocator.placed(tensors=[(8 * MiB, 2)]).gaps


def test_later_tensors_count_the_remainders_of_the_gaps_they_land_in():
    assert MiB // 2 == allocator.unsplit_remainders(free=(2 * MiB,), request=3 * MiB // 2, count=1)
    assert 0 == allocator.unsplit_remainders(free=(3 * MiB,), request=3 * MiB // 2, count=2)
    assert MiB // 2 == allocator.unsplit_remainders(free=(), request=3 * MiB // 2, count=13)
    assert 0 == allocator.unsplit_remainders(free=(2 * MiB,), request=12 * MiB, count=5)


@given(
    st.lists(st.tuples(st.integers(1, 40 * MiB), st.integers(0, 5)), max_size=12),
    st.integers(0, 200 * MiB),
)
def test_counted_lies_between_the_tensors_and_the_segments(tensors, warm):
    exact = sum(size * count for size, count in tensors)

    assert exact <= allocator.allocated(tensors=tensors, warm=warm) <= allocator.reserved(tensors=tensors, warm=warm)


@given(st.lists(st.tuples(st.integers(1, 40 * MiB), st.integers(1, 5)), max_size=8), st.integers(0, 200 * MiB))
def test_equal_tensors_are_placed_as_if_one_by_one(tensors, warm):
    singly = [(size, 1) for size, count in tensors for _ in range(count)]

    assert allocator.placed(tensors=singly, warm=warm) == allocator.placed(tensors=tensors, warm=warm)


def test_part_of_a_profiled_peak_comes_back_in_pieces():
    assert 1.78 == pytest.approx(allocator.warm_up_slack(profiled=int(2.87 * GiB)) / GiB, abs=0.01)
    assert 0 == allocator.warm_up_slack(profiled=0)


@given(st.lists(st.tuples(st.integers(1, 64 * MiB), st.integers(1, 9)), max_size=12))
def test_segments_hold_tensors_remainders_and_what_is_unused(tensors):
    placed = allocator.placed(tensors=tensors)

    assert placed.tensors == sum(allocator.block(request=size) * count for size, count in tensors)
    assert placed.allocated == placed.tensors + placed.remainders
    assert placed.reserved == placed.allocated + placed.unused
    assert placed.unused >= sum(placed.gaps)
