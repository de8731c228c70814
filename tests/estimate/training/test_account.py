"""Jobs as accounts: items, phases, counters, what each setting saves."""

import msgspec
import pytest
from asking import LLAMA, PARAMETERS, allocated, answer, card, catalog, item, phase

from tonnage.catalog import resolve
from tonnage.estimate import estimate
from tonnage.spec.card import SizingCard
from tonnage.units import format_size

WEIGHTS = 2 * PARAMETERS
CHECKPOINTED = {"gradient_checkpointing": "full"}
MIXTURE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 8, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8,
}  # fmt: skip
LORA = {"method": "lora", "lora": {"rank": 16, "target_modules": ["all-linear"], "dropout": 0.0}}


def test_full_training_in_bf16_holds_weights_gradients_and_two_states():
    found = answer(**CHECKPOINTED)

    assert item(found, "weights") == pytest.approx(WEIGHTS, rel=1e-4)
    assert item(found, "optimizer_states") == 2 * WEIGHTS
    assert item(found, "gradients", "optimizer_step") == WEIGHTS
    assert found.model.parameters.trainable == PARAMETERS


def test_items_add_up_to_the_total_of_their_phase():
    for found in (answer(), answer(**LORA), answer(weights="bnb-nf4", method="qlora", **CHECKPOINTED)):
        for part in found.phases:
            by_counter = {
                c: sum(i.bytes.expected for i in part.items if i.counter == c)
                for c in ("allocated", "reserved", "device")
            }

            assert part.total.allocated.expected == by_counter["allocated"]
            assert part.total.reserved.expected == by_counter["allocated"] + by_counter["reserved"]
            assert part.total.device.expected == sum(by_counter.values())


def test_peak_is_the_largest_phase_and_names_the_moment():
    found = answer(**CHECKPOINTED)

    assert allocated(found) == max(p.total.allocated.expected for p in found.phases)
    details = {i.detail for i in phase(found, found.peak.phase).items if i.component in ("activations", "logits")}
    backward = {"backward of the first layer", "backward of the last layer", "gradient of the embedding"}
    assert details <= {"loss, forward", "loss, backward"} | backward


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (CHECKPOINTED, {}),
        ({"attn_implementation": "flash_attention_2"}, {"attn_implementation": "eager"}),
        ({"optimizer": "adamw_8bit"} | CHECKPOINTED, CHECKPOINTED),
        ({"optimizer": "sgd"} | CHECKPOINTED, {"optimizer": "adamw_8bit"} | CHECKPOINTED),
        (LORA | CHECKPOINTED, CHECKPOINTED),
        (LORA | CHECKPOINTED | {"method": "qlora", "weights": "bnb-nf4"}, LORA | CHECKPOINTED),
        ({"cross_entropy": "fused_linear"} | CHECKPOINTED | LORA, {"cross_entropy": "full"} | CHECKPOINTED | LORA),
        ({"micro_batch_size": 1}, {"micro_batch_size": 2}),
        ({"sequence_length": 1024}, {"sequence_length": 2048}),
        ({"weights": "bf16"}, {"weights": "fp32"}),
        ({"optimizer_implementation": "fused"} | CHECKPOINTED, {"optimizer_implementation": "foreach"} | CHECKPOINTED),
        ({"optimizer_in_backward": True} | CHECKPOINTED, CHECKPOINTED),
        (LORA | CHECKPOINTED, {"method": "dora"} | {"lora": LORA["lora"]} | CHECKPOINTED),
        ({"offload": {"optimizer": True}} | CHECKPOINTED, CHECKPOINTED),
        ({"method": "galore", "optimizer": "galore_adamw"} | CHECKPOINTED, CHECKPOINTED),
        ({"method": "lisa"} | CHECKPOINTED, CHECKPOINTED),
        ({"method": "badam"} | CHECKPOINTED, {"method": "lisa"} | CHECKPOINTED),
    ],
)
def test_what_saves_memory_saves_memory(less, more):
    assert allocated(answer(**less)) < allocated(answer(**more))


