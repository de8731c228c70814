"""Every model of the catalogue comes out with the count and the parts that its facts state."""

import pytest

from tonnage.architecture import parameters_by_component, read_config
from tonnage.catalog import load_catalog

COUNTED_AS = {
    "attn_indexer": "attention", "linear_attention": "attention", "per_layer_embedding": "embedding",
    "other_per_layer": "other",
}  # fmt: skip
"""Finer parts of the facts -> component they are part of."""
GROUPED_OTHERWISE = {
    "databricks/dbrx-instruct": "its attention stands in a module named norm_attn_norm",
    "FacebookAI/xlm-roberta-base": "the tied embedding is counted with the head",
    "FacebookAI/xlm-roberta-large": "the tied embedding is counted with the head",
}
MODELS = {facts.id: facts for facts in load_catalog().models}


@pytest.mark.parametrize("name", MODELS)
def test_the_count_is_exact_to_the_parameter(name):
    facts = MODELS[name]
    model = read_config(facts.config, parameters=facts.parameters_total)
    assert facts.parameters_total == model.parameters_total
    assert facts.parameters_active == model.parameters_active


@pytest.mark.parametrize("name", [name for name in MODELS if name not in GROUPED_OTHERWISE])
def test_every_component_is_exact_to_the_parameter(name):
    facts = MODELS[name]
    expected: dict[str, int] = {}
    for part, count in facts.parameters_by_component.items():
        component = COUNTED_AS.get(part, part)
        expected[component] = expected.get(component, 0) + count
    assert expected == parameters_by_component(read_config(facts.config, parameters=facts.parameters_total))


def test_nearly_every_config_needs_no_count_to_be_read():
    differ = {n for n, f in MODELS.items() if read_config(f.config).parameters_total != f.parameters_total}
    assert {
        "Qwen/Qwen3-Embedding-8B", "microsoft/Phi-3.5-MoE-instruct", "microsoft/deberta-v3-base",
        "microsoft/deberta-v3-large", "stabilityai/stablelm-2-12b", "stepfun-ai/Step-3.7-Flash",
        "stepfun-ai/Step-3.7-Flash-FP8", "zai-org/GLM-5.2", "zai-org/GLM-5.2-FP8",
    } == differ  # fmt: skip


def test_layers_and_what_stands_outside_them_add_up():
    for facts in MODELS.values():
        model = read_config(facts.config, parameters=facts.parameters_total)
        layered = sum(group.layer.elements * group.count for group in model.layers)
        outside = sum(tensor.elements for tensor in model.outside if tensor.parameter)
        assert model.parameters_total == layered + outside == sum(parameters_by_component(model).values())


def test_every_layer_stands_in_one_group():
    for facts in MODELS.values():
        model = read_config(facts.config)
        for role in ("decoder", "encoder"):
            indices = [i for group in model.layers if group.layer.role == role for i in group.indices]
            assert sorted(indices) == list(range(len(indices)))
