"""Names are found however they are written, and a misspelt one finds its neighbours quickly."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.catalog import load_catalog, resolve
from tonnage.catalog.gpus import find_gpu
from tonnage.catalog.lookup import Index, gpu_fold, plain_fold
from tonnage.errors import CatalogError, SizingError, UnknownName
from tonnage.spec.card import SizingCard
from tonnage.units import GiB


class Named(msgspec.Struct):
    id: str
    aliases: tuple[str, ...] = ()


CATALOG = load_catalog()
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/:+@ -]{0,60}", fullmatch=True)


@given(st.data())
def test_any_spelling_of_a_gpu_finds_it(data):
    gpu = data.draw(st.sampled_from(list(CATALOG.gpus)))
    name = data.draw(st.sampled_from([gpu.id, *gpu.aliases]))
    letters = [
        data.draw(st.sampled_from([c.lower(), c.upper()])) if c not in " -_" else data.draw(st.sampled_from("-_ "))
        for c in name
    ]
    assert gpu is CATALOG.gpus.find("".join(letters))


@given(st.sampled_from(list(CATALOG.models)), st.booleans())
def test_any_case_of_a_model_finds_it(model, upper):
    assert model is CATALOG.models.find(model.id.upper() if upper else model.id.lower())


@settings(deadline=None)
@given(NAMES, st.sampled_from(["model", "gpu", "format", "kv", "optimizer", "draft"]))
def test_no_name_at_all_breaks_resolution(name, where):
    fields: dict[str, Any] = {"model": "Qwen/Qwen3-8B"}
    fields |= {
        "model": {"model": name},
        "gpu": {"placement": {"gpu": name}},
        "format": {"weights": {"format": name}},
        "kv": {"serving": {"engine": "vllm", "kv_cache_dtype": name}},
        "optimizer": {"training": {"optimizer": name}},
        "draft": {"serving": {"engine": "vllm", "speculative": {"method": "x", "model": name}}},
    }[where]
    pointer = "/"
    try:
        resolve(CATALOG, msgspec.convert(fields, SizingCard))
    except SizingError as error:
        pointer = error.pointer
    assert pointer.startswith("/")


def test_a_misspelt_name_is_answered_in_milliseconds():
    with pytest.raises(UnknownName):
        CATALOG.models.get("meta-llama/Llama-3.1-8B-Instuct")
    started = time.process_time()
    for number in range(10):
        with pytest.raises(UnknownName):
            CATALOG.models.get(f"meta-llama/Llama-3.1-8B-Instuct-{number}")
    assert time.process_time() - started < 0.2


def test_two_records_cannot_share_an_alias():
    with pytest.raises(CatalogError, match="already belongs to 'a'"):
        Index("thing", [Named("a", ("x",)), Named("b", ("X",))])


def test_an_alias_cannot_be_the_id_of_another():
    with pytest.raises(CatalogError, match="already belongs to 'b'"):
        Index("thing", [Named("a", ("B",)), Named("b")])


def test_a_nickname_of_two_records_names_neither():
    index = Index("thing", [Named("a"), Named("b")], nicknames=lambda _: ["both"])
    assert index.find("both") is None
    assert "a" in index


def test_a_nickname_never_hides_an_id():
    index = Index("thing", [Named("a"), Named("b")], nicknames=lambda entry: ["b"] if entry.id == "a" else [])
    assert "b" == index.get("b").id


@pytest.mark.parametrize(
    ("fold", "left", "right"),
    [
        (plain_fold, "Q4_K_M", "q4-k-m"),
        (gpu_fold, "NVIDIA GeForce RTX 4090", "rtx-4090"),
        (gpu_fold, "AMD MI300X", "mi300x"),
    ],
)
def test_spellings_fold_together(fold, left, right):
    assert fold(left) == fold(right)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("llama3.1:8b", "Llama-3.1-8B"),
        ("llama-3.3-70b", "Llama-3.3-70B-Instruct"),
        ("gemma2-9b", "gemma-2-9b"),
        ("nemotron-70b", "Llama-3.1-Nemotron-70B-Instruct-HF"),
    ],
)
def test_the_nickname_of_a_model_leads_to_it(name, first):
    models = load_catalog().models

    assert first == UnknownName("model", name, models.near(name)).did_you_mean[0]


@pytest.mark.parametrize(
    ("name", "gpu", "words"),
    [
        ("p5.48xlarge", "h100-sxm", "8 of them"),
        ("g5.xlarge", "a10g", "one of them"),
        ("a2-highgpu-1g", "a100-40-sxm", "one of them"),
        ("Standard_ND96asr_v4", "a100-40-sxm", "8 of them"),
    ],
)
def test_an_instance_type_names_its_gpu_and_says_how_many_there_are(name, gpu, words):
    found, assumption = find_gpu(load_catalog(), name)

    assert gpu == found.id
    assert words in assumption.why


@pytest.mark.parametrize(
    ("name", "base", "weight_format"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct", "awq-w4-g128"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct", "fp8-per-channel-dynamic"),
        ("unsloth/llama-3-8b-bnb-4bit", "meta-llama/Meta-Llama-3-8B", "bnb-nf4"),
        ("TheBloke/Llama-2-13B-chat-AWQ", "meta-llama/Llama-2-13b-hf", "awq-w4-g128"),
        ("NousResearch/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B", "bf16"),
    ],
)
def test_a_copy_is_known_by_its_name_and_to_be_confirmed(name, base, weight_format):
    workload = resolve(load_catalog(), SizingCard(model=name))

    assert name == workload.model.id
    assert weight_format == workload.weight_format.id
    assert [base] == [a.value for a in workload.assumptions if a.field == "model.copy_of"]
    assert ["/model"] == [f.field for f in workload.findings if "copy" in f.reason]


@pytest.mark.parametrize("name", ["nobody/nothing-AWQ", "nothing-AWQ", "AWQ", "someone/else"])
def test_a_name_that_is_no_copy_of_anything_known_stays_unknown(name):
    with pytest.raises(UnknownName):
        resolve(load_catalog(), SizingCard(model=name))


@pytest.mark.parametrize("name", ["rtx5090ti", "RTX 5090 Ti"])
def test_a_board_that_does_not_exist_is_answered_with_the_one_its_name_begins_with(name):
    with pytest.raises(UnknownName) as raised:
        find_gpu(CATALOG, name)

    assert "rtx-5090" in raised.value.did_you_mean[:2]


@pytest.mark.parametrize(("size", "usable"), [(36, 24), (48, 36), (64, 48), (96, 72), (128, 96)])
def test_apple_boards_are_found_by_their_memory(size, usable):
    gpu, assumption = find_gpu(CATALOG, f"M3 Max {size}GB")

    assert usable * GiB == gpu.memory_usable_bytes
    assert assumption is None
