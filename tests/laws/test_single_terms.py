"""
Sums whose terms differ by orders of magnitude at real sizes: here every term counts, one at a time.

Expected values are the formulas of the docstrings, worked out by hand for h = 1000, q = 800, kv = 200, f = 3000, a = 10.
"""

from collections.abc import Callable

import pytest

from tonnage.laws import (
    activations,
    cuda_graphs,
    generate,
    kv_blocks,
    llama_cpp_graph,
    loss,
    optimizer,
    runtime,
    static_fraction,
    tensorrt_llm,
    training_sharding,
    vision_encoder,
)

LAYER = {
    "hidden_size": 1000,
    "query_width": 800,
    "key_value_width": 200,
    "intermediate_size": 3000,
    "num_attention_heads": 10,
}


@pytest.mark.parametrize(("every_second", "expected"), [(True, 13_640), (False, 11_640)])
def test_selective_checkpointing_by_operator_keeps_each_named_tensor(every_second: bool, expected: int) -> None:
    assert expected == activations.selective_operators_layer(**LAYER, every_second=every_second)


@pytest.mark.parametrize(
    ("fp8", "sequence_parallel", "expected"),
    [(False, True, 15_020), (False, False, 19_020), (True, True, 12_920), (True, False, 15_920)],
)
def test_a_transformer_engine_layer_keeps_each_named_tensor(fp8: bool, sequence_parallel: bool, expected: int) -> None:
    kept = activations.transformer_engine_layer(
        **LAYER, tensor_parallel_size=2, sequence_parallel=sequence_parallel, fp8=fp8
    )

    assert expected == kept


def test_experts_in_a_loop_hold_mask_router_and_their_share() -> None:
    # 5 x 2 x 100 + 8 x 8 x 2 + (2 + 4) x 8 + 2 x (2 x 100 + 3 x 40) x 2 / 8
    assert 1000 + 128 + 48 + 160 == generate.experts_loop(
        hidden_size=100, num_experts=8, experts_per_token=2, expert_intermediate_size=40, element_bytes=2
    )


@pytest.mark.parametrize(("width", "expected"), [(40, 800 + 2400), (400, 800 + 6800)])
def test_grouped_experts_hold_rows_or_their_weighted_sum_whichever_is_larger(width: int, expected: int) -> None:
    # 4 x 2 x 100; combine: 2 x 100 x 2 x (2 + 4); inside: 2 x 2 x (100 + 4 x width)
    assert expected == generate.experts_grouped(
        hidden_size=100, experts_per_token=2, expert_intermediate_size=width, weight_bytes=4, element_bytes=2
    )


def test_eager_scores_hold_every_head_and_the_mask() -> None:
    assert 3 * 5 * 7 * (4 * 8 + 2) == generate.eager_scores(
        num_attention_heads=4, tokens=5, keys=7, batch_size=3, per_score_bytes=8
    )


@pytest.mark.parametrize(
    ("law", "given", "expected"),
    [
        (loss.full_eager, {"logit_bytes": 2}, (14, 8, 14, 4)),
        (loss.full_compiled, {"logit_bytes": 2, "online": False}, (12, 6, 12, 2)),
        (loss.full_compiled, {"logit_bytes": 2, "online": True}, (6, 2, 6, 2)),
        (loss.vocab_parallel, {"logit_bytes": 2}, (6, 4, 6, 2)),
        (loss.loss_parallel, {"logit_bytes": 2}, (14, 8, 16, 4)),
        (loss.causal_shifted, {"logit_bytes": 2, "sequences": 1, "caller_keeps": False}, (8, 4, 12, 4)),
        (loss.causal_shifted, {"logit_bytes": 2, "sequences": 2, "caller_keeps": False}, (12, 4, 12, 4)),
        (loss.causal_shifted, {"logit_bytes": 2, "sequences": 2, "caller_keeps": True}, (14, 4, 12, 4)),
        (loss.causal_shifted, {"logit_bytes": 4, "sequences": 1, "caller_keeps": True}, (8, 4, 12, 4)),
        (loss.causal_held, {"logit_bytes": 2}, (8, 8, 16, 4)),
        (loss.causal_held, {"logit_bytes": 6}, (10, 8, 16, 4)),
    ],
)
def test_bytes_per_logit_of_each_loss(
    law: Callable[..., tuple[float, ...]], given: dict[str, int], expected: tuple[float, ...]
) -> None:
    assert expected == law(**given)


