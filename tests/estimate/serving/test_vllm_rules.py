"""Each rule of vLLM's settings, on either side of its condition."""

from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from tonnage.estimate.serving import vllm_settings as rules
from tonnage.laws import cuda_graphs
from tonnage.spec.card import Vllm
from tonnage.spec.model import Attention, Layer, LayerGroup, Model, Moe, Recurrent, Vision

ATTENTION = Attention(kind="full", num_attention_heads=1, num_key_value_heads=1, head_dim=1, v_head_dim=1)
STATE = Recurrent(kind="mamba2", conv_channels=1, conv_kernel=1, state_heads=1, state_rows=1, state_columns=1)
EXPERTS = Moe(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=1)
VISION = Vision(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=14)
FULL = Layer(attention=ATTENTION)
SLIDING = Layer(attention=replace(ATTENTION, kind="sliding", window=4))
LATENT = Layer(attention=replace(ATTENTION, kind="mla"))
SPARSE = Layer(attention=replace(ATTENTION, kind="mla", index_topk=8))
RECURRENT = Layer(recurrent=STATE)
MIXTURE = Layer(attention=ATTENTION, moe=EXPERTS)


def model(*layers, **more):
    groups = tuple(LayerGroup(layer, (n,)) for n, layer in enumerate(layers or (FULL,)))
    return Model(**{"parameters_total": 1, "layers": groups, "max_position_embeddings": 1000} | more)


class Release(SimpleNamespace):
    """As much of a release as a rule reads; found by identity like the real one."""

    __hash__ = object.__hash__


def release(**more):
    usual = {
        "engine_core": "v1", "v0_below_compute_capability": None, "v0_weight_formats": (), "v0_model_types": (),
        "v0_features": (), "v1_quantized_kv_majors": (9,), "model_runner_v2": "none", "v2_model_types": ("mine",),
        "v2_speculators": ("eagle",), "recurrent_prefix_cache": "none", "every_state_model_types": ("each",),
        "checkpointed_states": (), "block_size": 16, "mla_block_sizes": {"10": 128}, "v0_chunked_prefill_tokens": 512,
        "capture_limits_by_model_type": {}, "capture_limit": 512, "capture_limit_blackwell": None,
        "captures_by_requests": True, "capture_step_above_256": 16, "since": "0.1", "gpu_memory_utilization": 0.9,
        "cudagraph_mode": "full_and_piecewise", "awq_matmul": "marlin",
        "tiers": (
            tier("amd", names=("mi300",)), tier("big", minimum=70, except_names=("a100",)), tier("small"),
        ),
    }  # fmt: skip
    return Release(**usual | more)


def tier(name, *, names=(), minimum=0, except_names=()):
    return SimpleNamespace(
        name=name, names=names, minimum_device_bytes=minimum, except_names=except_names, max_num_seqs=256,
        max_num_batched_tokens=2048,
    )  # fmt: skip


class Gpu(SimpleNamespace):
    __hash__ = object.__hash__


def gpu(**more):
    usual = {
        "compute_capability": "9.0",
        "id": "card",
        "name": "Card",
        "memory_device_bytes": 80,
        "memory_usable_bytes": 75,
    }
    return Gpu(**usual | {"vendor": "nvidia"} | more)


def workload(serving=None, made=None, board=None, *, family="plain", kind="plain", formats=None, stages=1, form="bf16"):
    return SimpleNamespace(
        serving=serving or Vllm(), model=made or model(), gpu=board, kv_formats=formats,
        weight_format=SimpleNamespace(family=family, kind=kind, id=form),
        placement=SimpleNamespace(pipeline_parallel_size=stages),
    )  # fmt: skip


def _speculating(method):
    return msgspec.convert({"speculative": {"method": method, "num_speculative_tokens": 2}, "engine": "vllm"}, Vllm)


# ---- the card ----