@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp"])
def test_more_ranks_hold_less(sharding):
    sizes = [
        allocated(answer(sharding=sharding, placement={"data_parallel_size": n}, **CHECKPOINTED)) for n in (2, 4, 8)
    ]

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_sharding_more_kinds_of_state_holds_less():
    def size(sharding):
        return allocated(answer(sharding=sharding, placement={"data_parallel_size": 8}, **CHECKPOINTED))

    assert size("zero3") < size("zero2") <= size("zero1")
    assert size("fsdp") < size("fsdp_grad_op")


def test_accumulation_with_fsdp_1_keeps_whole_gradients():
    def gradients(**training):
        return item(
            answer(sharding="fsdp", placement={"data_parallel_size": 8}, **CHECKPOINTED, **training), "gradients"
        )

    assert gradients(gradient_accumulation_steps=4) >= 0.99 * WEIGHTS > 4 * gradients()


def test_hybrid_sharding_stays_within_a_host():
    one, four = (answer(sharding="hsdp", placement={"data_parallel_size": n}, **CHECKPOINTED) for n in (8, 32))

    assert allocated(one) == allocated(four)
    assert "hsdp shards within" in "".join(a.why for a in four.assumptions)


def test_ddp_adds_a_copy_of_the_gradients():
    alone, both = answer(**CHECKPOINTED), answer(sharding="ddp", placement={"data_parallel_size": 2}, **CHECKPOINTED)

    assert item(both, "gradient_buckets") == WEIGHTS
    assert item(alone, "gradient_buckets") == 0


def test_an_interleaved_schedule_holds_more_micro_batches_on_the_first_stage():
    stated = {"framework": "megatron", "placement": {"pipeline_parallel_size": 4}, "gradient_accumulation_steps": 16}
    plain, interleaved = (answer(virtual_pipeline_model_parallel_size=v, **stated) for v in (1, 4))

    held = [
        next(i.bytes.expected for i in a.gpus[0].items if i.component == "activations") for a in (plain, interleaved)
    ]

    assert held[1] > held[0]


def test_pipeline_stages_hold_their_layers_and_the_first_most_micro_batches():
    found = answer(framework="megatron", placement={"pipeline_parallel_size": 4}, gradient_accumulation_steps=16)
    first, *_, last = found.gpus

    assert [g.stage for g in found.gpus] == [0, 1, 2, 3]
    activations = [
        max(i.bytes.expected for p in g.phases for i in p.items if i.component == "activations") for g in (first, last)
    ]
    assert activations[0] > activations[1]


def test_tensor_parallelism_divides():
    one, two = (answer(framework="megatron", placement={"tensor_parallel_size": n}) for n in (1, 2))

    assert item(two, "weights") < 0.52 * item(one, "weights")


def test_offload_moves_states_to_the_host():
    found = answer(
        sharding="zero3", placement={"data_parallel_size": 4}, offload={"optimizer": True, "parameters": True}
    )

    assert item(found, "optimizer_states") == 0
    assert found.host.memory.expected > 12 * PARAMETERS


def test_paged_states_are_on_the_device_only_at_the_high_end():
    found = answer(optimizer="paged_adamw_8bit", **CHECKPOINTED)
    paged = [i for i in phase(found, "backward").items if i.component == "optimizer_states"]

    assert [i.counter for i in paged] == ["device"]
    assert paged[0].bytes.expected == 0 < paged[0].bytes.high


def test_paged_states_are_cut_as_others_are_by_sharding():
    alone = answer(optimizer="paged_adamw", **CHECKPOINTED)
    cut = answer(optimizer="paged_adamw", sharding="fsdp", placement={"data_parallel_size": 8}, **CHECKPOINTED)

    assert paged(alone).bytes.high / 8 == pytest.approx(paged(cut).bytes.high, rel=1e-3)


def paged(found):
    return next(i for i in phase(found, "backward").items if i.component == "optimizer_states")


