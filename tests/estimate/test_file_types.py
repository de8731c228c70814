"""Types that llama.cpp gives the tensors of a file, table by table, on either side of every border."""

import pytest

from tonnage.estimate import file_types
from tonnage.estimate.file_types import Mix, block_elements, fitting_type, output_fits, tensor_type, use_more_bits


def mix(file_type, base="q4_k", **more):
    return Mix(
        **{"file_type": file_type, "base": base, "layers": 32, "value_tensors": 32, "experts": 0, "gqa": 1} | more
    )


def chosen(category, file_type, layer=10, before=10, *, stacked=False, **more):
    return tensor_type(mix(file_type, **more), category, layer, before, stacked=stacked)


# ---- which layers are raised ----


@pytest.mark.parametrize(
    ("layer", "raised"),
    [
        (0, True),
        (3, True),
        (4, False),
        (5, False),
        (6, True),
        (7, False),
        (9, True),
        (27, True),
        (28, True),
        (31, True),
        (25, False),
    ],
)
def test_the_first_and_last_eighth_and_every_third_between_are_raised(layer, raised):
    assert raised is use_more_bits(layer=layer, layers=32)


# ---- output and embedding ----


@pytest.mark.parametrize(
    ("file_type", "more", "expected"),
    [
        ("q4_k_m", {}, "q6_k"),
        ("q8_0", {"base": "q8_0"}, "q8_0"),
        ("q4_k_m", {"falcon": True}, "q8_0"),
        ("mxfp4", {}, "q8_0"),
        ("iq3_xxs", {}, "q5_k"),
        ("iq2_m", {}, "q5_k"),
        ("iq1_s", {}, "q5_k"),
        ("f16", {"base": "f16"}, "f16"),
    ],
)
def test_the_output_is_kept_finer_than_the_rest(file_type, more, expected):
    assert expected == chosen("output", file_type, **more)
    assert expected == chosen("token_embd", file_type, tied=True, **more)


@pytest.mark.parametrize(
    ("file_type", "expected"),
    [
        ("iq2_xxs", "q2_k"), ("iq2_xs", "q2_k"), ("iq1_s", "q2_k"), ("iq1_m", "q2_k"), ("iq2_s", "iq3_s"), ("iq2_m", "iq3_s"),
        ("iq3_xxs", "iq3_s"), ("tq1_0", "q4_k"), ("tq2_0", "q4_k"), ("q3_k_m", "base"),
    ],
)  # fmt: skip
def test_an_embedding_of_its_own_is_raised_below_three_bits(file_type, expected):
    assert expected == chosen("token_embd", file_type, base="base")


def test_mxfp4_is_for_experts_only():
    assert ("mxfp4", "q8_0") == (chosen("ffn_up", "mxfp4", stacked=True), chosen("ffn_up", "mxfp4"))


def test_other_tensors_have_the_base():
    assert "base" == chosen("other", "q4_k_m", base="base")
    assert "base" == chosen("attn_q", "iq2_m", base="base")


# ---- values ----