@pytest.mark.parametrize(
    ("capability", "expected"), [("9.0", (9, 0)), ("12.1", (12, 1)), ("8", (8, 0)), ("gfx942", (0, 0)), (None, (0, 0))]
)
def test_the_numbers_of_a_compute_capability(capability, expected):
    assert expected == rules.compute_capability(gpu(compute_capability=capability))
    assert (0, 0) == rules.compute_capability(None)


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        (None, "small"),
        (gpu(memory_device_bytes=70), "big"),
        (gpu(memory_device_bytes=69), "small"),
        (gpu(memory_device_bytes=None, memory_usable_bytes=70), "big"),
        (gpu(name="A100 80GB"), "small"),
        (gpu(id="mi300x"), "amd"),
    ],
)
def test_default_limits_are_those_of_the_cards_class(board, expected):
    assert expected == rules.batch_tier(release(), board).name


def test_a_card_that_no_class_takes_is_of_the_last():
    only = release(tiers=(tier("amd", names=("mi300",)), tier("big", minimum=70)))

    assert "big" == rules.batch_tier(only, gpu(memory_device_bytes=1)).name


# ---- the two engines ----


@pytest.mark.parametrize(
    ("core", "least", "expected"), [("v0", "0.0", True), ("v1", "0.0", False), ("v1", "8.0", True), ("v1", None, True)]
)
def test_which_releases_bring_the_old_engine(core, least, expected):
    assert expected is rules.has_v0(release(engine_core=core, v0_below_compute_capability=least))


@pytest.mark.parametrize(
    ("more", "at", "expected"),
    [
        ({}, (9, 0), False),
        ({"engine_core": "v0"}, (9, 0), True),
        ({"v0_below_compute_capability": "8.0"}, (7, 5), True),
        ({"v0_below_compute_capability": "8.0"}, (8, 0), False),
        ({"v0_below_compute_capability": "8.9"}, (8, 6), True),
        ({"v0_below_compute_capability": "8.0"}, (0, 0), False),
        ({"v0_weight_formats": ("plain",)}, (9, 0), True),
        ({"v0_model_types": ("unknown",)}, (9, 0), True),
        ({"v0_features": ("pipeline",)}, (9, 0), False),
    ],
)
def test_when_the_old_engine_runs_a_card(more, at, expected):
    assert expected is rules.runs_v0(release(**more), *at, workload())


def half(elements=1, size=2):
    return SimpleNamespace(block_elements=elements, block_bytes=size)


@pytest.mark.parametrize(
    ("feature", "asked", "major", "expected"),
    [
        ("lora", workload(), 9, False),
        ("lora", workload(Vllm(lora={"max_loras": 1})), 9, True),
        ("pipeline", workload(stages=2), 9, True),
        ("pipeline", workload(stages=1), 9, False),
        ("quantized_kv", workload(formats=(half(), half(size=1))), 8, True),
        ("quantized_kv", workload(formats=(half(), half(size=1))), 9, False),
        ("quantized_kv", workload(formats=(half(), half(size=1))), 0, False),
        ("quantized_kv", workload(formats=(half(), half())), 8, False),
        ("quantized_kv", workload(), 8, False),
        ("quantized_kv", workload(formats=(half(32, 34), half(32, 34))), 8, True),
        ("fp32", workload(Vllm(dtype="float32")), 9, True),
        ("fp32", workload(Vllm(dtype="FP32")), 9, True),
        ("fp32", workload(Vllm(dtype="bfloat16")), 9, False),
        ("fp32", workload(), 9, False),
        ("recurrent", workload(made=model(RECURRENT)), 9, True),
        ("recurrent", workload(), 9, False),
        ("speculative", workload(_speculating("ngram")), 9, True),
        ("speculative", workload(), 9, False),
        ("draft_model", workload(_speculating("draft_model")), 9, True),
        ("draft_model", workload(_speculating("ngram")), 9, False),
        ("offload", workload(Vllm(cpu_offload_gb=1.0)), 9, True),
        ("offload", workload(Vllm(cpu_offload_gb=0.0)), 9, False),
        ("amd", workload(board=gpu(vendor="amd")), 9, True),
        ("amd", workload(board=gpu()), 9, False),
        ("amd", workload(), 9, False),
    ],
)
def test_what_counts_as_use_of_a_feature(feature, asked, major, expected):
    assert expected is rules._uses(feature, release(), asked, major)
    assert expected is rules.runs_v0(release(v0_features=(feature,)), major, 0, asked)


# ---- the second runner ----


