import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.laws import kv_blocks
from tonnage.units import MiB


def test_a_page_is_a_block_of_one_layer():
    assert 16 * 4096 == kv_blocks.page(block_size=16, bytes_per_token=4096)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [((10, 52), 10), ((12, 13), 13), ((21, 21), 21), ((7, 20), 7), ((20, 30), 20), ((36, 12), 12)],
)
def test_groups_are_as_large_as_the_smaller_class_unless_the_larger_is_hardly_larger(layers, expected):
    assert expected == kv_blocks.group_size(class_layers=layers)


def test_gemma_3_27b_has_seven_groups_of_ten_layers():
    groups = [kv_blocks.group_count(layers=n, group_size=10) for n in (10, 52)]

    assert [1, 6] == groups


def test_pools_are_floored_twice_and_never_below_nothing():
    assert 3 == kv_blocks.blocks(pool=79, page_bytes=10, group_size=2)
    assert 0 == kv_blocks.blocks(pool=-1, page_bytes=10, group_size=2)


def test_full_attention_rounds_a_request_up_to_blocks():
    assert 2 == kv_blocks.full_attention_blocks(tokens=17, block_size=16)


def test_a_window_saves_nothing_while_it_and_the_batch_cover_the_request():
    assert 513 == kv_blocks.sliding_window_blocks(tokens=8192, window=1024, in_flight_tokens=8192, block_size=16)


def test_a_long_request_takes_window_and_batch_and_one_block_more():
    assert (1023 + 2048 + 15) // 16 + 1 == kv_blocks.sliding_window_blocks(
        tokens=131_072, window=1024, in_flight_tokens=2048, block_size=16
    )


def test_chunks_need_no_extra_block():
    assert 1024 == kv_blocks.chunked_local_blocks(tokens=131_072, chunk=8192, in_flight_tokens=8192, block_size=16)


def test_a_recurrent_group_takes_a_block_for_the_state_and_one_for_every_draft():
    assert 1 == kv_blocks.recurrent_blocks()
    assert 4 == kv_blocks.recurrent_blocks(spare_states=3)


def test_kimi_linear_grows_its_blocks_to_960_tokens():
    # two ranks: 1 MiB of fp32 state and 36 KiB of convolution against 1,152 bytes a token
    assert 960 == kv_blocks.hybrid_block_size(state_bytes=MiB + 36_864, bytes_per_token=1152, align=64)


def test_printed_tokens_share_the_blocks_out_over_groups():
    assert 36_560 == kv_blocks.printed_by_group(blocks=15_997, groups=7, block_size=16)


def test_printed_tokens_are_concurrency_times_length_later():
    assert 15 == kv_blocks.printed_by_concurrency(concurrency=1.5, max_model_len=10)


@given(tokens=st.integers(1, 10**6), window=st.integers(1, 10**5), flight=st.integers(1, 10**5))
def test_a_window_never_takes_more_than_full_attention_and_one_block(tokens, window, flight):
    full = kv_blocks.full_attention_blocks(tokens=tokens, block_size=16)

    assert full + 1 >= kv_blocks.sliding_window_blocks(
        tokens=tokens, window=window, in_flight_tokens=flight, block_size=16
    )
