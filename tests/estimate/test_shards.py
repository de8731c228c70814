"""A rank's part of one tensor and its bytes, by hand for matrices of a few elements."""

import pytest
from msgspec.structs import replace

from tonnage.errors import SizingError
from tonnage.estimate import shards
from tonnage.estimate.shards import Cut, WeightRules
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Tensor

PLAIN = WeightFormat(source="test", id="bf16", family="plain", kind="plain", block_bytes=2)
GROUPED = WeightFormat(
    source="test", id="w4", family="gptq", kind="linear", block_elements=8, block_bytes=4, group_size=4, scale_bytes=2,
    zero_bits=4, column_bytes=3, matrix_bytes=5,
)  # fmt: skip


def tensor(shard="column", rows=12, columns=8, **more):
    return Tensor(
        **{"name": "w", "component": "attention", "out_features": rows, "in_features": columns, "shard": shard} | more
    )


def cut(tp=2, ep=1, etp=2, **rules):
    return Cut(tp, ep, etp, WeightRules(**rules))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (tensor("column"), (6, 8)),
        (tensor("row"), (12, 4)),
        (tensor("row", columns=1), (12, 1)),
        (tensor("replicated"), (12, 8)),
        (tensor("vocab", rows=13), (7, 8)),
        (tensor("kv", heads=4), (6, 8)),
        (tensor("kv", heads=1), (12, 8)),
        (tensor("column", kv_out_features=4, heads=1), (4 + 4, 8)),
        (tensor("column", kv_out_features=4, heads=2), (4 + 2, 8)),
        (tensor("expert_column"), (6, 8)),
        (tensor("expert_row"), (12, 4)),
        (tensor("expert_row", columns=1), (12, 1)),
    ],
)
def test_each_kind_of_tensor_is_cut_in_its_own_way(made, expected):
    assert expected == shards.local_shape(made, cut())


def test_without_tensor_parallelism_only_experts_are_cut():
    assert (12, 8) == shards.local_shape(tensor("column"), cut(tp=1))
    assert (6, 8) == shards.local_shape(tensor("expert_column"), cut(tp=1))


def test_experts_are_cut_by_their_own_parallelism():
    assert (3, 8) == shards.local_shape(tensor("expert_column"), cut(etp=4))
    assert (12, 2) == shards.local_shape(tensor("expert_row"), cut(etp=4))


@pytest.mark.parametrize("rules", [{"replicated": frozenset({"attention"})}, {"replicated_names": ("w",)}])
def test_what_an_engine_keeps_whole_is_not_cut(rules):
    assert (12, 8) == shards.local_shape(tensor("column"), cut(**rules))
    assert (13, 8) == shards.padded_shape(tensor("vocab", rows=13), cut(vocabulary_multiple=64, **rules))


def test_a_matrix_that_does_not_divide_is_refused_but_for_towers():
    with pytest.raises(SizingError):
        shards.local_shape(tensor("column", rows=7), cut())
    assert (4, 8) == shards.local_shape(tensor("column", rows=7, component="vision"), cut())


def test_experts_are_dealt_out_and_copies_of_a_tower_are_not():
    assert 4 == shards.local_copies(tensor("expert_column", experts=8), cut(ep=2))
    assert 3 == shards.local_copies(tensor("column", experts=3), cut(ep=2))
    assert 4 * 6 * 8 == shards.local_elements(tensor("expert_column", experts=8), cut(ep=2))


# ---- padding ----


def test_the_vocabulary_is_padded_before_it_is_cut():
    assert (32, 8) == shards.padded_shape(tensor("vocab", rows=13), cut(vocabulary_multiple=64))


def test_sides_of_experts_are_padded():
    rules = {"expert_hidden_multiple": 16, "expert_intermediate_multiple": 10}

    assert (10, 16) == shards.padded_shape(tensor("expert_column"), cut(**rules))
    assert (16, 10) == shards.padded_shape(tensor("expert_row"), cut(**rules))
    assert (20, 16) == shards.padded_shape(tensor("expert_column", name="gate_up"), cut(**rules))
    assert (10, 1) == shards.padded_shape(tensor("expert_column", columns=1), cut(**rules))
    assert (16, 1) == shards.padded_shape(tensor("expert_row", columns=1), cut(**rules))
    assert (6, 8) == shards.padded_shape(tensor("column"), cut(**rules))