@pytest.mark.parametrize(
    ("forward", "kept", "expected"),
    [(8, 4, 10), (5, 4, 8), (6, 4, 10), (20, 4, 20)],
)
def test_mixed_precision_copies_the_logits_of_the_output_once_more(forward: int, kept: int, expected: int) -> None:
    assert (expected, kept, 12, 4) == loss.mixed_precision_outputs(path=(forward, kept, 12, 4))


@pytest.mark.parametrize(
    ("head_trains", "tokens", "expected"),
    # 3 chunks of ceil(tokens / 3) rows of 250 logits in 2 + 4 bytes, gradients of tokens x 100 x 2, head 250 x 100 x 2
    [(False, 30, 15_000 + 6000), (True, 30, 15_000 + 6000 + 50_000), (False, 31, 16_500 + 6200)],
)
def test_a_fused_head_holds_one_chunk_and_its_gradients(head_trains: bool, tokens: int, expected: int) -> None:
    assert expected == loss.fused_head(
        vocab_size=250, hidden_size=100, tokens=tokens, head_trains=head_trains, element_bytes=2
    )


def test_blockwise_states_of_a_matrix_at_the_limit_are_quantized_and_smaller_ones_are_not() -> None:
    def states(rows: int, copies: int = 1) -> int:
        return optimizer.blockwise_states(
            shapes=[(rows, 64, copies)], states=2, state_bytes=1, block_size=256, minimum_elements=4096
        )

    assert 2 * (4096 + 4 * 16) == states(64)
    assert 4 * 2 * 63 * 64 == states(63)
    assert 3 * states(63) == states(63, copies=3)
    assert 3 * states(64) == states(64, copies=3)


def test_no_states_are_no_bytes() -> None:
    assert 0 == optimizer.no_states(shapes=[(3, 4, 1)], rest=[(5, 1, 1)])


def test_muon_leaves_vectors_and_the_rest_to_adamw() -> None:
    # matrices 3 x 4 with one state, a vector of 5 and an embedding of 7 x 2 with two
    assert 4 * (12 + 2 * (5 + 14)) == optimizer.momentum_and_adamw_states(
        shapes=[(3, 4, 1), (5, 1, 1)], rest=[(7, 2, 1)], states=1, state_bytes=4
    )


def test_prefetch_takes_nine_tenths_of_a_square_in_16_bit() -> None:
    assert 2 * 900_000 == training_sharding.zero3_prefetch(hidden_size=1000, automatic=True)


def test_sglang_captures_the_batch_sizes_of_its_source() -> None:
    sizes = static_fraction.decode_capture_sizes(largest=600)

    assert (1, 2, 4, 8, 12, 16, 24, 32, 40) == sizes[:9]
    assert {248, 256, 272, 288, 496, 512, 544, 576, 600} < set(sizes)
    assert {264, 504, 528, 560, 608}.isdisjoint(sizes)
    assert (1, 2, 4, 8) == static_fraction.decode_capture_sizes(largest=8)
    assert (512, 544) == static_fraction.decode_capture_sizes(largest=544)[-2:]


def test_sglang_captures_the_prefill_sizes_of_its_source() -> None:
    sizes = static_fraction.prefill_capture_sizes(largest=8192)

    assert (4, 8, 12, 16, 20, 24, 28, 32, 48, 64) == sizes[:10]
    assert {240, 256, 288, 320, 480, 512, 576, 640, 960, 1024, 1280, 1536, 3840, 4096, 4608, 5120, 7680, 8192} < set(
        sizes
    )
    assert 8 + 14 + 8 + 8 + 12 + 8 == len(sizes)
    assert 4608 == static_fraction.prefill_capture_sizes(largest=4608)[-1]


def test_host_and_output_buffers_of_llama_cpp_hold_each_part() -> None:
    assert 4 * 3 * (100 + 7) == llama_cpp_graph.output_buffer(slots=3, vocab_size=100, hidden_size=7)
    assert 5 * (2 * 4 * 100 + 11 + 13 + 4) == llama_cpp_graph.host_buffer(
        tokens=5, hidden_size=100, mask_bytes=11, index_bytes=13, copies=2
    )


