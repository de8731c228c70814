"""Several GPUs are one memory only through a layout that the engine runs and that divides."""

import pytest

from tonnage.estimate import placement
from tonnage.spec.card import Placement
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Attention, Layer, LayerGroup, Mlp, Model, Moe


def attention(heads, kv_heads, kind="full"):
    return Attention(kind=kind, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=128, v_head_dim=128)


def model(heads=32, kv_heads=8, layers=32, width=14336, moe=None, kind="full"):
    layer = Layer(
        attention=attention(heads, kv_heads, kind),
        mlp=None if moe else Mlp(intermediate_size=width, gated=True),
        moe=moe,
    )
    return Model(parameters_total=8_030_261_248, layers=(LayerGroup(layer, tuple(range(layers))),))


MOE = Moe(num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768)
FP8_BLOCK = WeightFormat(id="fp8-block-128x128", family="fp8", kind="linear", block_shape=(128, 128), source="test")


def refused(m, engine="vllm", framework=None, weight_format=None, **sizes):
    return placement.refusal(
        model=m, placement=Placement(**sizes), engine=engine, framework=framework, weight_format=weight_format
    )


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_heads_that_divide_may_be_cut_and_few_kv_heads_are_replicated(size):
    assert refused(model(), tensor_parallel_size=size) is None


@pytest.mark.parametrize(
    ("sizes", "word"),
    [
        ({"tensor_parallel_size": 3}, "num_attention_heads"),
        ({"tensor_parallel_size": 64}, "num_attention_heads"),
        ({"pipeline_parallel_size": 33}, "pipeline stages"),
        ({"tensor_parallel_size": 2, "expert_parallel_size": 2}, "without routed experts"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_reason(sizes, word):
    assert word in refused(model(), **sizes)


def test_an_encoder_is_not_cut_into_stages_and_runs_on_one_gpu():
    layer = Layer(role="encoder", attention=attention(12, 12, "encoder"), mlp=Mlp(intermediate_size=3072, gated=False))
    encoder = Model(parameters_total=110_000_000, layers=(LayerGroup(layer, tuple(range(12))),))

    assert refused(encoder) is None
    assert "encoder" in refused(encoder, pipeline_parallel_size=2)


def test_kv_heads_and_ranks_must_divide_one_another():
    assert "num_key_value_heads (8)" in refused(model(heads=96, kv_heads=8, width=9216), tensor_parallel_size=12)
    assert refused(model(heads=96, kv_heads=1, width=9216, kind="mla"), tensor_parallel_size=12) is None


def test_groups_of_a_weight_format_stay_whole():
    assert "fp8-block-128x128" in refused(model(moe=MOE), weight_format=FP8_BLOCK, tensor_parallel_size=4)
    assert refused(model(moe=MOE), weight_format=FP8_BLOCK, tensor_parallel_size=2) is None
    assert refused(model(moe=MOE), weight_format=FP8_BLOCK, tensor_parallel_size=4, expert_parallel_size=4) is None


@pytest.mark.parametrize(
    ("engine", "framework", "sizes"),
    [
        ("llama.cpp", None, {"tensor_parallel_size": 2}),
        ("tgi", None, {"pipeline_parallel_size": 2}),
        ("vllm", None, {"context_parallel_size": 2}),
        (None, "unsloth", {"pipeline_parallel_size": 2}),
        (None, "trl", {"tensor_parallel_size": 2}),
    ],
)
def test_what_an_engine_does_not_run_is_refused(engine, framework, sizes):
    assert "does not run" in refused(model(), engine=engine, framework=framework, **sizes)


def shapes(gpus, fast_domain=8, **more):
    found = placement.layouts(
        **({"model": model(), "gpus": gpus, "fast_domain": fast_domain, "engine": "vllm", "framework": None} | more)
    )
    return [(p.tensor_parallel_size, p.pipeline_parallel_size, p.data_parallel_size) for p in found]


def test_serving_prefers_wide_tensor_parallelism_then_stages_then_replicas():
    assert [(4, 1, 1), (2, 2, 1), (1, 4, 1), (2, 1, 2), (1, 2, 2), (1, 1, 4)] == shapes(4)


def test_tensor_parallelism_stays_inside_the_fast_domain():
    assert all(tensor <= 8 for tensor, _, _ in shapes(16))
    assert (8, 2, 1) == shapes(16)[0]


def test_training_prefers_data_parallelism():
    assert (1, 1, 8) == shapes(8, engine=None, framework="torchtitan")[0]
    assert [(1, 1, 4)] == shapes(4, engine=None, framework="unsloth")


def test_every_layout_uses_all_gpus():
    assert {12} == {t * p * d for t, p, d in shapes(12)}


def test_experts_are_dealt_out_over_the_ranks_of_a_stage():
    found = placement.layouts(
        model=model(moe=MOE), gpus=8, fast_domain=8, engine="vllm", framework=None, expert_parallel=True
    )

    assert {p.tensor_parallel_size * p.data_parallel_size for p in found} == {p.expert_parallel_size for p in found}


def test_with_only_a_count_nothing_is_known_to_divide_or_not():
    assert placement.refusal(
        model=Model(parameters_total=7), placement=Placement(tensor_parallel_size=3), engine=None, framework=None
    ) is None  # fmt: skip
