import pytest

from tonnage.laws import cuda_graphs
from tonnage.units import GiB, MiB


def test_default_lists_have_51_sizes_now_and_67_before():
    assert 51 == len(cuda_graphs.capture_sizes(largest=512, step_above_256=16))
    assert 67 == len(cuda_graphs.capture_sizes(largest=512, step_above_256=8))


def test_small_lists_stop_where_they_are_told():
    assert (1, 2, 4, 8) == cuda_graphs.capture_sizes(largest=8, step_above_256=16)
    assert (1, 2) == cuda_graphs.capture_sizes(largest=3, step_above_256=16)


@pytest.mark.parametrize(
    ("seqs", "drafts", "batch", "expected"),
    [(1024, 1, 8192, 512), (8, 1, 8192, 16), (8, 4, 8192, 64), (256, 1, 100, 100)],
)
def test_largest_capture_is_twice_the_requests_within_limit_and_batch(seqs, drafts, batch, expected):
    assert expected == cuda_graphs.largest_capture(
        max_num_seqs=seqs, tokens_per_request=drafts, limit=512, max_num_batched_tokens=batch
    )


def test_v0_captures_up_to_the_requests_rounded_up():
    assert (1, 2) == cuda_graphs.decode_capture_sizes(max_num_seqs=2)
    assert (1, 2, 4, 8, 16) == cuda_graphs.decode_capture_sizes(max_num_seqs=12)
    assert 35 == len(cuda_graphs.decode_capture_sizes(max_num_seqs=256))


def test_a_capture_is_base_nodes_and_the_pool_of_the_largest_batch():
    # vLLM 0.19, Llama-2-7B on H100: 0.89 GiB
    nodes = cuda_graphs.captured(layers=32, sizes=51, base=115_000_000, per_size=2_200_000, per_node=172_000)
    hidden = cuda_graphs.captured_buffers(rows=512, width=4096, buffers=80)
    mlp = cuda_graphs.captured_buffers(rows=512, width=11008, buffers=7.5)

    assert 0.89 == pytest.approx((nodes + hidden + mlp) / GiB, rel=0.05)
    assert 115_000_000 == cuda_graphs.captured(layers=32, sizes=0, base=115_000_000, per_size=1, per_node=1)


def test_adapters_add_nodes_by_layer_and_size():
    # vLLM 0.8.1, Llama-3.2-3B on A100 with adapters: 0.38 GiB for 43 sizes of 28 layers
    plain = cuda_graphs.captured(layers=28, sizes=43, base=40_000_000, per_size=0, per_node=165_000)
    adapters = cuda_graphs.captured_adapters(layers=28, sizes=43, per_node=140_000)

    assert 0.38 == pytest.approx((plain + adapters) / GiB, rel=0.02)
    assert 0 == cuda_graphs.captured_adapters(layers=28, sizes=0, per_node=140_000)


def test_an_indexer_scores_every_position_for_every_row():
    assert 1.5625 == cuda_graphs.indexer_logits(rows=512, max_model_len=819_200) / GiB


def test_yi_34b_on_four_cards_without_nvlink_needs_over_two_gib_for_its_reductions():
    assert 2_200 * MiB == pytest.approx(
        cuda_graphs.captured_reductions(layers=60, sizes=35, per_reduction=550_000), rel=0.02
    )


def test_a_dequantized_projection_holds_both_halves():
    assert 224 * MiB == cuda_graphs.dequantized_gate_up(hidden_size=4096, width=14_336, element_bytes=2)


def test_an_allowance_by_batch_is_linear():
    assert 160 * MiB == cuda_graphs.allowance_by_batch(largest=80, bytes_per_request=2 * MiB)
