"""Every name of a card becomes a value, and what names nothing is pointed at."""

import json
from pathlib import Path

import msgspec
import pytest

from tonnage.catalog import load_catalog, resolve
from tonnage.catalog.models import wanted_from_hub
from tonnage.errors import ContradictoryWorkload, MissingFact, SizingError, SourceUnavailable, UnknownName, Unsupported
from tonnage.estimate.identity import digest
from tonnage.spec.card import SizingCard
from tonnage.spec.engine import pick_release
from tonnage.spec.hub import HubModel

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 512,
    "torch_dtype": "float16", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.fixture(scope="module")
def resolved(catalog):
    def make(fetch=None, **fields):
        return resolve(catalog, msgspec.convert({"model": LLAMA, **fields}, SizingCard), fetch=fetch)

    return make


def assumed(workload):
    return {a.field: a.value for a in workload.assumptions}


def test_a_model_is_found_by_id_whatever_its_case(resolved):
    workload = resolved()
    assert (LLAMA, 8_030_261_248, "bf16") == (
        workload.model.id,
        workload.model.parameters_total,
        workload.weight_format.id,
    )
    assert {"weights.format": "bf16"} == assumed(workload)
    assert LLAMA == resolved(model=LLAMA.lower()).model.id
    assert LLAMA == resolved(model="Llama-3.1-8B-Instruct").model.id


def test_the_same_question_gets_the_same_model(resolved):
    assert resolved().model is resolved().model
    assert resolved(model={"config": CONFIG}).model is resolved(model={"config": dict(CONFIG)}).model


def test_a_fine_tune_keeps_its_own_name(resolved):
    workload = resolved(model="HuggingFaceH4/zephyr-7b-beta")
    assert "HuggingFaceH4/zephyr-7b-beta" == workload.model.id
    assert "same architecture as mistralai/Mistral-7B-v0.1" in workload.model.source


def test_licence_and_family_come_from_the_catalogue(resolved):
    model = resolved(model="Qwen/Qwen3-8B").model
    assert ("Qwen", "apache-2.0") == (model.family, model.licence)


def test_another_revision_of_a_catalogue_model_is_an_assumption(resolved):
    assert "main" == assumed(resolved(model={"id": LLAMA, "revision": "abc"}))["model.revision"]
    assert "model.revision" not in assumed(resolved(model={"id": LLAMA, "revision": "main"}))


def test_a_count_alone_is_taken_at_16_bit(resolved):
    workload = resolved(model={"parameters": 7_000_000_000})
    assert (7_000_000_000, "bf16", False) == (
        workload.model.parameters_total,
        workload.weight_format.id,
        workload.model.known,
    )
    assert "bf16" == assumed(workload)["weights.format"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"weights": {"format": "bnb-nf4"}}, "bnb-nf4"),
        ({"weights": {"format": "NF4"}}, "bnb-nf4"),
        ({"weights": {"format": "bfloat16"}}, "bf16"),
        ({"model": {"config": CONFIG}}, "fp16"),
        ({"serving": {"engine": "vllm", "dtype": "float16"}}, "fp16"),
        ({"serving": {"engine": "vllm", "dtype": "auto"}}, "bf16"),
        ({"model": "openai/gpt-oss-20b"}, "mxfp4"),
        ({"model": "Qwen/Qwen3-32B-FP8"}, "fp8-block-128x128"),
        ({"model": "nvidia/DeepSeek-V3.1-NVFP4", "weights": {"format": "nvfp4"}}, "nvfp4"),
    ],
)  # fmt: skip
def test_weights_take_the_stated_format_else_the_checkpoints_own(resolved, fields, expected):
    assert expected == resolved(**fields).weight_format.id


def test_an_unknown_quantization_asks_for_the_format(resolved):
    config = {**CONFIG, "quantization_config": {"quant_method": "novel"}}
    with pytest.raises(Unsupported, match=r"novel.*weights\.format") as error:
        resolved(model={"config": config})
    assert "/weights/format" == error.value.pointer
    assert "bnb-nf4" == resolved(model={"config": config}, weights={"format": "bnb-nf4"}).weight_format.id


def test_qlora_takes_nf4_and_refuses_a_plain_base(resolved):
    assert "bnb-nf4" == assumed(resolved(training={"method": "qlora"}))["weights.format"]
    assert (
        "gptq-w4-g128-sym"
        == resolved(training={"method": "qlora"}, weights={"format": "gptq-w4-g128-sym"}).weight_format.id
    )
    with pytest.raises(ContradictoryWorkload, match="quantized base") as error:
        resolved(training={"method": "qlora"}, weights={"format": "bf16"})
    assert "/weights/format" == error.value.pointer