@pytest.mark.parametrize(
    ("rule", "made", "asked", "legacy", "expected"),
    [
        ("none", model(), {}, False, False),
        ("all", model(), {}, False, True),
        ("all", model(), {}, True, False),
        ("listed", model(model_type="mine"), {}, False, True),
        ("listed", model(MIXTURE, model_type="mine"), {}, False, True),
        ("listed", model(), {}, False, False),
        ("listed_plain", model(model_type="mine"), {}, False, True),
        ("listed_plain", model(MIXTURE, model_type="mine"), {}, False, False),
        ("listed_plain", model(model_type="mine"), {"kind": "linear"}, False, False),
        ("listed_plain", model(), {}, False, False),
        ("dense", model(), {}, False, True),
        ("dense", model(MIXTURE), {}, False, False),
        ("dense", model(RECURRENT), {}, False, False),
        ("dense", model(MIXTURE, model_type="mine"), {}, False, True),
        ("all", model(), {"serving": _speculating("eagle")}, False, True),
        ("all", model(), {"serving": _speculating("qwen3_next_mtp")}, False, True),
        ("all", model(), {"serving": _speculating("ngram")}, False, False),
        ("all", model(), {"serving": Vllm(use_v2_model_runner=False)}, False, False),
        ("listed", model(), {"serving": Vllm(use_v2_model_runner=True)}, False, True),
        ("none", model(), {"serving": Vllm(use_v2_model_runner=True)}, False, False),
    ],
)
def test_when_the_second_runner_is_the_default(rule, made, asked, legacy, expected):
    assert expected is rules.runs_v2(release(model_runner_v2=rule), made, workload(made=made, **asked), legacy)


# ---- prefixes and states ----


@pytest.mark.parametrize(
    ("made", "asked", "legacy", "rule", "expected"),
    [
        (model(), None, False, "none", True),
        (model(), None, True, "none", False),
        (model(), False, False, "none", False),
        (model(), True, True, "none", True),
        (model(RECURRENT), True, False, "none", False),
        (model(RECURRENT), None, True, "none", False),
        (model(RECURRENT), True, True, "none", True),
        (model(RECURRENT), None, False, "default", True),
        (model(RECURRENT), None, False, "asked", False),
        (model(RECURRENT), True, False, "asked", True),
        (model(RECURRENT), False, False, "default", False),
    ],
)
def test_when_prefixes_are_shared(made, asked, legacy, rule, expected):
    serving = Vllm(enable_prefix_caching=asked)

    assert expected is rules.caches_prefixes(release(recurrent_prefix_cache=rule), made, serving, legacy)


@pytest.mark.parametrize(
    ("made", "more", "expected"),
    [
        (model(), {}, 0),
        (model(RECURRENT), {}, 1),
        (model(RECURRENT), {"checkpointed_states": ("mamba2",)}, 2),
        (model(RECURRENT, model_type="each"), {}, 0),
    ],
)
def test_states_that_the_prefix_cache_keeps(made, more, expected):
    assert expected == rules.kept_states(release(**more), made)


# ---- the architecture ----


def test_what_settings_ask_of_an_architecture():
    def kinds(*layers):
        found = rules.traits(model(*layers))
        return found.experts, found.recurrent, found.mla, found.sparse, found.windows

    assert (False, False, False, False, False) == kinds(FULL)
    assert (True, False, False, False, False) == kinds(FULL, MIXTURE)
    assert (False, True, False, False, False) == kinds(FULL, RECURRENT)
    assert (False, False, True, False, False) == kinds(LATENT)
    assert (False, False, True, True, False) == kinds(SPARSE)
    assert (False, False, False, False, True) == kinds(FULL, SLIDING)
    assert kinds(Layer(attention=replace(ATTENTION, kind="chunked")))[4]


@pytest.mark.parametrize(
    ("scaling", "more", "expected"),
    [
        (None, {}, 1000),
        ({"rope_type": "yarn", "factor": 4.0}, {}, 4000),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 300}, {}, 1200),
        ({"type": "yarn", "factor": 2}, {}, 2000),
        ({"rope_type": "yarn"}, {}, 1000),
        ({"rope_type": "linear", "factor": 2.5}, {}, 2500),
        ({"rope_type": "dynamic", "factor": 2}, {}, 2000),
        ({"rope_type": "dynamic", "factor": 2}, {"model_type": "gemma3_text"}, 1000),
        ({"rope_type": "llama3", "factor": 8.0}, {}, 1000),
    ],
)
def test_the_longest_length_is_stretched_as_vllm_does(scaling, more, expected):
    assert expected == rules._native_length(model(rope_scaling=scaling, **more))


