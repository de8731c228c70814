import pytest

from tonnage.laws import sampler
from tonnage.units import GiB, MiB

UNIT = 4 * 1024 * 128_256


def test_logits_are_half_a_unit_in_16_bit():
    assert UNIT // 2 == sampler.logits(rows=1024, vocab_size=128_256, element_bytes=2)


def test_hidden_rows_are_copied_once():
    assert 2 * 1024 * 4096 * 2 == sampler.hidden_rows(rows=1024, hidden_size=4096, element_bytes=2)


def test_segmented_sort_and_logits_come_to_nine_and_a_half_units():
    # vLLM 0.11, Llama-3.1-8B on H100: 4.76 GiB printed, 0.078 of it hidden states, 0.031 cuBLAS
    sort = sampler.torch_sort(rows=1024, vocab_size=128_256)

    assert 9 * UNIT == sort
    assert 4.76 == pytest.approx((sort + UNIT / 2) / GiB + 0.0781 + 0.0312, abs=0.01)


def test_below_128_rows_the_sort_takes_all_rows_at_once_and_more_for_each():
    assert 12 * 4 * 127 * 1000 == sampler.torch_sort(rows=127, vocab_size=1000)
    assert 9 * 4 * 128 * 1000 == sampler.torch_sort(rows=128, vocab_size=1000)


def test_triton_kernel_keeps_one_row_of_scratch_for_every_multiprocessor():
    assert 3 * UNIT + 132 * 4 * 128_256 == sampler.triton_top_k_top_p(
        rows=1024, vocab_size=128_256, multiprocessors=132
    )


def test_triton_kernel_starts_no_more_programs_than_the_next_power_of_two_of_its_rows():
    assert 3 * 4 * 5 * 1000 + 8 * 4 * 1000 == sampler.triton_top_k_top_p(rows=5, vocab_size=1000, multiprocessors=132)


def test_flashinfer_needs_three_units_and_no_scratch():
    assert 3 * UNIT == sampler.flashinfer_top_k_top_p(rows=1024, vocab_size=128_256)


def test_gumbel_needs_a_maximum_for_every_block_only():
    assert 1024 * 126 * 12 == sampler.gumbel(rows=1024, vocab_size=128_256)
    assert sampler.gumbel(rows=1024, vocab_size=128_256) < 2 * MiB


def test_rejection_sampler_is_nothing_without_drafts_and_five_and_a_half_units_with():
    assert 0 == sampler.rejection(rows=1024, vocab_size=128_256, element_bytes=2, num_speculative_tokens=0)
    assert 11 * UNIT // 2 == sampler.rejection(rows=1024, vocab_size=128_256, element_bytes=2, num_speculative_tokens=3)


@pytest.mark.parametrize("law", [sampler.torch_sort, sampler.flashinfer_top_k_top_p, sampler.gumbel])
def test_no_request_needs_nothing(law):
    assert 0 == law(rows=0, vocab_size=128_256)
