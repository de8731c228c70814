"""Evaluation, merging and saving, and what of the job is on the host."""

import pytest
from asking import PARAMETERS, allocated, answer, item, phase

from tonnage.errors import ContradictoryWorkload
from tonnage.units import GiB

GPUS = {"data_parallel_size": 8, "gpu": "h100-sxm"}


def evaluated(**evaluation):
    return answer(optimizer="sgd", framework="transformers", evaluation=evaluation)


def held(found, component):
    """What the host has of a component. [bytes]"""
    return sum(i.bytes.expected for i in found.host.items if i.component == component)


def test_without_a_word_of_evaluation_it_is_no_phase():
    assert {"load", "forward", "backward", "optimizer_step"} == {p.phase for p in answer().phases}


def test_an_evaluation_of_the_trainers_own_batch_has_eight_samples():
    assert allocated(evaluated(), "evaluation") == allocated(evaluated(per_device_eval_batch_size=8), "evaluation")


def test_an_evaluation_grows_with_its_batch_and_its_length():
    one, two = (allocated(evaluated(per_device_eval_batch_size=n), "evaluation") for n in (1, 2))
    longer = allocated(evaluated(per_device_eval_batch_size=1, sequence_length=4096), "evaluation")

    assert one < two == longer


def test_logits_kept_for_metrics_outgrow_everything_else():
    loss_only = evaluated(samples=100)
    kept = evaluated(samples=100, prediction_loss_only=False)

    assert "evaluation" == kept.peak.phase
    assert 2 * 13 * 8 * 2048 * 128_256 * 2 == item(kept, "predictions", "evaluation")
    assert 0 == item(loss_only, "predictions", "evaluation")


def test_the_host_takes_kept_logits_every_so_many_batches():
    kept = {"samples": 10_000, "prediction_loss_only": False}

    assert allocated(evaluated(**kept), "evaluation") > 500 * GiB
    assert allocated(evaluated(**kept, eval_accumulation_steps=1), "evaluation") == allocated(evaluated(), "evaluation")


def test_every_gpu_keeps_the_logits_of_all():
    asked = {"samples": 64, "prediction_loss_only": False, "per_device_eval_batch_size": 1}
    alone = item(answer(evaluation=asked), "predictions", "evaluation")
    several = item(answer(evaluation=asked, placement=GPUS, sharding="ddp"), "predictions", "evaluation")

    assert alone == several > 0


def test_how_many_logits_are_kept_is_an_open_question_without_the_number_of_samples():
    words = "state evaluation.samples"

    assert any(words in u for u in evaluated(prediction_loss_only=False).unknowns)
    assert not any(words in u for u in evaluated(prediction_loss_only=False, samples=9).unknowns)


def test_a_framework_with_a_loop_of_its_own_keeps_no_logits():
    found = answer(framework="torchtune", evaluation={"prediction_loss_only": False, "samples": 500})

    assert 0 == item(found, "predictions", "evaluation")


def test_keys_and_values_are_kept_in_an_evaluation_before_transformers_5():
    old, new = (
        answer(framework="transformers", framework_version=version, evaluation={}) for version in ("4.57", "5.0")
    )

    assert 8 * 2048 * 32 * 2 * 1024 * 2 == item(old, "kv_cache", "evaluation")
    assert 0 == item(new, "kv_cache", "evaluation")


@pytest.mark.parametrize(
    ("framework", "sharding", "whole"),
    [
        ("transformers", "fsdp", 2 * 2 * 128_256 * 4096 + 2 * 218_112_000),
        ("torchtune", "fsdp", 2 * 128_256 * 4096),
        ("transformers", "zero3", 2 * 128_256 * 4096),
        ("torchtitan", "fsdp", 0),
        ("transformers", "zero2", 0),
        ("transformers", "ddp", 0),
    ],
)
def test_saving_gathers_what_the_sharding_makes_whole(framework, sharding, whole):
    found = answer(framework=framework, sharding=sharding, weight_dtype="bf16", placement=GPUS, export={})

    assert whole == item(found, "unsharded_parameters", "export")