def test_every_model_of_the_catalogue_has_a_format_of_the_catalogue(catalog):
    for facts in catalog.models:
        assert resolve(catalog, SizingCard(model=facts.id)).weight_format.id in catalog.formats.entries


def test_every_model_of_the_catalogue_counts_what_was_counted(catalog):
    differing = {
        facts.id: resolve(catalog, SizingCard(model=facts.id)).model.parameters_total - facts.parameters_total
        for facts in catalog.models
        if facts.count_check in ("exact", "explained")
    }
    assert {} == {name: difference for name, difference in differing.items() if difference}


def test_sizes_become_bytes(resolved):
    workload = resolved(
        weights={"bytes": "15 GiB"},
        serving={"engine": "vllm", "kv_cache_memory_bytes": "2 GB"},
        reserve="6 GiB",
        measurements=[{"counter": "reserved", "peak_bytes": "1 MiB"}],
        failure={"requested_bytes": "1 KiB", "free_bytes": 3},
    )
    assert 15 * 2**30 == workload.weight_bytes
    assert 2 * 10**9 == workload.serving.kv_cache_memory_bytes
    assert 6 * 2**30 == workload.reserve_bytes
    assert 2**20 == workload.measurements[0].peak_bytes
    assert (2**10, 3) == (workload.failure.requested_bytes, workload.failure.free_bytes)


def test_a_reserve_may_be_a_fraction(resolved):
    workload = resolved(reserve={"fraction": 0.2})
    assert (0, 0.2) == (workload.reserve_bytes, workload.reserve_fraction)


def test_a_gpu_is_found_and_a_loose_name_is_listed(resolved):
    assert "h100-sxm" == resolved(placement={"gpu": "h100-sxm"}).gpu.id
    assert "placement.gpu" not in assumed(resolved(placement={"gpu": "l40s"}))
    assert "h100-sxm" == assumed(resolved(placement={"gpu": "H100"}))["placement.gpu"]
    assert "a100-80-sxm:3g.40gb" == resolved(placement={"gpu": "A100 80GB:3g.40gb"}).gpu.id
    assert resolved().gpu is None


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("auto", None), ("fp8", ("kv-fp8-e4m3",) * 2), ("fp8_e5m2", ("kv-fp8-e5m2",) * 2), ("kv-bf16", ("kv-bf16",) * 2)],
)
def test_cache_types_take_ids_and_engine_spellings(resolved, stated, expected):
    found = resolved(serving={"engine": "vllm", "kv_cache_dtype": stated}).kv_formats
    assert expected == (found and tuple(f.id for f in found))


def test_keys_and_values_may_differ(catalog, resolved):
    found = resolved(serving={"engine": "llama.cpp", "kv_cache_dtype": {"k": "q8_0", "v": "q4_0"}}).kv_formats
    assert ("kv-q8_0", "kv-q4_0") == tuple(f.id for f in found)


def test_a_draft_model_is_resolved_too(resolved):
    serving = {"engine": "vllm", "speculative": {"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct"}}
    assert "meta-llama/Llama-3.2-1B-Instruct" == resolved(serving=serving).draft.id
    assert resolved(serving={"engine": "vllm", "speculative": {"method": "ngram"}}).draft is None


def test_an_unknown_draft_head_is_left_out_and_named(resolved):
    speculative = {"method": "eagle3", "model": "someone/EAGLE3-of-my-own"}
    workload = resolved(serving={"engine": "vllm", "speculative": speculative})
    assert workload.draft is None
    assert "someone/EAGLE3-of-my-own" in workload.unknowns[0]
    assert ["needs_confirmation"] == [finding.status for finding in workload.findings]


def test_a_generically_read_config_needs_confirmation_and_names_its_fields(resolved):
    config = {**CONFIG, "model_type": "novel", "novel_state_size": 7}
    workload = resolved(model={"config": config})
    assert ["needs_confirmation"] == [finding.status for finding in workload.findings]
    assert "novel_state_size" in workload.findings[0].reason


def test_a_recalled_model_of_the_catalogue_needs_confirmation_and_a_checked_one_does_not(catalog, resolved):
    recalled = next(facts for facts in catalog.models if facts.trust == "recalled")
    assert "recalled" in resolved(model=recalled.id).findings[0].reason
    assert () == resolved().findings