# ---- bytes ----


def test_values_are_blocks_and_stand_alone_in_a_plain_format():
    assert (6 * 8 * 2, 0) == shards.tensor_parts(tensor(), PLAIN, cut())
    assert 3 * 96 == shards.tensor_bytes(tensor(experts=3), PLAIN, cut())


def test_a_component_in_fp32_has_four_bytes_and_nothing_beside():
    assert (4 * 48, 0) == shards.tensor_parts(tensor(), GROUPED, cut(fp32=frozenset({"attention"})))


def test_scales_zeros_and_indices_stand_beside_the_values():
    groups = 6 * 2
    beside = 5 + 3 * 8 + groups * (8 * 2 + 4) // 8

    assert (24, beside) == shards.tensor_parts(tensor(), GROUPED, cut())
    assert 6 * 8 // 8 * 4 + beside == shards.matrix_bytes(6, 8, GROUPED)


def test_a_repack_drops_zeros_and_the_index():
    assert (24, 5 + 12 * 2) == shards.tensor_parts(tensor(), GROUPED, cut(without_zeros=frozenset({"gptq"})))


def test_a_format_without_groups_has_its_fixed_part_only():
    single = replace(GROUPED, group_size=None)

    assert 24 + 5 + 3 * 8 == shards.matrix_bytes(6, 8, single)


def test_tiles_have_a_scale_each():
    tiled = WeightFormat(
        source="test",
        id="fp8",
        family="fp8",
        kind="linear",
        block_bytes=1,
        block_shape=(4, 3),
        scale_bytes=4,
        group_size=0,
    )

    assert 48 + 4 * 2 * 3 == shards.matrix_bytes(6, 8, tiled)


def test_columns_of_experts_are_padded_in_memory_but_not_their_scales():
    wide = {"expert_values_multiple": 32}
    expert = tensor("expert_column")
    _, beside = shards.tensor_parts(expert, GROUPED, cut())

    assert (6 * 32 // 8 * 4, beside) == shards.tensor_parts(expert, GROUPED, cut(**wide))
    assert (96, 0) == shards.tensor_parts(expert, PLAIN, cut(**wide))
    assert 24 == shards.tensor_parts(tensor(), GROUPED, cut(**wide))[0]
    vector = tensor("expert_column", columns=1)
    assert 4 == shards.tensor_parts(vector, GROUPED, cut(**wide))[0]


def test_files_pack_row_by_row_and_keep_nothing_beside():
    packed = WeightFormat(source="test", id="q", family="gguf", kind="tensor-type", block_elements=32, block_bytes=18)

    assert 5 * 2 * 18 == shards.matrix_bytes(5, 33, packed)
    linear = replace(packed, kind="linear")
    assert 6 * 18 == shards.matrix_bytes(5, 33, linear)


# ---- bitsandbytes ----

NF4 = WeightFormat(
    source="test",
    id="nf4",
    family="bitsandbytes",
    kind="linear",
    block_elements=2,
    block_bytes=1,
    group_size=64,
    scale_bytes=4,
)


def state(rules, form=NF4):
    return shards.tensor_parts(tensor(rows=1024, columns=64), form, cut(**rules))[1]


def test_scales_of_bitsandbytes_may_be_quantized_once_more():
    from tonnage.laws import weights

    def law(nested):
        return weights.bitsandbytes_state(elements=512 * 64, block_size=64, nested_block=nested)

    assert law(None) == state({})
    assert law(256) == state({"nests_scales": True})
    assert law(128) == state({"nests_scales": True}, replace(NF4, nested_block=128))
    assert law(128) == state({}, replace(NF4, nested_block=128))
    assert law(None) == state({"nests_scales": True, "nested_scales_expanded": True}, replace(NF4, nested_block=128))
    wide = replace(NF4, group_size=None)
    assert law(None) == state({}, wide)


def test_an_eight_bit_matrix_of_bitsandbytes_has_scales_like_any_other():
    eight = replace(NF4, block_elements=1, group_size=0)

    assert 512 * 4 == state({}, eight)
