"""Caches and graphs of llama.cpp for layers small enough to count by hand."""

import pytest
from msgspec.structs import replace
from stock import KV_FORMATS

from tonnage.estimate import caches
from tonnage.estimate.serving import llama_cpp_buffers as buffers
from tonnage.laws import llama_cpp_graph
from tonnage.spec.model import Attention, Layer, LayerGroup, Mlp, Model, Moe, Recurrent

F16 = next(f for f in KV_FORMATS.values() if f.block_elements == 1 and f.row_bytes(32) == 64)
Q8 = next(f for f in KV_FORMATS.values() if f.block_elements == 32 and f.row_bytes(32) == 34)
ATTENTION = Attention(kind="full", num_attention_heads=4, num_key_value_heads=2, head_dim=16, v_head_dim=48)
SLIDING = replace(ATTENTION, kind="sliding", window=512)
LATENT = Attention(
    kind="mla", num_attention_heads=4, num_key_value_heads=4, head_dim=32, v_head_dim=16, kv_lora_rank=96,
    qk_rope_head_dim=32, qk_nope_head_dim=10,
)  # fmt: skip
MAMBA = Recurrent(
    kind="mamba1", conv_channels=6, conv_kernel=4, state_heads=3, state_rows=6, state_columns=5, inner_size=6
)
LAYER = Layer(attention=ATTENTION, mlp=Mlp(intermediate_size=100, gated=True))


def shape(**more):
    usual = {
        "context_tokens": 2000, "slots": 1, "unified": False, "micro_batch": 64, "flash_attention": True, "swa_full": False,
        "draft_tokens": 0, "padding": 256, "latent_cache": True, "sliding_cache": True, "separate_f32_mask": False,
        "value_indices": True, "every_token": False,
    }  # fmt: skip
    return buffers.shape_of(**usual | more)


def model(*layers, **more):
    groups, at = [], 0
    for layer, count in layers:
        groups.append(LayerGroup(layer, tuple(range(at, at + count))))
        at += count
    return Model(parameters_total=1, hidden_size=64, vocab_size=50, layers=tuple(groups), **more)


def cached(*layers, k=F16, v=F16, at=None, **more):
    made = model(*layers)
    held = at or (0, made.num_hidden_layers)
    return buffers.cache(made, k=k, v=v, shape=shape(**more), layers=held)


def graphed(*layers, with_output=False, quantized=False, at=None, **more):
    made = model(*layers)
    held = at or (0, made.num_hidden_layers)
    return buffers.graph(made, shape=shape(**more), quantized_cache=quantized, layers=held, with_output=with_output)


# ---- shapes ----


@pytest.mark.parametrize(
    ("slots", "unified", "cells", "streams"), [(1, False, 2048, 1), (4, False, 512, 4), (4, True, 2048, 1)]
)
def test_slots_share_the_context_unless_the_cache_is_one(slots, unified, cells, streams):
    found = shape(slots=slots, unified=unified)

    assert (cells, streams) == (found.cells, found.streams)


def test_a_micro_batch_is_no_longer_than_all_streams():
    assert 64 == shape().tokens
    assert 2048 == shape(micro_batch=5000).tokens
    assert 2048 == shape(micro_batch=5000, slots=4).tokens


def test_a_sliding_layer_has_cells_for_its_window_and_a_micro_batch():
    assert (2048, 768) == (buffers.layer_cells(ATTENTION, shape()), buffers.layer_cells(SLIDING, shape()))
    assert 2048 == buffers.layer_cells(SLIDING, shape(swa_full=True))
    assert 2048 == buffers.layer_cells(SLIDING, shape(sliding_cache=False))


# ---- rows ----


def test_rows_of_keys_and_values_are_those_of_their_types():
    assert (2 * 16 * 2, 2 * 48 * 2) == buffers.rows(ATTENTION, F16, F16, False)
    assert (34, 3 * 34) == buffers.rows(ATTENTION, Q8, Q8, False)
    assert (64, 3 * 34) == buffers.rows(ATTENTION, F16, Q8, True)


@pytest.mark.parametrize("change", [{"kv_shared": True}, {"kind": "encoder"}, {"kind": "cross"}])
def test_layers_that_read_others_have_no_rows(change):
    assert (0, 0) == buffers.rows(replace(ATTENTION, **change), F16, F16, True)


def test_a_latent_cache_holds_the_latent_and_the_indexers_key_else_all_heads():
    assert (2 * (96 + 32), 0) == buffers.rows(LATENT, F16, F16, True)
    assert (4 * (34), 0) == buffers.rows(LATENT, Q8, Q8, True)
    assert (256 + 2 * 7, 0) == buffers.rows(replace(LATENT, index_head_dim=7), F16, F16, True)
    assert (2 * 4 * 32, 2 * 4 * 16) == buffers.rows(LATENT, F16, F16, False)
    bare = replace(LATENT, kv_lora_rank=None, qk_rope_head_dim=None)
    assert (0, 0) == buffers.rows(bare, F16, F16, True)


