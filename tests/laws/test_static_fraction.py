import pytest

from tonnage.laws import static_fraction
from tonnage.units import GiB, MiB


def test_boards_up_to_96_gib_keep_the_fraction_of_their_ranks():
    assert 0.88 == static_fraction.by_ranks_and_board(fraction=0.88, board=80 * GiB)


def test_larger_boards_keep_no_more_than_18_gib_outside():
    assert (144 - 18) / 144 == static_fraction.by_ranks_and_board(fraction=0.88, board=144 * GiB)
    assert 0.88 + 48 * 0.12 / 282 == static_fraction.by_ranks_and_board(fraction=0.88, board=282 * GiB)


def test_a_reserve_is_rounded_to_three_decimals():
    assert 0.874 == static_fraction.from_reserve(board=81_559 * MiB, reserve=10_240 * MiB)


def test_a_vit_l_costs_five_percent_and_larger_towers_up_to_a_fifth_more():
    assert 0.95 == static_fraction.vision_tower(factor=0.95, layers=24, hidden_size=1024)
    assert 0.76 == pytest.approx(static_fraction.vision_tower(factor=0.95, layers=48, hidden_size=4096))


def test_tokens_are_whole_pages():
    assert 64 == static_fraction.tokens(pool=1000, token_bytes=10, page_size=64)
    assert 0 == static_fraction.tokens(pool=-1, token_bytes=10)
    assert 0 == static_fraction.tokens(pool=1000, token_bytes=0)


def test_a_token_costs_less_where_windows_have_a_smaller_pool():
    assert 150 == static_fraction.windowed_token(full_bytes=100, sliding_bytes=50, ratio=1.0)
    assert 140 == static_fraction.windowed_token(full_bytes=100, sliding_bytes=50, ratio=0.8)
    assert 50 == static_fraction.windowed_token(full_bytes=0, sliding_bytes=50, ratio=0.8)


def test_gemma_4_e4b_fills_the_printed_pool_with_the_printed_tokens():
    cell = static_fraction.windowed_token(full_bytes=28_672, sliding_bytes=71_680, ratio=0.8)

    assert 79.94 == pytest.approx(997_846 * cell / 2**30, abs=0.005)


FLASH = {
    "latent_bytes": 584,
    "state_width": 512,
    "window": 128,
    "ratio": 0.1,
    "windowed_layers": 44,
    "compressions": ((4, 21, 128), (128, 20, 0)),
}


def test_a_token_of_compressed_latents_costs_what_the_log_prints():
    assert 15_955.85 == pytest.approx(static_fraction.compressed_token(**FLASH, speculative=False), abs=0.005)


def test_a_draft_doubles_the_rings_and_adds_a_layer():
    plain = static_fraction.compressed_token(**FLASH, speculative=False)
    drafted = static_fraction.compressed_token(**FLASH, speculative=True)

    assert plain * 45 / 44 < drafted < 2 * plain


def test_states_take_their_share_of_the_pool():
    assert 47 == static_fraction.state_slots(pool=1000, state_bytes=10, ratio=0.9)


@pytest.mark.parametrize(("tokens", "expected"), [(105_531, 2048), (131_072 * 5, 2560), (131_072 * 100, 4096)])
def test_running_requests_stay_between_their_bounds(tokens, expected):
    assert expected == static_fraction.running_requests(
        tokens=tokens, context=131_072, per_context=512, least=2048, most=4096
    )


def test_decode_sizes_grow_coarser():
    assert (1, 2, 4, 8, 12, 16, 24) == static_fraction.decode_capture_sizes(largest=24)
    assert 14 == len(static_fraction.decode_capture_sizes(largest=80))
    assert 30 == static_fraction.decode_capture_sizes(largest=30)[-1]


def test_prefill_sizes_end_at_the_chunk():
    sizes = static_fraction.prefill_capture_sizes(largest=2048)

    assert 42 == len(sizes)
    assert 2048 == sizes[-1]