@pytest.mark.parametrize(
    ("fields", "kind", "pointer", "near"),
    [
        ({"model": "meta-llama/Llama-3.1-8B-Instuct"}, UnknownName, "/model", LLAMA),
        ({"model": {"id": "meta-llama/Llama-3.1-8B-Instuct"}}, UnknownName, "/model/id", LLAMA),
        ({"placement": {"gpu": "h100-sxn"}}, UnknownName, "/placement/gpu", "h100-sxm"),
        ({"placement": {"gpu": "h100-sxm:1g.11gb"}}, UnknownName, "/placement/gpu", "1g.10gb"),
        ({"weights": {"format": "bnb-nf5"}}, UnknownName, "/weights/format", "bnb-nf4"),
        ({"serving": {"engine": "vllm", "kv_cache_dtype": "fp8_e4m4"}}, UnknownName, "/serving/kv_cache_dtype", "fp8_e4m3"),
        ({"serving": {"engine": "vllm", "kv_cache_dtype": {"k": "q8_0", "v": "q8_9"}}}, UnknownName,
         "/serving/kv_cache_dtype/v", "q8_0"),
        ({"serving": {"engine": "vllm", "speculative": {"method": "x", "model": "Qwen/Qwen3-8C"}}}, UnknownName,
         "/serving/speculative/model", "Qwen/Qwen3-8B"),
    ],
)  # fmt: skip
def test_a_name_of_nothing_is_pointed_at_with_the_nearest_names(resolved, fields, kind, pointer, near):
    with pytest.raises(kind) as error:
        resolved(**fields)
    assert pointer == error.value.pointer
    assert near in error.value.did_you_mean


def test_an_unknown_model_says_how_to_pass_its_config(resolved):
    with pytest.raises(UnknownName, match=r'pass its config.json as \{"model": \{"config": \{...\}\}\}') as error:
        resolved(model="org/unheard-of")
    assert error.value.detail == str(error.value)


def test_a_config_without_its_keys_is_pointed_at(resolved):
    with pytest.raises(MissingFact) as error:
        resolved(model={"config": {"model_type": "llama"}})
    assert error.value.pointer.startswith("/model/config")


def test_a_draft_config_is_pointed_at_where_it_stands(resolved):
    speculative = {"method": "draft_model", "model": {"config": {"model_type": "llama"}}}
    with pytest.raises(SizingError) as error:
        resolved(serving={"engine": "vllm", "speculative": speculative})
    assert error.value.pointer.startswith("/serving/speculative/model/config")


def fetch_tiny(id, revision):  # noqa: A002
    return HubModel(
        id=id, revision=revision or "main", config=CONFIG, weight_bytes=1234, licence="mit", source="Hub of the test"
    )


def test_the_hub_answers_for_what_the_catalogue_lacks(resolved):
    workload = resolved(fetch=fetch_tiny, model="org/tiny")
    assert ("org/tiny", "mit", "Hub of the test", 1234) == (
        workload.model.id, workload.model.licence, workload.model.source, workload.weight_bytes
    )  # fmt: skip


def test_bytes_of_the_hub_belong_to_the_checkpoints_own_format(resolved):
    assert resolved(fetch=fetch_tiny, model="org/tiny", weights={"format": "bnb-nf4"}).weight_bytes is None


def test_the_catalogue_is_not_overruled_by_the_hub_but_for_a_revision(resolved):
    def fetch(id, revision):  # noqa: A002
        raise SourceUnavailable(f"asked for {id}")

    assert LLAMA == resolved(fetch=fetch).model.id
    with pytest.raises(SourceUnavailable):
        resolved(fetch=fetch, model={"id": LLAMA, "revision": "v2"})


def test_a_name_the_hub_does_not_know_gets_pointer_and_neighbours(resolved):
    def fetch(id, revision):  # noqa: A002
        raise UnknownName("model", id, ())

    with pytest.raises(UnknownName) as error:
        resolved(fetch=fetch, model={"id": "meta-llama/Llama-3.1-8B-Instuct"})
    assert "/model/id" == error.value.pointer
    assert LLAMA in error.value.did_you_mean


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []), ({"model": "org/tiny"}, [("org/tiny", None)]), ({"model": {"config": CONFIG}}, []),
        ({"model": {"id": LLAMA, "revision": "v2"}}, [(LLAMA, "v2")]), ({"model": {"id": LLAMA, "revision": "main"}}, []),
        ({"serving": {"engine": "vllm", "speculative": {"method": "draft_model", "model": "org/draft"}}}, [("org/draft", None)]),
    ],
)  # fmt: skip
def test_what_the_hub_must_be_asked_for_is_known_before(catalog, fields, expected):
    assert expected == wanted_from_hub(catalog, msgspec.convert({"model": LLAMA, **fields}, SizingCard))


