"""Which single changes are proposed for a card: every rung of the ladder, with the card on either side of its condition."""

import msgspec
import pytest
import toy_physics
from msgspec.structs import replace
from toy_physics import MODEL, item, made

from tonnage.estimate.diagnosis import _judged, _searched, _shortage, most_likely, phase_of, remedies
from tonnage.estimate.remedies import PROPOSALS, Rung, Scene, ladder
from tonnage.spec.card import SizingCard
from tonnage.spec.model import Vision
from tonnage.units import GiB

VISION = Vision(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=14)
PLAIN = made([item("weights", GiB)])


def card(**fields):
    return msgspec.convert({"model": {"parameters": 7}} | fields, SizingCard)


def serving(engine="vllm", **fields):
    return card(serving={"engine": engine} | fields)


def training(**fields):
    return card(training=fields)


def rungs(name, question, *, model=MODEL, claimed=None):
    estimate = made([item("weights", GiB)], claimed=claimed)
    return [
        (r.field, r.from_, r.to) for r in PROPOSALS[name](Scene(question, replace(estimate, assumptions=()), model))
    ]


# ---- numbers that may be smaller ----


@pytest.mark.parametrize(("value", "found"), [(2, True), (1, False)])
def test_what_is_above_its_smallest_value_may_be_smaller(value, found):
    expected = [("/training/micro_batch_size", value, 1)] if found else []

    assert expected == rungs("micro_batch", training(micro_batch_size=value))


@pytest.mark.parametrize(("length", "found"), [(257, True), (256, False), (255, False)])
def test_lengths_are_not_cut_below_256(length, found):
    pairs = [("max_model_len", serving(max_model_len=length)), ("sequence_length", training(sequence_length=length))]
    for name, question in pairs:
        assert ([256] if found else []) == [to for field, _, to in rungs("length", question) if field.endswith(name)]


@pytest.mark.parametrize(
    ("engine", "field", "smallest"),
    [
        ("vllm", "max_num_batched_tokens", 512),
        ("sglang", "chunked_prefill_size", 512),
        ("llama.cpp", "n_ubatch", 64),
        ("tensorrt-llm", "max_num_tokens", 512),
    ],
)
def test_chunks_are_not_cut_below_what_an_engine_can_use(engine, field, smallest):
    question = serving(engine, **{field: smallest + 1})

    assert (f"/serving/{field}", smallest + 1, smallest) in rungs("chunk", question)
    assert [] == rungs("chunk", serving(engine, **{field: smallest}))


@pytest.mark.parametrize(
    ("engine", "field", "name"),
    [
        ("vllm", "max_num_seqs", "sequences"),
        ("sglang", "cuda_graph_max_bs", "sequences"),
        ("tensorrt-llm", "max_batch_size", "sequences"),
        ("llama.cpp", "n_parallel", "sequences"),
        ("vllm", "concurrency", "concurrency"),
        ("transformers", "batch_size", "batch"),
    ],
)
def test_requests_at_once_go_down_to_one(engine, field, name):
    assert [(f"/serving/{field}", 5, 1)] == rungs(name, serving(engine, **{field: 5}))


def test_layers_go_down_to_none_and_images_to_none():
    assert [("/serving/n_gpu_layers", 1, 0)] == rungs("layers", serving("llama.cpp", n_gpu_layers=1))
    assert [] == rungs("layers", serving("llama.cpp", n_gpu_layers=0))
    pictures = serving(multimodal={"images_per_prompt": 1})
    assert [("/serving/multimodal/images_per_prompt", 1, 0)] == rungs("images", pictures)


def test_a_number_that_searches_says_so():
    scene = Scene(training(micro_batch_size=4), PLAIN, MODEL)

    assert [True] == [r.search for r in PROPOSALS["micro_batch"](scene)]
    assert [False] == [r.search for r in PROPOSALS["checkpointing"](scene)]


def test_a_value_that_the_estimate_assumed_may_be_smaller_where_the_card_has_the_field():
    scene = Scene(training(), PLAIN, MODEL)  # the toy assumes a micro-batch of 8

    assert [8] == [r.from_ for r in PROPOSALS["micro_batch"](scene)]
    assert [] == list(PROPOSALS["micro_batch"](Scene(serving(), PLAIN, MODEL)))


# ---- switches ----


