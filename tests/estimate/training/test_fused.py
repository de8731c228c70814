"""The closed forms of steps with fused, compiled or selectively checkpointed layers, by hand for one small layer."""

import pytest
from msgspec.structs import replace

from tonnage.estimate.training import fused
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.tape import ZERO, gradient, per_logit_token, per_token, plus
from tonnage.spec.model import Attention, Layer, LayerGroup, Mlp, Model, Moe, Tensor

# h = 8, query width 12, key width 6, feed-forward 20, 4 heads, vocabulary 40
ATTENTION = Attention(kind="full", num_attention_heads=4, num_key_value_heads=2, head_dim=3, v_head_dim=3)
TENSORS = (
    Tensor(name="q", component="attention", out_features=12, in_features=8, role="q", linear=True),
    Tensor(name="down", component="mlp", out_features=8, in_features=20, role="down", linear=True),
    Tensor(name="norm", component="norms", out_features=8, role="norm"),
    Tensor(name="q2", component="norms", out_features=5, role="q"),
)
LAYER = Layer(attention=ATTENTION, mlp=Mlp(intermediate_size=20, gated=True), tensors=TENSORS)
MODEL = Model(parameters_total=1000, hidden_size=8, vocab_size=40, layers=(LayerGroup(LAYER, (0, 1, 2)),))
MOE = Moe(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=7, shared_intermediate_size=3)
ROUTED = replace(LAYER, mlp=None, moe=MOE)
EAGER = 16 * 8 + 4 * 12 + 4 * 6 + 8 * 20 + 4 * 4 - 8 * 8
COMPILED = 8 * 8 + 4 * 12 + 4 * 6 + 6 * 20 + 4 * 4
SELECTIVE = 4 * 8 + 4 * 12 + 2 * 6 + 2 * 20 + 4 * 4
ABOVE = 2 * 8 + 4 * 20
"""The gradient of the output and the two of the product, on top of what a layer keeps. [bytes per token]"""


def recipe(**more):
    return Recipe(**{"trains": True, "weight_bytes": 2, "norm_bytes": 2} | more)


# ---- sizes of a layer ----


@pytest.mark.parametrize(("size", "cut", "expected"), [(1, False, 16), (2, False, 16), (2, True, 8)])
def test_the_stream_is_cut_by_sequence_parallelism_only(size, cut, expected):
    assert expected == fused._stream(MODEL, recipe(tensor_parallel_size=size, sequence_parallel=cut))


def test_dimensions_are_those_of_the_attention_and_of_expanded_keys():
    expected = {
        "hidden_size": 8, "query_width": 12, "key_value_width": 6, "intermediate_size": 20, "num_attention_heads": 4,
    }  # fmt: skip

    assert expected == fused._dimensions(LAYER, MODEL, False)
    assert expected | {"key_value_width": 12} == fused._dimensions(LAYER, MODEL, True)


def test_a_layer_without_attention_has_no_heads():
    found = fused._dimensions(replace(LAYER, attention=None), MODEL, True)

    assert (0, 0, 0) == (found["query_width"], found["key_value_width"], found["num_attention_heads"])


def test_routed_experts_count_as_often_as_a_token_visits_them():
    assert (20, 2 * 7 + 3, 0) == (fused._inner(LAYER), fused._inner(ROUTED), fused._inner(replace(LAYER, mlp=None)))


# ---- what a layer keeps ----


def test_an_eager_layer_with_fused_norms_keeps_less_than_one_without():
    assert EAGER == fused.whole_layer(LAYER, MODEL, recipe())


def test_a_compiled_layer_keeps_its_own_form_and_less_without_a_gate():
    ungated = replace(LAYER, mlp=Mlp(intermediate_size=20, gated=False))

    assert COMPILED == fused.whole_layer(LAYER, MODEL, recipe(compiled=True))
    assert COMPILED - 2 * 20 == fused.whole_layer(ungated, MODEL, recipe(compiled=True))


