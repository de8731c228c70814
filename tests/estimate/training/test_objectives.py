"""Preference and reinforcement training, and the phases beside a step."""

import pytest
from asking import LLAMA, PARAMETERS, allocated, answer, item, phase

TRL = {"framework": "trl", "gradient_checkpointing": "full"}
LORA = {"method": "lora", "lora": {"rank": 16, "target_modules": ["all-linear"], "dropout": 0.0}}


def test_dpo_holds_a_reference_unless_adapters_can_be_switched_off():
    assert item(answer(objective="dpo", **TRL), "reference_model") == pytest.approx(2 * PARAMETERS, rel=1e-4)
    assert item(answer(objective="dpo", **TRL, **LORA), "reference_model") == 0
    assert item(answer(objective="orpo", **TRL), "reference_model") == 0


def test_chosen_and_rejected_double_the_tokens():
    one, two = (answer(objective=o, cross_entropy="full", **TRL, **LORA) for o in ("sft", "dpo"))

    assert item(two, "activations") > 1.8 * item(one, "activations")


def test_preference_logits_are_6_bytes_forward_and_8_backward():
    found = answer(objective="dpo", **TRL, **LORA)
    tokens = 2 * 2048

    assert item(found, "logits", "forward") == 6 * LLAMA["vocab_size"] * tokens
    assert item(found, "logits", "backward") == 8 * LLAMA["vocab_size"] * tokens


def test_a_fused_loss_has_no_logits():
    assert item(answer(objective="dpo", cross_entropy="fused_linear", **TRL, **LORA), "logits") < 2**30


def test_a_reward_model_has_one_number_for_a_head():
    found = answer(objective="reward", **TRL)

    assert found.model.parameters.trainable == PARAMETERS - LLAMA["vocab_size"] * 4096 + 4096
    assert item(found, "logits") == 0


def test_ppo_trains_two_models_beside_two_frozen_ones():
    one, two = answer(**TRL), answer(objective="ppo", **TRL)

    assert item(two, "weights") == 2 * item(one, "weights")
    assert item(two, "optimizer_states") == 2 * item(one, "optimizer_states")
    assert item(two, "reference_model") == 2 * item(one, "weights")


def test_grpo_has_a_reference_before_0_18():
    old, new = (answer(objective="grpo", framework_version=v, **TRL) for v in ("0.16.0", "0.18.0"))

    assert item(old, "reference_model") > 0 == item(new, "reference_model")


def test_generation_keeps_keys_and_values_of_all_samples():
    found = answer(objective="grpo", gradient_accumulation_steps=4, **TRL)

    assert item(found, "kv_cache", "generation") == 4 * 2048 * 32 * 2 * 8 * 128 * 2
    assert found.reasons[0].field == "/training/objective"


def test_other_phases_are_there_when_named():
    named = {
        "failure": {"phase": "evaluation"},
        "measurements": [{"counter": "allocated", "peak_bytes": 10**9, "phase": "export"}],
    }
    phases = [p.phase for p in answer(more=named).phases]

    assert phases == ["load", "forward", "backward", "optimizer_step", "evaluation", "export"]
    assert [p.phase for p in answer().phases] == ["load", "forward", "backward", "optimizer_step"]


def test_evaluation_runs_eight_sequences_without_gradients():
    found = answer(more={"failure": {"phase": "evaluation"}}, cross_entropy="full", **LORA)

    assert item(found, "logits", "evaluation") > 7 * item(found, "logits", "forward")
    assert item(found, "activations", "evaluation") < item(found, "activations", "forward")


def test_merging_needs_one_matrix():
    found = answer(more={"failure": {"phase": "merge"}}, **LORA)

    assert allocated(found, "merge") - allocated(found, "load") < 2**30
    assert phase(found, "merge")


COLOCATED = {"objective": "grpo", "vllm_gpu_memory_utilization": 0.3, **TRL, **LORA}
H100 = {"gpu": "h100-sxm"}


def test_a_colocated_engine_takes_its_share_in_every_phase():
    found = answer(placement=H100, **COLOCATED)
    share = int(0.3 * found.capacity.usable_bytes)

    assert [item(found, "generation_engine", p) for p in ("forward", "generation")] == [share, share]
    assert item(found, "kv_cache", "generation") == 0
    assert found.required.expected > answer(placement=H100, **TRL, **LORA).required.expected + share


def test_an_engine_that_sleeps_leaves_the_card_to_the_trainer():
    awake, asleep = (answer(placement=H100, vllm_enable_sleep_mode=s, **COLOCATED) for s in (False, True))

    assert item(asleep, "generation_engine", "generation") == item(awake, "generation_engine", "generation")
    assert item(asleep, "generation_engine", "backward") < 2 * 2**30
    assert asleep.required.expected < awake.required.expected


def test_without_a_gpu_nobody_knows_what_a_share_of_it_is():
    assert item(answer(**COLOCATED), "generation_engine") == 0


def test_adapters_of_megatron_reach_every_expert():
    mixtral = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    stated = {"method": "lora", "lora": {"rank": 8, "target_modules": ["all-linear"]}, "framework": "megatron"}
    one = answer(mixtral, placement={"data_parallel_size": 4}, **stated)
    cut = answer(mixtral, placement={"data_parallel_size": 4, "expert_parallel_size": 4}, **stated)

    assert item(one, "adapters") > 3 * item(cut, "adapters") > 0
