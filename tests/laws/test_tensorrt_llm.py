import pytest

from tonnage.laws import tensorrt_llm
from tonnage.units import GiB, MiB


def test_pool_is_the_63_44_gib_of_the_documented_log():
    assert tensorrt_llm.pool(fraction=0.9, total=int(70.48 * GiB), peak=0) == pytest.approx(63.43 * GiB, rel=1e-4)


def test_a_peak_beyond_the_card_leaves_no_pool():
    assert 0 == tensorrt_llm.pool(fraction=0.9, total=10, peak=20)
    assert 9 == tensorrt_llm.pool(fraction=0.9, total=20, peak=15, estimation_cache=5)


@pytest.mark.parametrize(
    ("tokens", "intermediate", "printed"), [(8_192, 4_864, 760 * MiB), (131_072, 14_336, 35 * GiB)]
)
def test_execution_context_is_within_a_tenth_of_two_logs(tokens, intermediate, printed):
    size = tensorrt_llm.execution_context(max_num_tokens=tokens, intermediate_size=intermediate)

    assert size == pytest.approx(printed, rel=0.1)
    assert size // 2 == tensorrt_llm.execution_context(
        max_num_tokens=tokens, intermediate_size=intermediate, tensor_parallel_size=2
    )


def test_decoder_and_runtime_buffers_of_a_half_billion_model_at_2048_slots():
    decoder = tensorrt_llm.decoder_buffers(max_batch_size=2_048, vocab_size=151_936)
    runtime = tensorrt_llm.runtime_buffers(max_batch_size=2_048, vocab_size=151_936)

    assert decoder == pytest.approx(5.76 * GiB, rel=0.1)
    assert runtime == pytest.approx(2.66 * GiB, rel=0.25)


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