@pytest.mark.parametrize(
    ("stated", "form", "kind", "own", "expected"),
    [
        ("float16", "bf16", "plain", "bf16", "fp16"),
        ("auto", "fp16", "plain", "bf16", "fp16"),
        (None, "bf16", "plain", "fp16", "bf16"),
        (None, "fp32", "plain", "bf16", "fp16"),
        (None, "awq", "linear", "fp16", "fp16"),
        (None, "awq", "linear", "fp32", "fp16"),
        (None, "odd", "plain", "bf16", "bf16"),
    ],
)
def test_the_plain_dtype(stated, form, kind, own, expected):
    asked = workload(Vllm(dtype=stated), model(dtype=own), form=form, kind=kind)

    assert expected == rules.plain_dtype(asked)


@pytest.mark.parametrize(
    ("vision", "limits", "expected"),
    [
        (None, None, False),
        (VISION, None, True),
        (VISION, {}, True),
        (VISION, {"images_per_prompt": 0}, True),
        (VISION, {"images_per_prompt": 0, "videos_per_prompt": 0}, False),
        (VISION, {"images_per_prompt": 0, "videos_per_prompt": 1}, True),
        (VISION, {"language_model_only": True}, False),
    ],
)
def test_when_the_tower_is_loaded(vision, limits, expected):
    serving = msgspec.convert({"engine": "vllm"} | ({} if limits is None else {"multimodal": limits}), Vllm)
    assert expected is rules.profiles_images(model(vision=vision), serving)


# ---- batches ----


def reader(serving=None, made=None, board=None, **more):
    made = made or model()
    return rules._Reader(serving or Vllm(), release(**more), made, board, workload(made=made))


@pytest.mark.parametrize(
    ("stated", "length", "expected", "assumed"),
    [
        ({}, 1000, (256, 2048), 2),
        ({}, 4, (256, 1024), 2),
        ({}, 8, (256, 2048), 2),
        ({"max_num_seqs": 4}, 100, (4, 400), 1),
        ({"max_num_batched_tokens": 100}, 1000, (100, 100), 1),
        ({"max_num_seqs": 300, "max_num_batched_tokens": 100}, 1000, (300, 100), 0),
    ],
)
def test_the_batch_where_the_caller_leaves_it_open(stated, length, expected, assumed):
    found = reader(Vllm(**stated))

    assert expected == found.batch(length, False)
    assert assumed == len(found.notes)


def test_the_old_engines_batch_is_the_longest_request():
    assert (256, 7000) == reader(v0_chunked_prefill_tokens=0).batch(7000, True)
    assert (9, 11) == reader(Vllm(max_num_seqs=9, max_num_batched_tokens=11)).batch(7000, True)


@pytest.mark.parametrize(
    ("length", "serving", "made", "chunk", "expected"),
    [
        (rules._V0_CHUNKED_ABOVE + 1, Vllm(), model(), 512, 512),
        (rules._V0_CHUNKED_ABOVE, Vllm(), model(), 512, rules._V0_CHUNKED_ABOVE),
        (rules._V0_CHUNKED_ABOVE + 1, Vllm(), model(), 0, rules._V0_CHUNKED_ABOVE + 1),
        (rules._V0_CHUNKED_ABOVE + 1, Vllm(), model(SLIDING), 512, rules._V0_CHUNKED_ABOVE + 1),
        (rules._V0_CHUNKED_ABOVE + 1, _speculating("ngram"), model(), 512, rules._V0_CHUNKED_ABOVE + 1),
        (rules._V0_CHUNKED_ABOVE + 1, Vllm(lora={"max_loras": 1}), model(), 512, rules._V0_CHUNKED_ABOVE + 1),
        (rules._V0_CHUNKED_ABOVE + 1, Vllm(), model(vision=VISION), 512, rules._V0_CHUNKED_ABOVE + 1),
        (10, Vllm(), model(), 512, rules._SMALLEST_BATCH),
        (10, Vllm(), model(vision=VISION), 512, rules._MULTIMODAL_BATCH),
    ],
)
def test_long_requests_of_plain_models_are_chunked_by_the_old_engine(length, serving, made, chunk, expected):
    assert expected == reader(serving, made, v0_chunked_prefill_tokens=chunk).unchunked_tokens(length)