@pytest.mark.parametrize(
    ("name", "question", "expected"),
    [
        ("checkpointing", training(gradient_checkpointing="none"), "full"),
        ("checkpointing", training(gradient_checkpointing="full"), None),
        ("checkpointing", serving(), None),
        ("attention", training(attn_implementation="eager"), "flash_attention_2"),
        ("attention", training(attn_implementation="sdpa"), None),
        ("attention", training(attn_implementation="flash_attention_2"), None),
        ("loss", training(cross_entropy="full"), "fused_linear"),
        ("loss", training(cross_entropy="fused_linear"), None),
        ("implementation", training(optimizer_implementation="foreach"), "fused"),
        ("implementation", training(optimizer_implementation="fused"), None),
        ("in_backward", training(), True),
        ("in_backward", training(optimizer_in_backward=True), None),
        ("master", training(master_weights=True), False),
        ("master", training(master_weights=False), None),
        ("weight_dtype", training(weight_dtype="float32"), "bf16"),
        ("weight_dtype", training(weight_dtype="fp16"), None),
        ("weight_dtype", training(weight_dtype="bf16"), None),
        ("optimizer_offload", training(), True),
        ("optimizer_offload", training(offload={"optimizer": True}), None),
        ("activations_offload", training(), True),
        ("activations_offload", training(offload={"activations": True}), None),
        ("eager", serving(), True),
        ("eager", serving(enforce_eager=True), None),
        ("eager", serving("sglang", enforce_eager=True), True),
        ("eager", serving("sglang", enforce_eager=True, disable_cuda_graph=True), None),
        ("flash", serving("llama.cpp", flash_attn=False), True),
        ("flash", serving("llama.cpp", flash_attn=True), None),
        ("flash", serving("transformers", attn_implementation="eager"), "flash_attention_2"),
        ("flash", serving("transformers", attn_implementation="sdpa"), None),
    ],
)
def test_a_switch_is_proposed_unless_it_is_set_or_something_as_good_is(name, question, expected):
    assert ([] if expected is None else [expected]) == [to for _, _, to in rungs(name, question)]


# ---- formats and caches ----


def test_smaller_formats_are_those_of_the_engine_without_the_present_one():
    formats = ("gguf-q8-0", "gguf-q6-k", "gguf-q5-k-m", "gguf-q4-k-m", "gguf-q3-k-m")

    assert list(formats) == [to for _, _, to in rungs("formats", serving("llama.cpp"))]
    question = replace(serving("ollama"), weights=replace(card().weights, format="gguf-q6-k"))
    assert [("gguf-q6-k", name) for name in formats if name != "gguf-q6-k"] == [
        (have, to) for _, have, to in rungs("formats", question)
    ]
    assert ["fp8-per-channel-dynamic", "awq-w4-g128"] == [to for _, _, to in rungs("formats", serving())]
    assert ["bnb-int8", "bnb-nf4"] == [to for _, _, to in rungs("formats", serving("transformers"))]
    assert [] == rungs("formats", training())


def test_the_present_format_is_stated_or_the_models_own():
    assert ["bf16"] * 2 == [have for _, have, _ in rungs("formats", serving())]
    native = replace(MODEL, weight_format="awq-w4-g128")
    assert [("awq-w4-g128", "fp8-per-channel-dynamic")] == [
        (have, to) for _, have, to in rungs("formats", serving(), model=native)
    ]


def test_a_new_format_gives_up_stated_bytes():
    scene = Scene(serving(), PLAIN, MODEL)

    assert {(("/weights/bytes", None),)} == {r.also for r in PROPOSALS["formats"](scene)}


@pytest.mark.parametrize(
    ("engine", "dtype", "expected"),
    [
        ("vllm", None, ["fp8"]),
        ("vllm", "fp8_e4m3", []),
        ("llama.cpp", None, ["q8_0", "q4_0"]),
        ("llama.cpp", "q8_0", []),
        ("llama.cpp", "q4_0", []),
        ("mlx", None, []),
        ("transformers", None, ["kv-int8-per-token-head", "kv-quanto-4"]),
    ],
)
def test_smaller_caches_are_those_of_the_engine_unless_it_is_small_already(engine, dtype, expected):
    question = serving(engine, **({} if dtype is None else {"kv_cache_dtype": dtype}))

    assert [(dtype or "auto", to) for to in expected] == [(have, to) for _, have, to in rungs("kv_dtype", question)]


def test_training_has_no_cache_to_make_smaller():
    assert [] == rungs("kv_dtype", training())


# ---- the claim ----