def test_an_engine_without_data_lists_those_with(catalog):
    lacking = [e for e in ("mlx", "tgi", "tensorrt-llm") if e not in catalog.engines]
    for engine in lacking:
        with pytest.raises(Unsupported, match="vllm") as error:
            resolve(catalog, msgspec.convert({"model": LLAMA, "serving": {"engine": engine}}, SizingCard))
        assert "/serving/engine" == error.value.pointer


@pytest.mark.parametrize(
    ("version", "certain"),
    [(None, True), ("0.19.0", True), ("0.8.5.post1", True), ("99.0", False), ("nightly", False), ("2027-06", False)],
)
def test_a_version_beyond_what_is_known_is_uncertain(resolved, version, certain):
    stated = {} if version is None else {"engine_version": version}
    assert certain == resolved(serving={"engine": "vllm", **stated}).profile_certain


def test_a_version_falls_in_the_release_that_began_before_it(catalog):
    profile = catalog.engines.get("vllm")
    first, second = profile.releases[0], profile.releases[1]
    assert (first, True) == pick_release(profile.releases, first.since)
    assert (second, True) == pick_release(profile.releases, second.since)
    assert (first, False) == pick_release(profile.releases, "0.0.1")
    assert (second, True) == pick_release(profile.releases, second.since_date)


def test_a_version_without_its_patch_is_the_last_of_its_line():
    releases = load_catalog().engines.get("vllm").releases

    assert "0.7.3" == pick_release(releases, "0.7")[0].since
    assert "0.7.0" == pick_release(releases, "0.7.0")[0].since


@pytest.mark.parametrize("size", ["6G", "6 gigs"])
def test_a_size_without_a_unit_of_its_own_never_reaches_resolution(size):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"model": LLAMA, "reserve": size}, SizingCard)


def test_a_size_that_slips_through_is_still_pointed_at(catalog):
    card = SizingCard(model=LLAMA, reserve="6G")
    with pytest.raises(ContradictoryWorkload, match="ambiguous") as error:
        resolve(catalog, card)
    assert "/reserve" == error.value.pointer


def test_examples_of_the_interface_resolve(catalog, repository):
    for path in sorted(Path(repository, "openapi", "examples").glob("*.json")):
        story = json.loads(path.read_text())
        body = story["request"].get("body") or {}
        if story["response"]["status"] == 200 and story["request"]["path"] == "/estimate" and body:
            assert resolve(catalog, msgspec.convert(body, SizingCard)).catalog_version == catalog.version


@pytest.mark.parametrize("version", ["abc", "vv1", "unknown", "v"])
def test_a_version_that_is_neither_a_release_nor_a_date_is_refused(resolved, version):
    for workload, pointer in (
        ({"serving": {"engine": "vllm", "engine_version": version}}, "/serving/engine_version"),
        ({"training": {"framework": "trl", "framework_version": version}}, "/training/framework_version"),
    ):
        with pytest.raises(SizingError, match=f"'{version}' is no version.*0.11.0.*2025-09") as refused:
            resolved(**workload)
        assert pointer == refused.value.pointer


@pytest.mark.parametrize(
    "version",
    ["0.7", "0.19.2rc1.dev134", "v0.5.1", "b4900", "2024", "2024-09", "2026-09-01", "0.8.5.post1", "main", "nightly"],
)
def test_versions_as_projects_write_them_are_read(resolved, version):
    assert resolved(serving={"engine": "vllm", "engine_version": version}).profile is not None
    assert resolved(training={"framework": "trl", "framework_version": version}).profile is not None