@pytest.mark.parametrize("kind", ["head", "full"])
def test_norms_of_queries_and_keys_keep_both(kind):
    normed = replace(LAYER, attention=replace(ATTENTION, qk_norm=kind))

    assert EAGER + 2 * (12 + 6) == fused.whole_layer(normed, MODEL, recipe())


def test_a_layer_without_attention_keeps_no_norms_of_it():
    bare = replace(LAYER, attention=None)

    assert EAGER - 4 * 12 - 4 * 6 - 4 * 4 == fused.whole_layer(bare, MODEL, recipe())


def test_megatrons_layer_is_cut_by_tensor_parallelism():
    inner = 4 * 12 + 4 * 6 + 6 * 20 + 4 * 4

    assert 64 + inner == fused.whole_layer(LAYER, MODEL, recipe(code="megatron"))
    assert 64 + inner // 2 == fused.whole_layer(LAYER, MODEL, recipe(code="megatron", tensor_parallel_size=2))
    assert (64 + inner) // 2 == fused.whole_layer(
        LAYER, MODEL, recipe(code="megatron", tensor_parallel_size=2, sequence_parallel=True)
    )


def test_megatrons_layer_in_fp8_keeps_inputs_in_a_byte():
    expected = 6 * 8 + 5 * 12 + 4 * 6 + 5 * 20 + 4 * 4

    assert expected == fused.whole_layer(LAYER, MODEL, recipe(code="megatron", fp8=True))


def test_routing_keeps_rows_and_scores():
    assert 0 == fused._routing(LAYER, MODEL, recipe())
    assert 4 * 2 * 8 + 6 * 5 == fused._routing(ROUTED, MODEL, recipe())
    assert 2 * 2 * 8 + 9 * 5 == fused._routing(ROUTED, MODEL, recipe(code="megatron"))


def test_a_routed_layer_keeps_its_routing_as_well():
    routed = EAGER - 8 * 20 + 8 * 17

    assert routed + 4 * 2 * 8 + 6 * 5 == fused.whole_layer(ROUTED, MODEL, recipe())
    megatron = 64 + 4 * 12 + 4 * 6 + 6 * 17 + 4 * 4
    assert megatron + 2 * 2 * 8 + 9 * 5 == fused.whole_layer(ROUTED, MODEL, recipe(code="megatron"))