@pytest.mark.parametrize(
    ("value", "claimed", "up", "down"),
    [
        (0.9, 1, [0.95], [0.85, 0.8]),
        (0.95, 1, [], [0.9, 0.85, 0.8]),
        (0.9, None, [], []),
        (0.91, 1, [0.95], [0.85, 0.8]),
        (0.86, 1, [0.95], [0.8]),
        (0.8, 1, [0.95], []),
    ],
)
def test_a_claim_may_be_larger_up_to_095_and_smaller_by_steps(value, claimed, up, down):
    question = serving(gpu_memory_utilization=value)

    assert up == [to for _, _, to in rungs("utilization", question, claimed=claimed)]
    assert down == [to for _, _, to in rungs("utilization_down", question, claimed=claimed)]


def test_an_engine_without_a_claim_has_none_to_change():
    assert [] == rungs("utilization", serving("llama.cpp"), claimed=1)
    assert [] == rungs("utilization_down", serving("llama.cpp"), claimed=1)


# ---- more GPUs ----


def test_tensor_and_pipeline_parallelism_double_where_the_engine_has_them():
    both = card(serving={"engine": "vllm"}, placement={"tensor_parallel_size": 2, "pipeline_parallel_size": 3})

    assert [("/placement/tensor_parallel_size", 2, 4)] == rungs("tensor", both)
    assert [("/placement/pipeline_parallel_size", 3, 6)] == rungs("pipeline", both)
    assert [("/placement/tensor_parallel_size", 1, 2)] == rungs("tensor", serving())
    assert [] == rungs("tensor", serving("mlx"))
    assert [] == rungs("tensor", training(framework="trl"))
    assert [("/placement/tensor_parallel_size", 1, 2)] == rungs("tensor", training(framework="megatron"))


@pytest.mark.parametrize(
    ("sharding", "also"), [(None, True), ("none", True), ("ddp", True), ("zero1", False), ("fsdp", False)]
)
def test_more_ranks_are_sharded_over_unless_they_are_already(sharding, also):
    question = training(**({} if sharding is None else {"sharding": sharding}))
    scene = Scene(replace(question, placement=replace(question.placement, data_parallel_size=3)), PLAIN, MODEL)
    (rung,) = PROPOSALS["ranks"](scene)

    assert (3, 6) == (rung.from_, rung.to)
    assert ((("/training/sharding", "zero3"),) if also else ()) == rung.also


def test_serving_has_no_ranks_to_shard_over():
    assert [] == rungs("ranks", serving())


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        (None, ["zero1", "zero2", "zero3", "fsdp"]),
        ("ddp", ["zero1", "zero2", "zero3", "fsdp"]),
        ("zero1", ["zero2", "zero3", "fsdp"]),
        ("distributed_optimizer", ["zero2", "zero3", "fsdp"]),
        ("zero2", ["zero3", "fsdp"]),
        ("fsdp_grad_op", ["zero3", "fsdp"]),
        ("zero3", []),
        ("fsdp", []),
        ("hsdp", []),
    ],
)
def test_only_stronger_sharding_is_proposed(sharding, expected):
    question = training(**({} if sharding is None else {"sharding": sharding}))
    question = replace(question, placement=replace(question.placement, data_parallel_size=2))

    assert expected == [to for _, _, to in rungs("sharding", question)]


def test_sharding_needs_two_ranks_and_torchtitan_has_one_kind():
    one = training()
    titan = training(framework="torchtitan")

    assert [] == rungs("sharding", one)
    two = replace(titan, placement=replace(titan.placement, data_parallel_size=2))
    assert ["fsdp"] == [to for _, _, to in rungs("sharding", two)]
    assert [] == rungs("sharding", replace(serving(), placement=two.placement))


# ---- training of less ----


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (None, ["adamw_8bit", "paged_adamw_8bit", "adafactor", "sgd"]),
        ("adamw", ["adamw_8bit", "paged_adamw_8bit", "adafactor", "sgd"]),
        ("adamw_8bit", ["paged_adamw_8bit", "adafactor", "sgd"]),
        ("lion_8bit", ["paged_adamw_8bit", "adafactor", "sgd"]),
        ("sgd", ["adamw_8bit", "paged_adamw_8bit", "adafactor"]),
    ],
)
def test_other_optimizers_are_proposed_but_not_a_second_one_in_8_bit(optimizer, expected):
    question = training(**({} if optimizer is None else {"optimizer": optimizer}))

    assert expected == [to for _, _, to in rungs("optimizer", question)]