@pytest.mark.parametrize(
    ("method", "stated", "taken"),
    [
        ("galore", "adamw", "galore_adamw"),
        ("galore", "adamw_8bit", "galore_adamw_8bit"),
        ("galore", "adafactor", "galore_adafactor"),
        ("q-galore", "adamw", "q_galore_adamw_8bit"),
        ("apollo", "adamw", "apollo_adamw"),
    ],
)
def test_a_method_of_projected_gradients_goes_around_the_optimizer_stated(method, stated, taken):
    found = answer(method=method, optimizer=stated, **CHECKPOINTED)
    named = answer(method="full", optimizer=taken, **CHECKPOINTED)

    assert item(found, "optimizer_states") == item(named, "optimizer_states") < 2 * WEIGHTS
    assert taken in {a.value for a in found.assumptions if a.field == "training.optimizer"}


def test_caller_knows_the_trainable_parameters():
    lora = LORA["lora"] | {"trainable_parameters": 12_345_678}

    assert answer(method="lora", lora=lora).model.parameters.trainable == 12_345_678


def test_saved_modules_train_whole():
    lora = LORA["lora"] | {"modules_to_save": ["embed_tokens", "lm_head"]}
    more = answer(method="lora", lora=lora).model.parameters.trainable
    less = answer(**LORA).model.parameters.trainable

    assert more - less == 2 * LLAMA["vocab_size"] * LLAMA["hidden_size"]


@pytest.mark.parametrize(
    ("method", "expected"),
    [("ia3", 32 * (1024 + 1024 + 14336)), ("prompt-tuning", 20 * 4096), ("prefix-tuning", 20 * 2 * 1024 * 32)],
)
def test_light_methods_train_vectors(method, expected):
    found = answer(method=method, lora={"rank": 20})

    assert found.model.parameters.trainable == expected
    assert allocated(found) > WEIGHTS


def test_reserved_is_capped_by_the_card():
    free = answer(**CHECKPOINTED, **LORA)
    tight = answer(**CHECKPOINTED, **LORA, sequence_lengths="varying", placement={"gpu": "rtx-4090"})

    assert free.peak.reserved.expected > free.peak.allocated.expected
    assert tight.peak.reserved.expected <= max(24 * 2**30, tight.peak.allocated.expected)


def test_a_bare_count_is_answered_with_a_wide_band():
    request = {
        "model": {"parameters": 7_000_000_000},
        "training": {"method": "full", "sequence_length": 2048, "micro_batch_size": 1},
    }
    found = estimate(resolve(catalog(), msgspec.convert(request, SizingCard)))

    assert found.model.parameters.trainable == 7_000_000_000
    assert item(found, "weights") == pytest.approx(14e9, rel=1e-3)
    assert found.peak.allocated.high - found.peak.allocated.low >= found.peak.allocated.expected


def test_the_same_job_on_another_card_differs_only_outside_the_allocator():
    first, second = (answer(**CHECKPOINTED, placement={"gpu": gpu}) for gpu in ("h100-sxm", "a100-80-sxm"))

    assert allocated(first) == allocated(second)
    assert first.peak.device != second.peak.device


def test_answers_do_not_depend_on_the_order_of_questions():
    before = answer(**LORA)
    answer(**LORA, placement={"gpu": "rtx-4090"})

    assert msgspec.to_builtins(answer(**LORA)) == msgspec.to_builtins(before)
    assert card(**LORA) == card(**LORA)


def test_frozen_layers_under_fsdp1_keep_inputs_and_their_gradients_until_backward_ends():
    def slope(framework, version):
        stated = {
            "framework": framework,
            "framework_version": version,
            "cross_entropy": "fused_linear",
            **CHECKPOINTED,
            **LORA,
        }
        sharded = {"sharding": "fsdp", "placement": {"data_parallel_size": 2}}
        short, long = (allocated(answer(sequence_length=n, **stated, **sharded)) for n in (8192, 16384))
        return (long - short) / 8192

    assert slope("trl", "0.11.4") - slope("transformers", "4.45") == pytest.approx(30 * 2 * 4096)


def test_deepspeed_alone_moves_the_whole_model_before_it_is_cut():
    found = answer(framework="deepspeed", sharding="zero3", placement={"data_parallel_size": 8})

    assert allocated(found, "load") > 2 * PARAMETERS


