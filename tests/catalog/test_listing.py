"""Models show what one filters by, and their architecture in counts and words."""

import pytest

from tonnage.catalog import load_catalog
from tonnage.catalog.listing import model_entry, model_row


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", (131_072, ("text",), False)),
        ("Qwen/Qwen3-30B-A3B", (40_960, ("text",), True)),
        ("google/gemma-3-27b-it", (131_072, ("text", "vision"), False)),
        ("openai/whisper-small", (448, ("text", "audio"), False)),
        ("openai-community/gpt2", (1024, ("text",), False)),
    ],
)
def test_a_row_shows_context_modalities_and_kind(catalog, name, expected):
    row = model_row(catalog.models.get(name))
    assert expected == (row.max_position_embeddings, row.modalities, row.mixture_of_experts)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("openai/gpt-oss-20b", "mxfp4"), ("Qwen/Qwen3-32B-FP8", "fp8-block-128x128"), ("Qwen/Qwen3-8B", "bf16")],
)
def test_a_row_shows_the_format_of_the_checkpoint(catalog, name, expected):
    assert expected == model_row(catalog.models.get(name)).weight_format


def test_every_model_has_a_row_and_an_entry_that_agree(catalog):
    for facts in catalog.models:
        row, entry = model_row(facts), model_entry(catalog, facts)
        assert (row.id, row.family, row.licence, row.modalities) == (
            entry.id,
            entry.family,
            entry.licence,
            entry.modalities,
        )
        assert entry.layers
        assert sum(entry.parameters_by_component.values()) == entry.parameters_total


def test_an_entry_tells_the_layers_in_words(catalog):
    entry = model_entry(catalog, catalog.models.get("openai/gpt-oss-20b"))
    assert (24, "mxfp4") == (entry.num_hidden_layers, entry.weight_format)
    assert "12 sliding attention (128) + 12 full attention" in entry.layers
