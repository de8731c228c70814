"""Cuts over ranks: what engines do, what they refuse, and that nothing is lost."""

import pytest

from tonnage.errors import ContradictoryWorkload
from tonnage.laws import sharding

SPLITS = [
    # layers, stages, surplus, layers by stage
    (32, 4, "late", [8, 8, 8, 8]),
    (61, 4, "late", [15, 15, 16, 15]),
    (94, 4, "late", [23, 24, 24, 23]),
    (61, 8, "late", [7, 7, 8, 8, 8, 8, 8, 7]),
    (5, 3, "late", [2, 2, 1]),
    (61, 8, "last", [7, 7, 7, 7, 7, 7, 7, 12]),
    (61, 8, "first", [8, 8, 8, 8, 8, 7, 7, 7]),
    (80, 8, "refuse", [10] * 8),
]


def test_an_even_part_is_a_share():
    assert 4096 == sharding.even_part(elements=16384, tensor_parallel_size=4)


def test_a_dimension_that_does_not_divide_is_refused_by_name():
    with pytest.raises(ContradictoryWorkload, match=r"intermediate_size \(18944\).*tensor_parallel_size 3"):
        sharding.even_part(elements=18944, tensor_parallel_size=3, name="intermediate_size")


@pytest.mark.parametrize(("heads", "ranks", "each"), [(8, 1, 8), (8, 4, 2), (8, 8, 1), (8, 16, 1), (1, 64, 1)])
def test_kv_heads_are_cut_then_replicated(heads, ranks, each):
    assert each == sharding.kv_heads(num_key_value_heads=heads, tensor_parallel_size=ranks)


def test_kv_heads_that_neither_divide_nor_are_divided_are_refused():
    with pytest.raises(ContradictoryWorkload, match="neither divides"):
        sharding.kv_heads(num_key_value_heads=8, tensor_parallel_size=6)


@pytest.mark.parametrize(("experts", "ranks", "each"), [(256, 1, 256), (256, 32, 8), (128, 48, 3), (8, 16, 1)])
def test_the_fullest_rank_holds_the_rounded_up_share_of_experts(experts, ranks, each):
    assert each == sharding.local_experts(num_experts=experts, expert_parallel_size=ranks)


@pytest.mark.parametrize(("layers", "stages", "surplus", "counts"), SPLITS)
def test_layers_by_stage_follow_the_frameworks(layers, stages, surplus, counts):
    split = sharding.layers_by_stage(num_layers=layers, pipeline_parallel_size=stages, surplus=surplus)

    assert counts == [len(stage) for stage in split]


@pytest.mark.parametrize("surplus", ["late", "last", "first"])
def test_every_layer_stands_in_exactly_one_stage(surplus):
    for layers in range(1, 40):
        for stages in range(1, layers + 1):
            split = sharding.layers_by_stage(num_layers=layers, pipeline_parallel_size=stages, surplus=surplus)
            assert list(range(layers)) == [layer for stage in split for layer in stage]


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ContradictoryWorkload, match="cannot fill"):
        sharding.layers_by_stage(num_layers=2, pipeline_parallel_size=3)


def test_megatron_refuses_layers_that_do_not_divide():
    with pytest.raises(ContradictoryWorkload, match="not divisible by pipeline_parallel_size 4"):
        sharding.layers_by_stage(num_layers=61, pipeline_parallel_size=4, surplus="refuse")
