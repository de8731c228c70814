import pytest

from tonnage.laws import tensorrt_llm
from tonnage.units import GiB, MiB


def test_pool_is_the_63_44_gib_of_the_documented_log():
    assert tensorrt_llm.pool(fraction=0.9, total=int(70.48 * GiB), peak=0) == pytest.approx(63.43 * GiB, rel=1e-4)


def test_a_peak_beyond_the_card_leaves_no_pool():
    assert 0 == tensorrt_llm.pool(fraction=0.9, total=10, peak=20)
    assert 9 == tensorrt_llm.pool(fraction=0.9, total=20, peak=15, estimation_cache=5)


@pytest.mark.parametrize(
    ("tokens", "hidden", "intermediate", "rows", "printed"),
    [
        (8_192, 896, 4_864, (10.0, 0.0), 773.5 * MiB),
        (131_072, 4_096, 14_336, (10.0, 0.0), 37.8 * GiB),
        (8_192, 4_096, 16_384, (3.0, 2.0), 928.77 * MiB),
    ],
)
def test_execution_context_is_within_a_tenth_of_three_logs(tokens, hidden, intermediate, rows, printed):
    shape = {"max_num_tokens": tokens, "hidden_size": hidden, "intermediate_size": intermediate}
    size = tensorrt_llm.execution_context(**shape, feed_forward_rows=rows[0], stream_rows=rows[1])
    without_stream = tensorrt_llm.execution_context(**shape, feed_forward_rows=rows[0], stream_rows=0)

    assert size == pytest.approx(printed, rel=0.1)
    assert without_stream // 2 == tensorrt_llm.execution_context(
        **shape, feed_forward_rows=rows[0], stream_rows=0, tensor_parallel_size=2
    )


@pytest.mark.parametrize(
    ("stated", "default", "expected"),
    [(None, 8_192, 4_096), (None, None, 2_048), (100, 8_192, 100), (9_000, 8_192, 4_096), (None, 100, 100)],
)
def test_packed_tokens_are_never_more_than_a_batch_of_longest_requests(stated, default, expected):
    packed = tensorrt_llm.packed_tokens(
        stated=stated, default=default, max_batch_size=2, max_seq_len=2_048, max_input_len=1_024
    )

    assert expected == packed


@pytest.mark.parametrize(
    ("rows", "slots", "vocabulary", "printed"),
    [
        (5.4, 2_048, 151_936, 5.76 * GiB),
        (1.9, 2_048, 151_936, 2.66 * GiB),
        (5.4, 4_096, 50_400, 4.05 * GiB),
    ],
)
def test_decoder_and_runtime_buffers_are_rows_by_slot(rows, slots, vocabulary, printed):
    size = tensorrt_llm.slot_rows(rows=rows, max_batch_size=slots, vocab_size=vocabulary)

    assert size == pytest.approx(printed, rel=0.25)


def test_context_run_is_linear_in_tokens():
    one, two = (
        tensorrt_llm.context_run(max_num_tokens=n, hidden_size=4_096, intermediate_size=14_336, element_bytes=2)
        for n in (1, 2)
    )

    assert 2 * (3 * 14_336 + 4 * 4_096) == one
    assert 2 * one == two


def test_one_rank_needs_no_communicator():
    assert 0 == tensorrt_llm.communicator(tensor_parallel_size=1)
    assert 342 * MiB == tensorrt_llm.communicator(tensor_parallel_size=2)
    assert 392 * MiB == tensorrt_llm.communicator(tensor_parallel_size=8)


def test_captured_graphs_are_a_typical_size():
    assert 500 * MiB == tensorrt_llm.captured()