def test_a_stage_of_a_pipeline_stays_gathered_under_fsdp2():
    stated = {"framework": "torchtitan", "weights": "fp32", "compute_dtype": "bf16", "sharding": "fsdp"}
    staged = answer(placement={"data_parallel_size": 4, "pipeline_parallel_size": 2}, **stated)

    assert item(staged, "unsharded_parameters") > PARAMETERS
    assert item(staged, "gradients") > 1.9 * PARAMETERS


def test_experts_are_shared_by_the_ranks_that_hold_the_same_ones():
    found = answer(MIXTURE, framework="megatron", placement={"data_parallel_size": 4, "expert_parallel_size": 4})

    assert item(found, "gradients") < 0.4 * 4 * found.model.parameters.total


def test_what_comes_and_goes_names_the_function_that_gives_it():
    named = {i.component: i.law for i in phase(answer(**CHECKPOINTED), "backward").items}

    assert "laws.activations.at_moment" == named["activations"]
    assert "laws.gradients.at_point" == named["gradients"]


def test_fragments_under_zero3_have_room_in_what_is_required_and_elsewhere_less():
    found = {s: answer(placement={"data_parallel_size": 8}, sharding=s, **CHECKPOINTED) for s in ("zero2", "zero3")}
    above = {s: f.required.high / f.required.expected for s, f in found.items()}

    assert above["zero3"] > 1.25 > above["zero2"]


def test_states_that_page_to_the_host_are_never_required():
    paged, plain = (answer(optimizer=name, **CHECKPOINTED) for name in ("paged_adamw", "adamw"))

    assert paged.required.high < plain.required.low


GEMMA = {"model": "google/gemma-3-27b-it", "placement": {"gpu": "h100-sxm"}}
RUN = {"framework": "trl", "method": "lora", "lora": {"rank": 16}, "micro_batch_size": 1}


def whole(**card):
    return estimate(resolve(catalog(), msgspec.convert(card, SizingCard)))


def test_a_loss_nobody_stated_is_named_where_the_high_end_allows_for_another():
    run = {
        "framework": "unsloth",
        "framework_version": "2025.1.5",
        "method": "qlora",
        "lora": {"rank": 16},
        "micro_batch_size": 2,
        "sequence_length": 2048,
    }
    asked = {"model": "Qwen/Qwen3-8B", "placement": {"gpu": "t4"}}
    open_, stated = (whole(**asked, training=run | more) for more in ({}, {"cross_entropy": "fused_linear"}))
    said = [u for u in open_.unknowns if "the loss is not stated" in u]

    assert open_.required.high > max(p.total.device.high for p in open_.phases)
    assert 1 == len(said)
    assert format_size(open_.required.high - stated.required.high) in said[0]
    assert not [u for u in stated.unknowns if "the loss is not stated" in u]


@pytest.mark.parametrize(("length", "above"), [(1024, False), (4096, True)])
def test_a_peak_above_the_card_that_is_met_says_why(length, above):
    found = whole(**GEMMA, training=RUN | {"sequence_length": length})

    assert "met" == found.verdict
    assert above == (found.peak.device.high > found.capacity.usable_bytes)
    assert above == any("gives unused blocks back" in r.reason for r in found.reasons)


QUANTIZED = {
    "framework": "axolotl",
    "method": "qlora",
    "lora": {"rank": 8},
    "cross_entropy": "fused_linear",
    "gradient_checkpointing": "full",
}


@pytest.mark.parametrize("weights", ["bnb-nf4-dq", "bnb-int8"])
def test_experts_of_one_tensor_stay_in_16_bit_until_axolotl_quantizes_them(weights):
    linears, plain, packed = (
        item(answer(MIXTURE, weights=weights, framework_version=version, **QUANTIZED), "weights")
        for version in ("0.13.0", "0.14.0", "0.15.0")
    )

    assert linears == packed
    assert plain > linears * 1.4


def test_a_stack_of_experts_is_dequantized_whole_and_kept_for_backward():
    alone, whole = (
        item(answer(MIXTURE, weights="bnb-nf4-dq", framework_version=version, **QUANTIZED), "dequantization")
        for version in ("0.13.0", "0.15.0")
    )
    stacks = 128 * 3 * 768 * 2048 * 2

    assert whole - alone > 0.9 * stacks