@pytest.mark.parametrize("category", ["attn_v", "attn_qkv", "attn_kv_b"])
@pytest.mark.parametrize(
    ("file_type", "before", "more", "expected"),
    [
        ("q4_k_m", 0, {}, "q6_k"),
        ("q4_k_m", 4, {}, "base"),
        ("q5_k_m", 6, {}, "q6_k"),
        ("q4_k_s", 3, {}, "q5_k"),
        ("q4_k_s", 4, {}, "base"),
        ("q3_k_m", 1, {}, "q5_k"),
        ("q3_k_m", 2, {}, "q4_k"),
        ("iq3_xxs", 9, {"gqa": 4}, "q4_k"),
        ("iq3_xxs", 9, {"gqa": 3, "imatrix": True}, "iq3_xxs"),
        ("iq3_xxs", 9, {}, "iq3_s"),
        ("q2_k", 9, {"gqa": 3}, "q3_k"),
        ("q2_k", 9, {"gqa": 4}, "q4_k"),
        ("q2_k_s", 9, {"gqa": 4}, "q4_k"),
        ("q2_k_s", 9, {}, "base"),
        ("iq3_m", 9, {}, "q4_k"),
        ("iq3_m", 9, {"gqa": 8}, "q4_k"),
        ("q3_k_l", 9, {}, "q5_k"),
        ("iq3_xs", 9, {"gqa": 4}, "q4_k"),
        ("iq3_s", 9, {"gqa": 4}, "q4_k"),
        ("iq4_nl", 9, {"gqa": 4}, "q5_k"),
        ("iq4_xs", 9, {"gqa": 4}, "q5_k"),
        ("iq4_xs", 9, {"gqa": 3}, "base"),
        ("q4_k_m", 0, {"experts": 8}, "q8_0"),
        ("q4_k_m", 0, {"experts": 7}, "q6_k"),
        ("iq2_m", 9, {"gqa": 4}, "q4_k"),
        ("iq2_m", 9, {"experts": 4}, "q4_k"),
        ("iq2_m", 9, {"gqa": 3, "experts": 3}, "iq3_s"),
        ("iq2_s", 9, {}, "iq3_s"),
        ("iq2_xs", 9, {}, "q2_k"),
    ],
)
def test_values_are_raised_by_file_type_place_and_shape(category, file_type, before, more, expected):
    assert expected == chosen(category, file_type, before=before, base="base", **more)


@pytest.mark.parametrize(("base", "expected"), [("q3_k", "q5_k"), ("q4_k", "q5_k"), ("q6_k", "q6_k")])
def test_values_of_a_70b_are_never_below_five_bits(base, expected):
    assert expected == chosen("attn_v", "q5_0", base=base, seventy=True)
    assert base == chosen("attn_v", "q5_0", base=base)


# ---- keys, queries, attention output ----


def test_keys_and_queries():
    for category in ("attn_k", "attn_q"):
        assert ("iq3_xxs", "iq2_s", "base") == tuple(
            chosen(category, t, base="base") for t in ("iq3_xs", "iq3_xxs", "q4_k_m")
        )
    assert ("q8_0", "base") == tuple(chosen("attn_k", "q4_k_m", base="base", experts=n) for n in (8, 7))
    assert ("q4_k", "base") == tuple(chosen("attn_k", "iq2_m", base="base", experts=n) for n in (8, 7))


@pytest.mark.parametrize(
    ("file_type", "more", "expected"),
    [
        ("q2_k", {}, "q3_k"), ("iq3_xxs", {}, "iq3_s"), ("q3_k_m", {}, "q4_k"), ("q3_k_l", {}, "q5_k"), ("iq3_m", {}, "q4_k"),
        ("q4_k_m", {}, "base"), ("q3_k_l", {"falcon": True}, "q4_k"), ("q3_k_m", {"falcon": True}, "base"),
        ("q2_k", {"experts": 8}, "q5_k"), ("q3_k_s", {"experts": 8}, "q5_k"), ("q3_k_m", {"experts": 8}, "q5_k"),
        ("q4_k_s", {"experts": 8}, "q5_k"), ("q4_k_m", {"experts": 8}, "q5_k"), ("q6_k", {"experts": 8}, "base"),
        ("q4_k_m", {"experts": 7}, "base"), ("iq1_s", {}, "iq2_xxs"), ("iq1_m", {}, "iq2_xxs"), ("iq2_s", {}, "iq3_s"),
        ("iq2_m", {}, "iq3_s"), ("iq2_xs", {}, "base"), ("iq2_xs", {"experts": 8}, "q5_k"),
    ],
)  # fmt: skip
def test_the_output_of_attention(file_type, more, expected):
    assert expected == chosen("attn_output", file_type, base="base", **more)


# ---- feed-forward ----


@pytest.mark.parametrize(("layer", "expected"), [(3, "base"), (4, "iq3_xxs"), (27, "iq3_xxs"), (28, "base")])
def test_gates_of_the_middle_layers_are_lowered_in_one_file_type(layer, expected):
    for category in ("ffn_up", "ffn_gate"):
        assert expected == chosen(category, "iq3_xs", before=layer, base="base")
        assert "base" == chosen(category, "q4_k_m", before=layer, base="base")