@pytest.mark.parametrize(
    ("targets", "found"),
    [(None, True), (["q_proj", "up_proj"], True), (["q_proj", "o_proj"], False), (["q_proj"], False)],
)
def test_adapters_beyond_attention_may_go(targets, found):
    lora = {"rank": 8} | ({} if targets is None else {"target_modules": targets})
    expected = [["k_proj", "o_proj", "q_proj", "v_proj"]] if found else []

    assert expected == [to for _, _, to in rungs("targets", training(method="lora", lora=lora))]


def test_without_adapters_there_are_no_targets_to_cut():
    for question in (training(method="lora"), serving()):
        assert [] == rungs("targets", question)


@pytest.mark.parametrize(
    ("method", "lora", "expected"),
    [
        ("full", False, [("lora", 1), ("qlora", 4)]),
        ("lora", True, [("qlora", 3)]),
        ("lora", False, [("qlora", 4)]),
        ("dora", True, [("qlora", 3)]),
        ("qlora", True, []),
    ],
)
def test_a_method_that_trains_less_brings_what_it_needs(method, lora, expected):
    question = training(**{"method": method} | ({"lora": {"rank": 8}} if lora else {}))
    found = PROPOSALS["method"](Scene(question, PLAIN, MODEL))

    assert expected == [(r.to, len(r.also)) for r in found]


def test_adapters_that_nobody_described_have_rank_16():
    first, _ = PROPOSALS["method"](Scene(training(method="full"), PLAIN, MODEL))

    assert (("/training/lora/rank", 16),) == first.also


def test_serving_has_no_method_to_change():
    assert [] == rungs("method", serving())


# ---- images ----


def test_only_a_model_with_vision_that_serves_can_leave_it_out():
    seeing = replace(MODEL, vision=VISION)
    field = "/serving/multimodal/language_model_only"

    assert [(field, False, True)] == rungs("images", serving(), model=seeing)
    assert [] == rungs("images", serving())
    assert [] == rungs("images", training(), model=seeing)
    assert [] == rungs("images", serving(multimodal={"language_model_only": True}), model=seeing)


# ---- the ladder ----


def fields(question, phase):
    return [r.field for r in ladder(Scene(question, PLAIN, MODEL), phase)]


@pytest.mark.parametrize(
    ("phase", "same"), [("profile", "forward"), ("prefill", "forward"), ("decode", "evaluation"), ("idle", "nonsense")]
)
def test_phases_of_other_work_mean_the_nearest_of_training(phase, same):
    assert fields(training(), same) == fields(training(), phase)


@pytest.mark.parametrize(
    ("phase", "same"),
    [("idle", "decode"), ("generation", "decode"), ("forward", "prefill"), ("nonsense", "kv_allocation")],
)
def test_phases_of_other_work_mean_the_nearest_of_serving(phase, same):
    question = serving(max_model_len=4096, max_num_seqs=8, concurrency=4)

    assert fields(question, same) == fields(question, phase)


def test_no_rung_of_training_stands_twice():
    found = [(r.field, str(r.to)) for r in ladder(Scene(training(), PLAIN, MODEL), "backward")]

    assert len(set(found)) == len(found)


def test_weights_alone_have_formats_and_more_gpus():
    assert {"/weights/format", "/placement/tensor_parallel_size", "/placement/pipeline_parallel_size"} >= set(
        fields(card(), "load")
    )


# ---- prices of changes ----


def test_a_searched_change_is_half_where_nothing_says_what_was_missing():
    rung = Rung("/x", 9, 3, "", search=True)

    assert 4 == _searched("met", rung, lambda _: None, None)
    assert 4 == _searched(None, rung, lambda _: None, 5)
    assert 3 == _searched("met", Rung("/x", 5, 3, "", search=True), lambda _: None, None)


def searched(met_up_to, confirmed_up_to, *, shortage=None, start=1000, smallest=1):
    def measured(value):
        verdict = "met" if value <= met_up_to else "needs_confirmation" if value <= confirmed_up_to else "excluded"
        return replace(PLAIN, verdict=verdict), start - value

    return _searched("excluded", Rung("/x", start, smallest, "", search=True), measured, shortage)


@pytest.mark.parametrize("limit", [1, 37, 500, 999])
def test_the_largest_value_that_is_met_is_found_to_the_grain(limit):
    found = searched(limit, 1000)

    assert limit - 8 < found <= limit
    assert found % 8 == 0 or found in (1, 999)


def test_what_only_needs_confirmation_is_taken_before_half():
    assert 793 <= searched(0, 800) <= 800
    assert 500 == searched(0, 0)


