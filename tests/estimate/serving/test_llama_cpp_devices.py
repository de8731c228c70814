"""Layer split, caches and overlapping buffers of three devices against dry runs of the engine, f16 files."""

import json
from pathlib import Path

import pytest

from tonnage.architecture import read_config
from tonnage.catalog import load_catalog
from tonnage.estimate.caches import plain_kv_format
from tonnage.estimate.serving.llama_cpp_devices import devices
from tonnage.estimate.serving.llama_cpp_settings import Settings, equal_shares
from tonnage.estimate.serving.llama_cpp_weights import file_weights
from tonnage.spec.engine import pick_release
from tonnage.units import MiB

BOOK = json.loads((Path(__file__).parents[2] / "measured" / "llama_cpp_buffers.json").read_text())
CONFIGS = {m["id"]: m["config"] for m in BOOK["models"]}


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


NEWEST = json.loads((Path(__file__).parents[2] / "measured" / "llama_cpp_buffers_b11434.json").read_text())
BUILDS = {"b9420": BOOK, "b11434": NEWEST}


def laid_out(run, catalog, build):
    model = read_config(CONFIGS[run["model"]])
    form = catalog.formats.get("gguf-f16", "")
    parts = file_weights(model, form, catalog.formats.entries, None)
    settings = Settings(
        release=pick_release(catalog.engines.get("llama.cpp", "").releases, build)[0],
        era_known=True,
        context_tokens=run["context_tokens"],
        context_stated=True,
        slots=1,
        unified=True,
        micro_batch=512,
        flash_attention=True,
        k=plain_kv_format("fp16"),
        v=plain_kv_format("fp16"),
        layers=run["n_gpu_layers"],
        shares=equal_shares(3),
        cpu_moe_layers=0,
        swa_full=False,
        kv_on_host=False,
        draft_tokens=0,
        every_token=False,
        assumptions=(),
    )
    return devices(model, parts, settings, min(run["n_gpu_layers"], len(parts.layers) + 1))


@pytest.mark.parametrize(
    ("build", "run"),
    [
        pytest.param(build, run, id=f"{build}-{run['model']}-{run['n_gpu_layers']}-{run['context_tokens']}")
        for build, book in BUILDS.items()
        for run in book["three_devices"]
    ],
)
def test_three_devices_hold_what_the_dry_run_gives_them(build, run, catalog):
    found = laid_out(run, catalog, build)
    whole = run["n_gpu_layers"] == 99

    assert run["model_mib"] == pytest.approx([d.weights / MiB for d in found], abs=1)
    assert run["context_mib"] == pytest.approx(
        [(d.cache.keys_and_values + d.cache.recurrent) / MiB for d in found], abs=1
    )
    assert run["compute_mib"] == pytest.approx(
        [(d.graph.total + d.pipeline) / MiB for d in found], abs=0.1 if whole else 9
    )