@pytest.mark.parametrize(
    ("made", "major", "legacy", "expected"),
    [
        (model(), 10, False, 16),
        (model(LATENT), 10, False, 128),
        (model(LATENT), 9, False, 16),
        (model(LATENT), 10, True, 16),
        (model(SPARSE), 9, False, rules._SPARSE_BLOCK),
        (model(SPARSE), 9, True, rules._SPARSE_BLOCK),
    ],
)
def test_blocks_of_latent_attention_are_larger_on_some_cards(made, major, legacy, expected):
    assert expected == reader(made=made).block(major, legacy)


# ---- graphs ----


def captured(serving=None, made=None, *, seqs=64, tokens=2048, drafts=0, legacy=False, major=9, **more):
    return reader(serving, made, **more).captures(seqs, tokens, drafts, legacy, major)


def sizes(largest, step=16):
    return cuda_graphs.capture_sizes(largest=largest, step_above_256=step)


def largest(seqs, limit=512, drafts=0, tokens=2048):
    return cuda_graphs.largest_capture(
        max_num_seqs=seqs, tokens_per_request=1 + drafts, limit=limit, max_num_batched_tokens=tokens
    )


def test_graphs_that_the_caller_decides():
    assert () == captured(Vllm(enforce_eager=True))
    assert (1, 2, 16) == captured(Vllm(cudagraph_capture_sizes=[16, 1, 2]))
    assert sizes(100) == captured(Vllm(cudagraph_max_capture_size=100))


def test_graphs_of_the_old_engine():
    assert cuda_graphs.decode_capture_sizes(max_num_seqs=64) == captured(legacy=True)
    assert cuda_graphs.decode_capture_sizes(max_num_seqs=8) == captured(Vllm(cudagraph_max_capture_size=8), legacy=True)


def test_graphs_by_requests_or_by_the_releases_limit():
    assert sizes(largest(64)) == captured()
    assert sizes(largest(64, drafts=2)) == captured(drafts=2)
    assert sizes(largest(512)) == captured(captures_by_requests=False)
    assert sizes(largest(512), 8) == captured(captures_by_requests=False, capture_step_above_256=8)
    assert sizes(
        largest(
            300,
            tokens=40,
        )
    ) == captured(seqs=300, tokens=40)


def test_a_limit_of_its_own_on_blackwell():
    more = {"captures_by_requests": False, "capture_limit_blackwell": 1024}

    assert sizes(largest(1024, limit=1024)) == captured(major=10, **more)
    assert sizes(largest(512)) == captured(major=9, **more)
    assert sizes(largest(512)) == captured(major=10, captures_by_requests=False)


def test_a_model_type_with_limits_of_its_own():
    own = {"capture_limits_by_model_type": {"mine": 200}}
    mine = model(model_type="mine")

    assert sizes(200, 16) == captured(made=mine, capture_step_above_256=8, **own)
    assert sizes(50, 16) == captured(made=mine, tokens=50, **own)
    assert sizes(100) == captured(Vllm(cudagraph_max_capture_size=100), mine, **own)
    assert sizes(largest(64)) == captured(**own)


@pytest.mark.parametrize(
    ("matmul", "family", "major", "expected"),
    [
        ("marlin", "awq", 8, "marlin"),
        ("marlin", "awq", 7, "dequantize"),
        ("dequantize", "awq", 9, "dequantize"),
        ("split", "awq", 9, "split"),
        ("split", "gptq", 9, None),
    ],
)
def test_marlin_multiplies_awq_weights_on_gpus_of_its_time_only(matmul, family, major, expected):
    workload = SimpleNamespace(weight_format=SimpleNamespace(family=family))

    assert expected == rules.awq_matmul(release(awq_matmul=matmul), workload, major)