def test_a_change_makes_up_the_shortage():
    assert 593 <= searched(1000, 1000, shortage=400) <= 600
    assert 999 == searched(1000, 1000, shortage=1)


@pytest.mark.parametrize(
    ("verdict", "saves", "shortage", "expected"),
    [
        ("met", 5, 6, "needs_confirmation"),
        ("met", 6, 6, "met"),
        ("met", 0, None, "met"),
        ("excluded", 1, 2, "excluded"),
        (None, 1, 2, None),
    ],
)
def test_a_change_that_saves_less_than_was_missing_is_not_met(verdict, saves, shortage, expected):
    assert expected == _judged(verdict, saves, shortage)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"requested_bytes": 7, "free_bytes": 3}, 4),
        ({"requested_bytes": 3, "free_bytes": 7}, 0),
        ({"kv_needed_bytes": 9, "kv_available_bytes": 2}, 7),
        ({"requested_bytes": 7}, None),
        ({"free_bytes": 7, "kv_needed_bytes": 9}, None),
    ],
)
def test_the_shortage_is_what_was_asked_for_less_what_was_there(numbers, expected):
    assert expected == _shortage(numbers)


@pytest.mark.parametrize(("saved", "found"), [(201, True), (200, False)])
def test_a_change_is_worth_naming_from_one_part_in_200_on(saved, found):
    whole = 200 * 200
    before = made([item("weights", whole)])

    def after(question):
        changed = question.training.gradient_checkpointing == "full"
        return made([item("weights", whole - saved)]) if changed else before

    question = training(gradient_checkpointing="none")
    found_fields = [r.field for r in remedies(Scene(question, before, MODEL), "backward", after)]
    assert found is ("/training/gradient_checkpointing" in found_fields)


def test_a_change_that_helps_the_verdict_is_named_however_little_it_saves():
    size = toy_physics.USABLE

    def after(question):
        return made([item("weights", size if question.training.gradient_checkpointing == "full" else size + 1)])

    question = training(gradient_checkpointing="none")
    found = remedies(Scene(question, after(question), MODEL), "backward", after)
    assert [("/training/gradient_checkpointing", 1, "met")] == [(r.field, r.saves_bytes, r.verdict) for r in found]


def test_where_a_pool_is_claimed_what_is_required_has_to_shrink():
    before = made([item("weights", 10 * GiB)], claimed=1)

    def after(question):
        less = GiB if question.training.gradient_checkpointing == "full" else 0
        return replace(before, required=replace(before.required, low=10 * GiB - less, expected=10 * GiB - less))

    question = training(gradient_checkpointing="none")
    (found,) = remedies(Scene(question, before, MODEL), "backward", after)
    assert GiB == found.saves_bytes


# ---- what explains a difference ----


def test_the_half_width_on_the_side_of_the_difference_counts():
    sure = item("weights", 100, basis="exact")
    low = replace(sure, component="low", bytes=replace(sure.bytes, low=50))
    high = replace(sure, component="high", bytes=replace(sure.bytes, high=150))

    assert "high" == most_likely((low, high), 1).component
    assert "low" == most_likely((high, low), 0).component


@pytest.mark.parametrize(
    ("basis", "doubt"),
    [
        ("unknown", 100),
        ("assumed", 50),
        ("calibrated", 30),
        ("derived", 10),
        ("measured", 5),
        ("exact", 0),
        ("user", 0),
    ],
)
def test_the_doubt_in_how_an_item_is_known_is_a_part_of_its_size(basis, doubt):
    doubted = item("doubted", 100, basis=basis)

    def rival(half):
        sure = item("rival", 100, basis="exact")
        return replace(sure, bytes=replace(sure.bytes, high=100 + half))

    assert "rival" == most_likely((doubted, rival(doubt + 1)), 1).component
    if doubt:
        assert "doubted" == most_likely((rival(doubt - 1), doubted), 1).component


def test_of_items_with_equal_room_the_larger_explains_it():
    small, large = item("small", 5, basis="exact"), item("large", 9, basis="exact")

    assert "large" == most_likely((small, large), 1).component


def test_a_phase_is_found_by_name_or_the_peaks_or_the_first():
    load, peak = made([item("a", 1)], phase="load").phases[0], PLAIN.phases[0]
    both = replace(PLAIN, phases=(load, peak))

    assert load is phase_of(both, "load")
    assert peak is phase_of(both, "merge")
    assert load is phase_of(replace(both, phases=(load,)), "merge")