def test_a_model_with_an_indexer_never_had_an_expanded_cache():
    assert buffers.was_cached_expanded(model((LAYER, 1), (Layer(recurrent=MAMBA), 1)))
    indexed = Layer(attention=replace(LATENT, index_head_dim=7))
    assert not buffers.was_cached_expanded(model((LAYER, 1), (indexed, 1)))


# ---- caches ----


def test_the_cache_of_layers_is_cells_by_rows():
    found = cached((LAYER, 3), (Layer(attention=SLIDING), 2))

    assert 3 * 2048 * 256 + 2 * 768 * 256 == found.keys_and_values
    assert (0, 0) == (found.recurrent, found.staging)


def test_every_stream_has_cells_of_its_own():
    assert 3 * 4 * 512 * 256 == cached((LAYER, 3), slots=4).keys_and_values


def test_a_device_holds_its_range_of_layers_or_nothing():
    layers = (LAYER, 3), (Layer(attention=SLIDING), 2)

    assert 2048 * 256 + 768 * 256 == cached(*layers, at=(2, 4)).keys_and_values
    assert 0 == cached(*layers, at=(2, 2)).keys_and_values
    assert [3, 2] == [count for _, count in buffers.held(model(*layers), (0, 5))]
    assert [2, 2] == [count for _, count in buffers.held(model(*layers), (1, 5))]
    assert () == buffers.held(model(*layers), (3, 3))


def test_a_quantized_cache_is_unpacked_for_the_largest_layer_under_flash_attention():
    narrow = replace(ATTENTION, num_key_value_heads=1)
    expected = 2048 * 2 * (16 + 48) * 2

    for k, v in ((Q8, Q8), (Q8, F16), (F16, Q8)):
        assert expected == cached((LAYER, 2), (Layer(attention=narrow), 1), k=k, v=v).staging
    assert 0 == cached((LAYER, 2), k=Q8, v=Q8, flash_attention=False).staging
    assert 0 == cached((LAYER, 2)).staging
    assert expected == cached((LAYER, 2), k=Q8, v=Q8, slots=4).staging
    assert 0 == cached((Layer(attention=replace(ATTENTION, kv_shared=True)), 1), k=Q8, v=Q8).staging


def test_an_unpacked_latent_is_one_head_of_the_latent():
    assert 2048 * (96 + 32) * 2 == cached((Layer(attention=LATENT), 1), k=Q8, v=Q8).staging
    bare = replace(LATENT, kv_lora_rank=None)
    assert 2048 * 32 * 2 == cached((Layer(attention=bare), 1), k=Q8, v=Q8).staging
    bare = replace(LATENT, qk_rope_head_dim=None)
    assert 2048 * 96 * 2 == cached((Layer(attention=bare), 1), k=Q8, v=Q8).staging


def test_states_are_kept_in_fp32_for_every_slot_and_drafted_token():
    state = caches.layer_state_bytes(MAMBA, conv_bytes=4, state_bytes=4)
    found = cached((Layer(recurrent=MAMBA), 3), slots=2, draft_tokens=4)

    assert (0, 3 * state * 2 * 5) == (found.keys_and_values, found.recurrent)


# ---- graphs ----

MASK, INDICES = 2 * 2048, 36
FEED = 3 * 100 + 2 * 64
KEPT = 4 * 48
"""Attention output, wider than the stream, that stays beside the feed-forward. [elements]"""


def staged(elements, *, inputs=MASK + INDICES, state=0):
    return 64 * (inputs + 4 * elements) + state


def test_a_layer_is_widest_at_its_feed_forward():
    found = graphed((LAYER, 2))

    assert (staged(FEED + KEPT), 0, "feed_forward") == (found.activations, found.logits, found.law)
    assert (64 * (MASK + INDICES), 2 * 4 * 64 * 64, True) == (found.inputs, found.hidden, found.plain)
    assert found.activations == found.total


def test_the_widest_layer_decides():
    wide = replace(LAYER, mlp=Mlp(intermediate_size=200, gated=True))

    assert staged(FEED + 300 + KEPT) == graphed((LAYER, 2), (wide, 1)).activations
    assert staged(FEED + KEPT) == graphed((LAYER, 2), (wide, 1), at=(0, 2)).activations


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"mlp": Mlp(intermediate_size=300, gated=False)}, 300 + 2 * 64 + KEPT),
        ({"mlp": Mlp(intermediate_size=150, gated=True, fused_gate_up=True)}, FEED + 150),
        ({"attention": replace(ATTENTION, output_gate=True)}, 3 * 100 + 64 + KEPT),
    ],
)
def test_what_stands_beside_the_feed_forward(change, expected):
    assert staged(expected) == graphed((replace(LAYER, **change), 1)).activations