@pytest.mark.parametrize(
    ("file_type", "place", "more", "expected"),
    [
        ("q4_k_m", 0, {}, "q6_k"), ("q4_k_m", 4, {}, "base"), ("q5_k_m", 6, {}, "q6_k"), ("q3_k_m", 1, {}, "q5_k"),
        ("q3_k_m", 2, {}, "q4_k"), ("iq3_m", 3, {}, "q4_k"), ("iq3_m", 4, {}, "base"), ("iq3_m", 6, {"experts": 8}, "q4_k"),
        ("iq3_m", 7, {"experts": 8}, "base"), ("iq3_m", 6, {"experts": 7}, "base"), ("iq3_xxs", 3, {}, "q4_k"),
        ("iq3_xxs", 4, {}, "q3_k"), ("iq3_xxs", 4, {"imatrix": True}, "base"), ("q2_k", 9, {}, "q3_k"),
        ("q3_k_l", 9, {}, "q5_k"), ("q2_k_s", 3, {}, "q4_k"), ("q2_k_s", 4, {}, "base"), ("q4_k_s", 3, {}, "q5_k"),
        ("q4_k_s", 4, {}, "base"), ("iq4_nl", 3, {}, "q5_k"), ("iq4_xs", 3, {}, "q5_k"), ("iq4_xs", 3, {"imatrix": True}, "base"),
        ("q4_0", 3, {"imatrix": True}, "q4_1"), ("q5_0", 3, {"imatrix": True}, "q5_1"), ("q4_0", 3, {}, "base"),
        ("q4_0", 4, {"imatrix": True}, "base"), ("iq2_s", 3, {}, "iq3_s"), ("iq2_m", 3, {}, "iq3_s"), ("iq2_xs", 3, {}, "q2_k"),
        ("iq2_xs", 4, {}, "base"),
    ],
)  # fmt: skip
def test_down_projections_are_raised_by_place(file_type, place, more, expected):
    layer, before = (place, 31) if more.get("experts", 0) >= 2 else (31, place)
    if file_type == "iq3_m" and place == 7:
        layer, before = 7, 0

    assert expected == chosen("ffn_down", file_type, layer=layer, before=before, base="base", **more)


@pytest.mark.parametrize(
    ("file_type", "place", "expected"),
    [
        ("q4_k_m", 1, "q6_k"), ("q4_k_m", 3, "q5_k"), ("q4_k_m", 4, "q4_k"), ("q3_k_m", 1, "q5_k"), ("q3_k_m", 3, "q4_k"),
        ("q3_k_m", 4, "q3_k"), ("q3_k_l", 0, "q4_k"), ("q4_k_s", 0, "base"), ("q5_k_m", 0, "q6_k"),
    ],
)  # fmt: skip
def test_falcon_has_down_projections_of_its_own(file_type, place, expected):
    assert expected == chosen("ffn_down", file_type, before=place, base="base", falcon=True)


# ---- what is counted ----


def test_with_experts_the_layer_counts_and_without_them_the_tensors_before():
    assert "q6_k" == chosen("ffn_down", "q4_k_m", layer=0, before=4, base="base", experts=2)
    assert "base" == chosen("ffn_down", "q4_k_m", layer=0, before=4, base="base", experts=1)
    assert "base" == chosen("attn_v", "q4_k_m", layer=0, before=4, base="base", experts=2)
    assert "q2_k" == chosen("ffn_down", "iq2_xs", layer=31, before=0, base="base", experts=2)


# ---- blocks that divide ----


@pytest.mark.parametrize(("name", "expected"), [("q4_k", 256), ("q8_0", 32), ("f16", 1), ("f32", 1)])
def test_blocks_of_a_type(name, expected):
    assert expected == block_elements(name)


def test_a_matrix_whose_rows_do_not_divide_takes_a_type_with_smaller_blocks_or_none():
    smaller = file_types._FALLBACK["q4_k"]

    assert ("q4_k", smaller, "f16") == tuple(fitting_type("q4_k", n) for n in (512, 288, 100))
    assert ("q8_0", "f16") == (fitting_type("q8_0", 64), fitting_type("q8_0", 48))
    assert (True, False) == (output_fits(mix("q4_k_m"), 512), output_fits(mix("q4_k_m"), 288))