def test_a_sharded_checkpoint_gathers_nothing_and_holds_nothing_on_the_host():
    found = answer(sharding="fsdp", placement=GPUS, export={"state_dict_type": "sharded"})

    assert 0 == item(found, "unsharded_parameters", "export") == held(found, "state_dict")


def test_a_full_state_dict_is_on_the_host_of_the_rank_that_saves_with_its_optimizer_where_asked():
    plain, both = (
        answer(sharding="fsdp", weight_dtype="bf16", placement=GPUS, export={"optimizer": o}) for o in (False, True)
    )

    assert 2 * PARAMETERS == held(plain, "state_dict")
    assert (2 + 4) * PARAMETERS == held(both, "state_dict")


def test_one_gpu_saves_file_by_file():
    older, newer = (answer(framework_version=version, export={}) for version in ("4.57", "5.0"))

    assert 5_000_000_000 == held(older, "state_dict")
    assert 2 * PARAMETERS == held(newer, "state_dict")


def test_adapters_are_merged_where_the_card_says_so():
    lora = {"method": "lora", "lora": {"rank": 16}}

    assert "merge" not in {p.phase for p in answer(**lora, export={}).phases}
    assert 2 * 4 * 4096 * 14_336 == item(
        answer(**lora | {"lora": {"rank": 16, "target_modules": ["down_proj"]}}, export={"merge": True}),
        "workspace", "merge",
    )  # fmt: skip


@pytest.mark.parametrize("method", ["full", "galore", "prompt-tuning", "prefix-tuning"])
def test_a_merge_of_what_is_no_adapter_is_refused(method):
    with pytest.raises(ContradictoryWorkload, match=f"method {method} trains nothing") as caught:
        answer(method=method, export={"merge": True})

    assert "/training/export/merge" == caught.value.pointer
    assert answer(method=method, export={"merge": False}).phases


def offloaded(sharding="zero3", ranks=8, **offload):
    placement = GPUS | {"data_parallel_size": ranks}
    return answer(framework="deepspeed", sharding=sharding, placement=placement, offload=offload)


def test_an_offloaded_optimizer_is_eighteen_bytes_per_parameter_on_the_host_item_by_item():
    found = offloaded(optimizer=True)
    parts = [held(found, name) for name in ("gradients", "master_weights", "optimizer_states")]

    assert [6 * PARAMETERS, 4 * PARAMETERS, 8 * PARAMETERS] == parts
    assert 0 == held(found, "weights")


def test_offloaded_parameters_are_on_the_host_once_whatever_the_number_of_ranks():
    one, eight = (held(offloaded(ranks=n, parameters=True, optimizer=True), "weights") for n in (1, 8))

    assert 2 * PARAMETERS == one == eight


def test_a_swapper_leaves_buffers_on_the_host_and_the_rest_on_the_disk():
    cpu, nvme = (offloaded(parameters=True, optimizer=True, device=device) for device in ("cpu", "nvme"))

    assert 8 * 16_000_000_000 == held(nvme, "optimizer_states")
    assert (2 + 4 + 8 + 4) * PARAMETERS == nvme.host.disk_bytes - cpu.host.disk_bytes
    assert 0 == held(nvme, "master_weights")


def test_a_frozen_base_is_offloaded_whole_but_only_adapters_have_gradients_there():
    found = answer(
        framework="transformers", method="lora", lora={"rank": 16, "target_modules": ["q_proj"]}, sharding="zero3",
        placement=GPUS, offload={"parameters": True, "optimizer": True},
    )  # fmt: skip
    trainable = found.model.parameters.trainable

    assert 6 * trainable == held(found, "gradients")
    assert 4 * trainable == held(found, "master_weights")


def test_torchaos_offloaded_optimizer_copies_parameters_and_gradients_for_each_process():
    found = answer(framework="torchtune", offload={"optimizer": True})

    assert 2 * 2 * PARAMETERS == held(found, "gradients")


def test_phases_between_steps_stand_beside_those_of_the_step():
    found = answer(evaluation={}, export={})

    assert "evaluation" in {p.phase for p in found.phases}
    assert phase(found, "export").total.allocated.expected < phase(found, "evaluation").total.allocated.expected