def test_an_attention_output_as_wide_as_the_stream_is_reused_unless_something_keeps_it():
    fitting = replace(LAYER, attention=replace(ATTENTION, v_head_dim=16))

    assert staged(FEED) == graphed((fitting, 1), quantized=True).activations
    assert staged(FEED + 64) == graphed((fitting, 1)).activations
    for keeps in ({"post_norm": True}, {"parallel": True}):
        assert staged(FEED + 64) == graphed((replace(fitting, **keeps), 1), quantized=True).activations
    assert staged(FEED + KEPT) == graphed((LAYER, 1), quantized=True).activations


def test_a_layer_without_attention_keeps_no_output_of_it():
    bare = replace(LAYER, attention=None)

    assert (staged(FEED, inputs=INDICES), True) == (graphed((bare, 1)).activations, graphed((bare, 1)).plain)


def test_experts_are_a_stage_of_their_own():
    moe = Moe(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=150)
    found = graphed((replace(LAYER, mlp=None, moe=moe), 1))

    width = llama_cpp_graph.experts(
        hidden_size=64, experts_per_token=2, expert_intermediate_size=150, attention_width=KEPT, hidden_rows=2
    )
    assert (staged(width), "experts") == (found.activations, found.law)


def test_attention_alone_is_a_stage_whose_scores_flash_attention_never_writes():
    alone = Layer(attention=ATTENTION)
    written = graphed((alone, 1), flash_attention=False)
    inputs = 2 * MASK + INDICES + 8 * 2 * 48

    def width(cells, *, gated=False):
        return llama_cpp_graph.attention(
            hidden_size=64, attention_width=KEPT, score_cells=cells, num_attention_heads=4, gated=gated
        )

    assert (staged(width(2048), inputs=inputs), "attention") == (written.activations, written.law)
    assert staged(width(0)) == graphed((alone, 1)).activations
    assert (
        staged(width(2048), inputs=2 * MASK + INDICES)
        == graphed((alone, 1), flash_attention=False, value_indices=False).activations
    )
    gated = Layer(attention=replace(ATTENTION, output_gate=True))
    assert staged(width(0, gated=True)) == graphed((gated, 1)).activations


def test_latent_attention_has_a_stage_of_its_own():
    written = graphed((Layer(attention=LATENT), 1), flash_attention=False)
    width = 3 * 64 + 4 * (10 + 32 + 2 * (96 + 32) + 2048)

    assert (staged(width, inputs=2 * MASK + INDICES), False) == (written.activations, written.plain)
    assert staged(width - 4 * 2048) == graphed((Layer(attention=LATENT), 1)).activations
    bare = replace(LATENT, qk_rope_head_dim=None, qk_nope_head_dim=None, kv_lora_rank=None)
    assert staged(3 * 64) == graphed((Layer(attention=bare), 1)).activations


def test_each_kind_of_cache_has_a_mask():
    sliding = Layer(attention=SLIDING, mlp=LAYER.mlp)

    assert 64 * (INDICES + MASK + 2 * 768) == graphed((LAYER, 1), (sliding, 1)).inputs
    assert 64 * (INDICES + MASK) == graphed((LAYER, 1), (sliding, 1), swa_full=True).inputs
    assert 64 * (INDICES + 3 * MASK) == graphed((LAYER, 1), separate_f32_mask=True).inputs


def test_a_scan_holds_the_states_of_every_slot():
    state = caches.layer_state_bytes(MAMBA, conv_bytes=4, state_bytes=4)
    found = graphed((Layer(recurrent=MAMBA), 1), slots=2)

    assert (staged((6 + 6 + 3) + 2 * 6 + 3 * 6, inputs=INDICES, state=2 * state), "selective_scan") == (
        found.activations,
        found.law,
    )
    assert not found.plain


def test_a_recurrence_without_a_scan_is_no_stage_but_keeps_its_output():
    linear = replace(MAMBA, kind="short_conv")

    assert staged(0, inputs=INDICES) == graphed((Layer(recurrent=linear), 1)).activations
    fed = Layer(recurrent=replace(linear, inner_size=500), mlp=LAYER.mlp)
    assert staged(3 * 100 + 64 + 500, inputs=INDICES) == graphed((fed, 1)).activations
    both = replace(fed, attention=ATTENTION)
    assert staged(3 * 100 + 64 + 500) == graphed((both, 1)).activations


# ---- output ----


def test_a_layer_larger_than_the_output_decides():
    found = graphed((LAYER, 1), with_output=True)

    assert (staged(FEED + KEPT), 0, "feed_forward") == (found.activations, found.logits, found.law)


def test_the_output_stage_is_split_into_logits_and_stream():
    empty = Layer()
    found = graphed((empty, 1), with_output=True, every_token=True)

    assert ("output_stage", 4 * 64 * 50, 4 * 64 * 64) == (found.law, found.logits, found.activations)
    assert 4 * 64 * 114 == found.total
    assert (0, "layer_stage") == (graphed((empty, 1)).logits, graphed((empty, 1)).law)


def test_without_every_token_each_slot_and_its_draft_have_a_row():
    empty = Layer()
    found = graphed((empty, 1), with_output=True, slots=9, draft_tokens=6)

    assert 4 * 63 * 50 == found.logits