def test_vllm_captures_the_batch_sizes_of_its_source() -> None:
    assert (1, 2, 4, 8, 16) == cuda_graphs.capture_sizes(largest=16, step_above_256=16)
    assert (1,) == cuda_graphs.capture_sizes(largest=1, step_above_256=16)
    assert (240, 248, 256, 272, 288) == cuda_graphs.capture_sizes(largest=288, step_above_256=16)[-5:]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 4)), (4, (1, 2, 4)), (5, (1, 2, 4, 8)), (8, (1, 2, 4, 8))],
)
def test_the_v0_engine_captures_up_to_the_requests_rounded_up(requests: int, expected: tuple[int, ...]) -> None:
    assert expected == cuda_graphs.decode_capture_sizes(max_num_seqs=requests)


def test_the_workspace_of_fused_all_reduce_is_four_limits_per_rank() -> None:
    assert 4 * 2 * 64 * 2**20 == runtime.fusion_workspace(tensor_parallel_size=2, major=9, granular=False)
    assert 3 * 512 * 2**20 == runtime.fusion_workspace(tensor_parallel_size=2, major=9, granular=True)
    assert 0 == runtime.fusion_workspace(tensor_parallel_size=3, major=9, granular=True)


def test_the_request_table_has_a_row_per_request_and_its_extra_columns() -> None:
    assert 3 * (100 + 4) * 4 == runtime.request_table(requests=3, max_model_len=100)


def test_a_mask_has_an_element_per_query_and_key_of_every_sequence() -> None:
    assert 3 * 5 * 7 * 2 == generate.window_mask(batch_size=3, tokens=5, keys=7, element_bytes=2)


def test_the_delta_rule_holds_seven_copies_two_chunk_matrices_and_the_stream() -> None:
    # 4 x (7 x 4 x (3 + 5) + 2 x 4 x 64) + 4 x 2 x 3 + 6 x 10
    assert 4 * (224 + 512) + 24 + 60 == generate.delta_rule(
        hidden_size=10, num_value_heads=4, value_head_dim=5, num_key_heads=2, key_head_dim=3, chunk=64
    )


@pytest.mark.parametrize(("layers", "expected"), [(24, 1.0), (36, 0.95), (12, 1.05), (240, 0.8)])
def test_a_larger_vision_tower_leaves_less_to_the_static_part(layers: int, expected: float) -> None:
    assert expected == pytest.approx(static_fraction.vision_tower(factor=1.0, layers=layers, hidden_size=1024))


@pytest.mark.parametrize(
    ("budget", "limit", "max_model_len", "expected"),
    [(100, 10, 1000, 5), (1000, 2, 1000, 6), (1000, 9, 40, 6), (5, 9, 5, 1)],
)
def test_one_encoder_batch_holds_what_budget_and_prompts_allow(
    budget: int, limit: int, max_model_len: int, expected: int
) -> None:
    assert expected == vision_encoder.items(
        budget=budget, tokens_per_item=20, max_num_seqs=3, limit=limit, max_model_len=max_model_len
    )


def test_slots_of_tensorrt_llm_hold_fp32_rows_over_the_vocabulary() -> None:
    assert 10 * 7 * 4 * 19 // 10 == tensorrt_llm.slot_rows(rows=1.9, max_batch_size=10, vocab_size=7)


@pytest.mark.parametrize(("window", "expected"), [(17, 3), (18, 4)])
def test_the_last_token_of_a_window_is_the_one_in_flight(window: int, expected: int) -> None:
    found = kv_blocks.sliding_window_blocks(tokens=1000, window=window, in_flight_tokens=16, block_size=16)

    assert expected == found


@pytest.mark.parametrize(("heads", "repeated", "expected"), [(2, True, 24), (1, True, 5), (2, False, 5)])
def test_two_query_heads_of_a_key_head_repeat_it(heads: int, repeated: bool, expected: int) -> None:
    found = generate.decode_step(key_bytes=5, value_bytes=7, heads_per_kv_head=heads, repeated=repeated)

    assert expected == found


@pytest.mark.parametrize(("gated", "expected"), [(False, 4 * (10 + 6)), (True, 4 * (10 + 9))])
def test_a_towers_feed_forward_stands_beside_stream_and_residual(gated: bool, expected: int) -> None:
    found = vision_encoder.tower_mlp(patches=2, hidden_size=5, width=3, gated=gated, element_bytes=2)

    assert expected == found
