"""Buffers of llama.cpp against dry runs of the engine itself: 22 models, with the outputs of a server and of every token."""

import json
from pathlib import Path

import pytest

from tonnage.architecture import read_config
from tonnage.catalog import load_catalog
from tonnage.estimate.caches import plain_kv_format
from tonnage.estimate.serving.llama_cpp_buffers import cache, graph, shape_of
from tonnage.estimate.serving.llama_cpp_weights import file_weights
from tonnage.units import MiB

RECORDED = json.loads((Path(__file__).parents[2] / "measured" / "llama_cpp_buffers.json").read_text())["models"]
RUNS = [
    pytest.param(model, run, id=f"{model['id']}-{number}")
    for model in RECORDED
    for number, run in enumerate(model["runs"])
]


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.fixture(scope="module")
def models():
    return {m["id"]: read_config(m["config"]) for m in RECORDED}


def shape(run, *, raw_input=False):
    return shape_of(
        context_tokens=run["context_tokens"],
        slots=run.get("slots", 1),
        unified=run.get("unified", run.get("slots", 1) == 1),
        micro_batch=run.get("micro_batch", 512),
        flash_attention=run.get("flash_attention", True),
        swa_full=False,
        draft_tokens=0,
        padding=256,
        latent_cache=True,
        sliding_cache=True,
        separate_f32_mask=False,
        value_indices=True,
        every_token=not run.get("server"),
        reserves_dequantized=raw_input,
        raw_input=raw_input,
    )


def kv_format(catalog, run):
    return catalog.kv_formats.get(run["cache"], "") if "cache" in run else plain_kv_format("fp16")


@pytest.mark.parametrize(("recorded", "run"), RUNS)
def test_caches_are_those_of_the_dry_run_to_the_mebibyte(recorded, run, models, catalog):
    model, form = models[recorded["id"]], kv_format(catalog, run)
    found = cache(model, k=form, v=form, shape=shape(run), layers=(0, model.num_hidden_layers))

    assert run["context_mib"] == (found.keys_and_values + found.recurrent) // MiB


def compute(model, run, *, raw_input=False):
    return graph(
        model,
        shape=shape(run, raw_input=raw_input),
        quantized_cache="cache" in run,
        layers=(0, model.num_hidden_layers),
        with_output=True,
    )


@pytest.mark.parametrize(("recorded", "run"), [r for r in RUNS if r.values[1].get("server")])
def test_compute_buffer_of_a_server_is_within_two_percent_of_the_dry_run(recorded, run, models):
    assert run["compute_mib"] == pytest.approx(compute(models[recorded["id"]], run).total / MiB, rel=0.02, abs=1)


@pytest.mark.parametrize(("recorded", "run"), [r for r in RUNS if not r.values[1].get("server")])
def test_logits_of_every_token_stand_at_most_a_few_rows_further(recorded, run, models):
    found = compute(models[recorded["id"]], run)
    rows = 1.5 if found.plain else 5

    assert found.total / MiB - 1.5 <= run["compute_mib"] * 1.02
    assert run["compute_mib"] <= (found.total + rows * found.hidden) / MiB + 1


def test_median_compute_error_is_nothing_and_nine_in_ten_are_within_five_percent(models):
    errors = sorted(
        abs(compute(models[recorded["id"]], run).total / MiB / run["compute_mib"] - 1)
        for recorded in RECORDED
        for run in recorded["runs"]
    )

    assert errors[len(errors) // 2] <= 0.001
    assert errors[int(0.9 * len(errors))] <= 0.05


@pytest.mark.parametrize("recorded", [m for m in RECORDED if "file_type" in m], ids=lambda m: m["id"])
def test_model_buffer_and_file_are_those_of_llama_quantize(recorded, models, catalog):
    model = models[recorded["id"]]
    form = catalog.formats.get(recorded["file_type"], "")
    parts = file_weights(model, form, catalog.formats.entries, None)
    on_device = parts.before[-1] + parts.output

    assert recorded["runs"][0]["model_mib"] == pytest.approx(on_device / MiB, rel=2e-4, abs=1)
    assert recorded["runs"][0]["host_model_mib"] == pytest.approx(parts.input / MiB, abs=1)


NEWEST = json.loads((Path(__file__).parents[2] / "measured" / "llama_cpp_buffers_b11434.json").read_text())["runs"]


def newest_errors(models, of):
    found = [
        (compute(models[run["model"]], run, raw_input=True).total / MiB, run) for run in NEWEST if of(run["model"])
    ]
    return {(run["model"], number): size / run["compute_mib"] - 1 for number, (size, run) in enumerate(found)}


def test_buffers_of_a_build_of_2026_10_are_those_of_its_dry_runs(models):
    errors = sorted(abs(e) for e in newest_errors(models, lambda model: True).values())

    assert errors[len(errors) // 2] <= 0.0005
    assert errors[int(0.9 * len(errors))] <= 0.03


def test_plain_models_of_a_build_of_2026_10_are_exact(models):
    plain = newest_errors(models, lambda model: not model.startswith(("deepseek", "qwen35", "qwen3-next")))

    assert max(abs(e) for e in plain.values()) <= 0.03
    assert sum(abs(e) <= 0.002 for e in plain.values()) >= 0.9 * len(plain)