@pytest.mark.parametrize(
    ("tag", "model", "weight_format"),
    [
        ("llama3.1:8b", LLAMA, "gguf-q4-k-m"),
        ("Qwen3:8B", "Qwen/Qwen3-8B", "gguf-q4-k-m"),
        ("gemma3:27b", "google/gemma-3-27b-it", "gguf-q4-k-m"),
        ("gpt-oss:latest", "openai/gpt-oss-20b", "gguf-mxfp4"),
        ("deepseek-r1:70b", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "gguf-q4-k-m"),
    ],
)
def test_a_tag_of_ollama_is_the_known_model_in_the_format_it_is_packed_in(tag, model, weight_format):
    card = msgspec.convert({"model": tag, "serving": {"engine": "ollama"}}, SizingCard)
    found = resolve(load_catalog(), card)

    assert (model, weight_format) == (found.model.id, found.weight_format.id)
    assert {"model", "weights.format"} <= {a.field for a in found.assumptions}
    assert [] == wanted_from_hub(load_catalog(), card)


def test_a_stated_format_goes_before_that_of_a_tag():
    card = {"model": {"id": "llama3.1:8b"}, "weights": {"format": "gguf-q8-0"}, "serving": {"engine": "ollama"}}

    assert "gguf-q8-0" == resolve(load_catalog(), msgspec.convert(card, SizingCard)).weight_format.id


def test_tags_are_names_of_ollama_alone():
    card = msgspec.convert({"model": "llama3.1:8b", "serving": {"engine": "vllm"}}, SizingCard)

    with pytest.raises(UnknownName):
        resolve(load_catalog(), card)


def test_every_tag_is_a_model_of_the_catalogue():
    catalog = load_catalog()

    assert [] == [m for engine in catalog.engines for m in engine.tags.values() if m not in catalog.models]


def test_a_repository_under_ollama_keeps_its_dtype_and_says_what_tags_are():
    card = msgspec.convert({"model": LLAMA, "serving": {"engine": "ollama"}}, SizingCard)
    why = {a.field: a.why for a in resolve(load_catalog(), card).assumptions}["weights.format"]

    assert "Q4_K_M" in why


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"serving": {"kv_cache_dtype": "auto", "engine": "vllm"}, "model": LLAMA, "reserve": 0}, True),
        ({"model": {"id": LLAMA}, "serving": {"engine": "vllm"}}, False),
    ],
)
def test_a_digest_is_that_of_the_fields_as_sent_defaults_and_order_aside(other, same):
    cards = ({"model": LLAMA, "serving": {"engine": "vllm"}}, other)
    first, second = (digest(resolve(load_catalog(), msgspec.convert(c, SizingCard))) for c in cards)

    assert same == (first == second)


# ---- names in common ----


MEASURED = {"counter": "device", "peak_bytes": "20 GiB"}


def _named(**more):
    usual = {"model": "Qwen/Qwen3-8B", "serving": {"engine": "vllm"}, "placement": {"gpu": "h100-sxm"}}
    return msgspec.convert({**usual, **more}, SizingCard)


def test_cards_that_name_the_same_keep_their_own_numbers(catalog):
    first = resolve(catalog, _named(reserve="1 GiB"))
    second = resolve(catalog, _named(serving={"engine": "vllm", "max_model_len": 4096}, measurements=[MEASURED]))

    assert (first.model, first.gpu, first.profile) == (second.model, second.gpu, second.profile)
    assert (1024**3, None, ()) == (first.reserve_bytes, first.serving.max_model_len, first.measurements)
    assert (0, 4096, 1) == (second.reserve_bytes, second.serving.max_model_len, len(second.measurements))


@pytest.mark.parametrize(
    "more",
    [
        {"weights": {"format": "awq-w4-g128"}},
        {"serving": {"engine": "vllm", "dtype": "fp16"}},
        {"serving": {"engine": "vllm", "kv_cache_dtype": "fp8"}},
        {"serving": {"engine": "vllm", "engine_version": "0.11.0"}},
        {"serving": {"engine": "sglang"}},
        {"serving": None, "training": {"method": "lora"}},
        {"serving": None, "training": {"method": "qlora"}},
        {"serving": None},
        {"placement": {"gpu": "l40s"}},
    ],
)
def test_a_card_after_another_resolves_as_if_it_were_the_first(catalog, more):
    resolve(catalog, _named())
    after = resolve(catalog, _named(**more))
    catalog.named.clear()

    assert resolve(catalog, _named(**more)) == after


def test_what_is_kept_of_a_card_is_what_it_names(catalog):
    catalog.named.clear()
    resolve(catalog, _named(failure={"message": "out of memory " * 100}, measurements=[MEASURED]))
    (kept,) = catalog.named.values()

    assert (SizingCard(model="Qwen/Qwen3-8B"), (), None) == (kept.card, kept.measurements, kept.failure)