@pytest.mark.parametrize(
    ("size", "cut", "expected"), [(1, False, 312), (2, False, 64 + 248 // 2), (2, True, 312 // 2), (5, False, 64 + 49)]
)
def test_without_sequence_parallelism_norms_and_stream_stay_whole(size, cut, expected):
    assert expected == fused._divided(312, 8, recipe(tensor_parallel_size=size, sequence_parallel=cut))


def test_adapters_keep_a_byte_of_mask_for_each_distinct_input():
    adapted = {"trains": False, "adapted": frozenset({"q", "down"}), "dropout": True}

    assert 8 + 20 == fused._adapters(LAYER, recipe(**adapted))
    assert 8 == fused._adapters(LAYER, recipe(**adapted | {"adapted": frozenset({"q"})}))
    assert 0 == fused._adapters(LAYER, recipe(**adapted | {"dropout": False}))
    assert 0 == fused._adapters(LAYER, recipe(**adapted | {"trains": True}))
    assert 0 == fused._adapters(LAYER, recipe(trains=False, dropout=True))


def test_what_adapters_keep_belongs_to_the_layer():
    adapted = recipe(trains=False, adapted=frozenset({"down"}), dropout=True)

    assert EAGER + 20 == fused.whole_layer(LAYER, MODEL, adapted)


def test_selective_checkpointing_keeps_every_second_product():
    assert SELECTIVE == fused.selective_layer(LAYER, MODEL, recipe())
    assert SELECTIVE - 2 * 8 == fused.selective_layer(LAYER, MODEL, recipe(every_second=False))
    assert SELECTIVE + 2 * 6 == fused.selective_layer(LAYER, MODEL, recipe(expands_keys=True))
    assert 64 + (SELECTIVE - 64) // 2 == fused.selective_layer(LAYER, MODEL, recipe(tensor_parallel_size=2))


def test_megatrons_selective_checkpointing_saves_the_statistics_of_softmax():
    whole = 64 + 4 * 12 + 4 * 6 + 6 * 20 + 4 * 4

    assert whole - 16 == fused.selective_layer(LAYER, MODEL, recipe(code="megatron"))
    assert 64 + 104 - 8 == fused.selective_layer(LAYER, MODEL, recipe(code="megatron", tensor_parallel_size=2))


# ---- gradients of a layer ----


def test_a_layer_that_trains_has_a_gradient_for_each_of_its_elements():
    elements = 12 * 8 + 8 * 20 + 8 + 5

    assert 2 * elements == fused._gradient_bytes(LAYER, recipe())
    assert 4 * (elements // 2) == fused._gradient_bytes(LAYER, recipe(gradient_bytes=4, tensor_parallel_size=2))


def test_a_frozen_layer_has_gradients_for_its_adapters_only():
    adapted = recipe(trains=False, adapted=frozenset({"q"}), rank=3, adapter_bytes=4)

    assert 4 * 3 * (8 + 12) == fused._gradient_bytes(LAYER, adapted)


# ---- a layer's part of the step ----


def test_without_checkpointing_a_layer_keeps_all_and_goes_a_little_higher():
    grads = gradient(2 * 269)

    assert (per_token(EAGER), per_token(ABOVE), grads) == fused._layer(LAYER, MODEL, recipe(checkpointing="none"))


@pytest.mark.parametrize("kind", ["full", "reentrant"])
def test_with_checkpointing_a_layer_keeps_its_input(kind):
    kept, top, _ = fused._layer(LAYER, MODEL, recipe(checkpointing=kind))

    assert (per_token(16), per_token(EAGER + ABOVE)) == (kept, top)


def test_selective_checkpointing_recomputes_the_rest():
    kept, top, _ = fused._layer(LAYER, MODEL, recipe(checkpointing="selective"))

    assert (per_token(SELECTIVE), per_token(EAGER + ABOVE - SELECTIVE)) == (kept, top)


def test_the_top_of_a_layer_is_cut_like_the_layer():
    whole = 64 + (EAGER - 64) // 2
    _, top, _ = fused._layer(LAYER, MODEL, recipe(checkpointing="full", tensor_parallel_size=2))
    _, cut, _ = fused._layer(LAYER, MODEL, recipe(checkpointing="full", tensor_parallel_size=2, sequence_parallel=True))

    assert per_token(whole + 2 * 8 + 4 * 10) == top
    assert per_token(EAGER // 2 + 2 * 4 + 4 * 10) == cut


def test_backward_of_a_kept_layer_peaks_at_its_feed_forward_or_at_its_end():
    part = fused._backward(LAYER, MODEL, recipe(checkpointing="none"))
    grads = gradient(2 * 269)

    assert plus(per_token(-EAGER), grads) == part.net
    at_down = plus(per_token(ABOVE), gradient(2 * 20 * 8))
    at_end = plus(per_token(16 * 16 // 2 - EAGER), grads)
    assert (ZERO, at_down, at_end) == part.points


def test_backward_of_a_recomputed_layer_ends_with_its_input_still_there():
    part = fused._backward(LAYER, MODEL, recipe(checkpointing="full"))
    grads = gradient(2 * 269)

    assert plus(per_token(-16), grads) == part.net
    assert plus(per_token(128), grads) == part.points[2]


def test_the_gradient_of_the_last_matrix_is_no_more_than_all_of_the_layer():
    narrow = replace(LAYER, tensors=TENSORS[2:])
    part = fused._backward(narrow, MODEL, recipe(checkpointing="none"))

    assert gradient(2 * 13)[4] == part.points[1][4]


def test_the_gradient_of_the_last_matrix_is_cut_by_tensor_parallelism():
    part = fused._backward(LAYER, MODEL, recipe(checkpointing="none", tensor_parallel_size=2, gradient_bytes=4))

    assert 10 * 8 * 4 == part.points[1][4]


def test_backward_of_a_frozen_layer_has_all_gradients_of_its_adapters_at_its_height():
    adapted = recipe(trains=False, adapted=frozenset({"q"}), rank=3, checkpointing="none")

    assert gradient(4 * 3 * 20)[4] == fused._backward(LAYER, MODEL, adapted).points[1][4]


# ---- the end of the model ----

LOSS = (10.0, 4.0, 12.0, 4)
LOGITS = per_logit_token


def test_the_loss_and_the_head_are_highest_where_logits_turn_into_gradients():
    net, top, back = fused._tail(MODEL, recipe(loss=LOSS))
    norm, head = per_token(4 * 16), gradient(40 * 8 * 2)

    assert plus(norm, LOGITS(160)) == net
    assert plus(norm, LOGITS(400)) == top
    assert (LOGITS(320), LOGITS(80), plus(plus(LOGITS(-80), per_token(16)), head)) == back.points
    assert plus(plus(plus(per_token(-64), LOGITS(-160)), per_token(16)), head) == back.net


def test_a_gradient_that_flows_in_two_bytes_is_not_cast():
    _, _, back = fused._tail(MODEL, recipe(loss=(10.0, 4.0, 12.0, 2)))

    assert LOGITS(-160) == back.points[1]


@pytest.mark.parametrize("more", [{"compiled": True}, {"norm": "fused"}])
def test_a_norm_in_one_kernel_keeps_half(more):
    assert 2 * 16 == fused._tail(MODEL, recipe(loss=LOSS, **more))[0][1]


def test_tensor_parallelism_cuts_the_vocabulary_and_with_the_sequence_the_stream():
    cut = {"loss": LOSS, "tensor_parallel_size": 2}
    net, _, back = fused._tail(MODEL, recipe(**cut))
    gathered, top, _ = fused._tail(MODEL, recipe(**cut, sequence_parallel=True))

    assert (64, 80, 20 * 8 * 2) == (net[1], net[5], back.net[4])
    assert (4 * 8 + 2 * 8, 4 * 8 + 2 * 8) == (gathered[1], top[1])


def test_a_frozen_head_has_no_gradient_unless_it_is_trained_beside_adapters():
    frozen = fused._tail(MODEL, recipe(loss=LOSS, trains=False))[2]
    saved = fused._tail(MODEL, recipe(loss=LOSS, trains=False, saved_modules=frozenset({"head"})))[2]

    assert (0, 640) == (frozen.net[4], saved.net[4])


# ---- the whole step ----


def test_the_step_is_made_of_embedding_layers_and_tail():
    found = fused.fused_profile(MODEL, recipe(loss=LOSS, checkpointing="full"))

    assert (per_token(16), (per_token(16),)) == (found.embedding.net, found.embedding.points)
    assert [(per_token(16), (ZERO, per_token(32)))] == [(p.net, p.points) for p in found.forward]
    assert (found.tail.net, (found.tail.points)) == (
        plus(per_token(64), LOGITS(160)),
        (plus(per_token(64), LOGITS(400)),),
    )
    assert (3,) == found.counts
    assert [(ZERO, (ZERO,))] == [(p.net, p.points) for p in found.layer_leaving]
    assert (ZERO, (ZERO,)) == (found.leaving.net, found.leaving.points)
    assert [fused._backward(LAYER, MODEL, recipe(checkpointing="full"))] == list(found.backward)
    table = gradient(40 * 8 * 2)
    assert (table, (table,)) == (found.embedding_backward.net, found.embedding_backward.points)


def test_a_frozen_embedding_has_no_gradient_and_tensor_parallelism_cuts_it():
    frozen = fused.fused_profile(MODEL, recipe(loss=LOSS, trains=False)).embedding_backward
    cut = fused.fused_profile(MODEL, recipe(loss=LOSS, tensor_parallel_size=2)).embedding_backward

    assert ((ZERO, (ZERO,)), gradient(20 * 8 * 2)) == ((frozen.net, frozen.points), cut.net)
