"""Bytes per logit of each code path: what the oracle and the frameworks' sources show."""

import pytest

from tonnage.laws import loss
from tonnage.units import MiB


def test_current_transformers_takes_10_forward_and_12_backward():
    assert (10, 4, 12, 4) == loss.causal_upcast(logit_bytes=2)
    assert (8, 4, 12, 4) == loss.causal_upcast(logit_bytes=4)


def test_the_shifted_copy_costs_nothing_for_a_single_sequence():
    single = loss.causal_shifted(logit_bytes=2, sequences=1, caller_keeps=False)
    several = loss.causal_shifted(logit_bytes=2, sequences=2, caller_keeps=False)
    kept = loss.causal_shifted(logit_bytes=2, sequences=2, caller_keeps=True)

    assert (8, 12, 14) == (single[0], several[0], kept[0])


def test_logits_held_through_backward_make_it_16():
    assert (8, 8, 16, 4) == loss.causal_held(logit_bytes=2)


def test_fp32_outputs_never_lower_a_path():
    assert (10, 4, 12, 4) == loss.mixed_precision_outputs(path=(8, 4, 12, 4))
    assert (14, 4, 12, 4) == loss.mixed_precision_outputs(path=(14, 4, 12, 4))


def test_losses_without_upcast_and_in_place():
    assert (6, 2, 6, 2) == loss.half_precision(logit_bytes=2)
    assert 2 == loss.in_place(logit_bytes=2)[2]


def test_litgpt_holds_fp32_logits_and_their_log_softmax():
    assert (10, 8, 8, 0) == loss.fabric_outputs(logit_bytes=2)


def test_torchtitan_eager_14_compiled_12_online_6():
    assert 14 == loss.full_eager(logit_bytes=2)[2]
    assert 12 == loss.full_compiled(logit_bytes=2, online=False)[2]
    assert 6 == loss.full_compiled(logit_bytes=2, online=True)[2]


def test_chunks_share_their_fp32_copies():
    assert (6.5, 5.0) == (
        loss.chunked(logit_bytes=2, chunks=8, code="chunked_float")[0],
        loss.chunked(logit_bytes=2, chunks=8, code="chunked_float")[2],
    )
    assert 2.75 == loss.chunked(logit_bytes=2, chunks=8, code="chunked_compiled")[2]
    assert 3.5 == loss.chunked(logit_bytes=2, chunks=8, code="chunked_titan")[2]


def test_vocabulary_parallel_losses():
    assert 6 == loss.vocab_parallel(logit_bytes=2)[0]
    assert 16 == loss.loss_parallel(logit_bytes=2)[2]


@pytest.mark.parametrize(
    ("tokens", "chunks", "most", "expected"), [(1000, 8, 0, 125), (1000, 0, 256, 256), (100, 0, 256, 100)]
)
def test_a_chunk_holds_part_of_the_tokens(tokens, chunks, most, expected):
    assert expected == loss.chunk_tokens(tokens=tokens, chunks=chunks, most=most)


def test_a_fused_head_makes_its_gradients_but_no_full_logits():
    whole = 2 * 8192 * 128256 * 3
    fused = loss.fused_head(vocab_size=128256, hidden_size=4096, tokens=8192, head_trains=True, element_bytes=2)

    assert fused < whole / 3
    assert 128256 * 4096 * 2 > 1000 * MiB


def test_logits_of_a_moment_go_with_the_tokens_scored():
    assert 128256 * 6 * 512 == loss.at_moment(bytes_per_scored_token=128256 * 6, scored_tokens=512)
    assert 0 == loss.at_moment(bytes_per_scored_token=-4, scored_tokens=512)


def test_a_frozen_head_leaves_nothing_but_16_bit_logits():
    assert (2, 2, 2, 2) == loss.frozen_chunks(logit_bytes=2)


def test_scores_of_generated_tokens_are_fp32():
    assert 4 * 128_256 * 8 == loss.generated_scores(vocab_size=128_256, rows=8)


@pytest.mark.parametrize(("free", "expected"), [(None, 1), (3 * 2**30, 1), (2**30, 4), (2**29, 8)])
def test_a_loss_that_fills_the_card_is_cut_by_fours_once_its_logits_are_more_than_what_is_free(free, expected):
    assert expected == loss.chunks_by_free_memory(tokens=4096, vocab_size=131072, free=free)
