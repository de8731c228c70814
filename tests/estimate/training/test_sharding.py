"""What a rank holds under each kind of sharding, by hand; every size is another prime times a thousand."""

from types import SimpleNamespace

import pytest

from tonnage.estimate.training.sharding import Held, Sizes, held, paged_share

SIZES = Sizes(
    weights=7000,
    adapters=1100,
    master=1300,
    states=1700,
    gradients=1900,
    trainable=2300,
    block_gathered=290,
    block_trainable=31,
    vocabulary=37,
    hidden_size=10,
    tables=2,
    routed=300,
)
ALONE = Held(
    weights=7000,
    adapters=1100,
    master=1300,
    states=1700,
    gradients_before=0,
    gradients_done=1.0,
    buckets=0,
    live_forward=0,
    live_tail=0,
    live_backward=0,
    step=0,
    gradients_after=1900,
)


def job(sharding, *, framework="trl", release=None, torch="2.8", **more):
    """Settings as far as sharding looks at them."""
    released = {"fsdp": "fsdp1", "embedding_resharded": False, "reentrant": True, "tables_upcast_at_load": False}
    usual = {
        "shards": 4, "gradients_stay": False, "offload_parameters": False, "offload_optimizer": False, "in_backward": False,
        "gradient_accumulation_steps": 1, "pipeline_parallel_size": 1, "expert_parallel_size": 1, "weight_bytes": 2,
        "compute_bytes": 2, "defers_reduction": False, "gradient_checkpointing": "none", "trains_base": True,
    }  # fmt: skip
    return SimpleNamespace(
        sharding=sharding,
        card=SimpleNamespace(framework=framework),
        release=SimpleNamespace(**released | (release or {})),
        libraries=SimpleNamespace(at_least=lambda name, version: torch >= version),
        **usual | more,
    )


def changed(expected, sharding, **more):
    """Which of the amounts are other ones than expected, as (expected, found)."""
    found = held(job(sharding, **more), SIZES)
    return {n: (e, f) for n, e, f in zip(Held._fields, expected, found, strict=True) if e != f}


# ---- every rank holds all ----


@pytest.mark.parametrize("sharding", ["none", "ddp"])
def test_without_sharding_a_rank_holds_all_and_ddp_a_copy_of_the_gradients(sharding):
    assert {} == changed(ALONE._replace(buckets=1900 if sharding == "ddp" else 0), sharding)


def test_gradients_of_an_earlier_micro_batch_may_be_there_before_backward():
    assert {} == changed(ALONE._replace(gradients_before=1900), "none", gradients_stay=True)


def test_a_step_inside_backward_leaves_no_gradients():
    expected = ALONE._replace(gradients_done=0.0, gradients_after=0)

    assert {} == changed(expected, "none", in_backward=True, gradients_stay=True)


def test_what_is_offloaded_is_not_held():
    assert {} == changed(ALONE._replace(weights=0), "none", offload_parameters=True)
    assert {} == changed(ALONE._replace(master=0, states=0), "none", offload_optimizer=True)


def test_tables_of_a_frozen_model_pass_through_fp32_at_load():
    upcast = {"release": {"tables_upcast_at_load": True}}

    assert {} == changed(ALONE._replace(load=7000 + 2 * 37 * 2 + 2 * 37), "none", trains_base=False, **upcast)
    assert {} == changed(ALONE, "none", **upcast)
    assert {} == changed(ALONE, "none", trains_base=False)


# ---- ZeRO 1 and 2 ----

ZERO1 = ALONE._replace(
    master=325, states=425, buckets=2 * 2 * 200_000_000, step=6 * 575 - 1900, gradients_after=1900, gradients_done=1.0
)
ZERO2 = ZERO1._replace(step=8 * 575 - 475, gradients_after=475, gradients_done=0.25)


def test_zero_1_cuts_the_states_and_zero_2_the_gradients_as_well():
    assert {} == changed(ZERO1, "zero1")
    assert {} == changed(ZERO2, "zero2")


def test_deepspeed_itself_has_larger_buckets_than_published_settings():
    assert {} == changed(ZERO1._replace(buckets=2 * 2 * 500_000_000), "zero1", framework="deepspeed")


def test_gradients_stay_while_micro_batches_accumulate():
    assert {} == changed(ZERO1._replace(gradients_before=1900), "zero1", gradient_accumulation_steps=2)
    assert {} == changed(ZERO2._replace(gradients_before=475), "zero2", gradient_accumulation_steps=2)


def test_offloaded_states_take_the_step_and_its_gradients_with_them():
    away = {"master": 0, "states": 0, "step": 0, "gradients_after": 0}
    more = {"offload_optimizer": True, "gradient_accumulation_steps": 2}

    assert {} == changed(ZERO1._replace(**away), "zero1", **more)
    assert {} == changed(ZERO2._replace(**away, gradients_done=0.0), "zero2", **more)


def test_a_step_smaller_than_the_gradients_adds_nothing():
    small = SIZES._replace(trainable=400)

    assert 0 == held(job("zero1"), small).step


# ---- ZeRO 3 ----

ZERO3 = Held(
    weights=2025,
    adapters=0,
    master=325,
    states=425,
    gradients_before=0,
    gradients_done=0.0,
    buckets=2 * 90,
    live_forward=580,
    live_tail=74 + 580,
    live_backward=580,
    step=6 * 575,
    gradients_after=0,
    permanent=2 * 575 + 2 * 100,
)


def test_zero_3_gathers_two_layers_and_keeps_a_shard_of_everything():
    assert {} == changed(ZERO3, "zero3")


def test_deepspeeds_own_zero_3_has_fixed_buckets_and_loads_the_whole():
    expected = ZERO3._replace(buckets=100_000_000, permanent=2 * 575 + 1_000_000_000, load=7000 + 1100 + 2025)

    assert {} == changed(expected, "zero3", framework="deepspeed")


def test_offloaded_states_of_zero_3_take_step_and_copies_with_them():
    expected = ZERO3._replace(master=0, states=0, step=0, permanent=200)

    assert {} == changed(expected, "zero3", offload_optimizer=True)
    assert {} == changed(expected._replace(weights=0), "zero3", offload_parameters=True)


@pytest.mark.parametrize(("vocabulary", "gathers"), [(10**9 - 1, True), (10**9, False)])
def test_a_head_as_large_as_a_sub_group_is_gathered_alone(vocabulary, gathers):
    found = held(job("zero3"), SIZES._replace(vocabulary=vocabulary))

    assert 2 * vocabulary + (580 if gathers else 0) == found.live_tail


# ---- FSDP ----

ROOT = 74
FSDP = Held(
    weights=1750,
    adapters=275,
    master=325,
    states=425,
    gradients_before=0,
    gradients_done=0.25,
    buckets=0,
    live_forward=580 + 2 * ROOT,
    live_tail=2 * ROOT + 290,
    live_backward=580 + 2 * ROOT + 62,
    step=0,
    gradients_after=475,
)


@pytest.mark.parametrize("sharding", ["fsdp", "hsdp"])
def test_fsdp_gathers_two_units_beside_the_root(sharding):
    assert {} == changed(FSDP, sharding)


def test_a_root_that_is_resharded_is_gathered_at_the_head_only():
    expected = FSDP._replace(live_forward=580, live_tail=ROOT, live_backward=580 + 62)

    assert {} == changed(expected, "fsdp", release={"embedding_resharded": True})


def test_parameters_that_stay_gathered_are_there_whole():
    expected = FSDP._replace(live_forward=8100, live_tail=8100, live_backward=8100 + 62)

    assert {} == changed(expected, "fsdp_grad_op")


def test_fp32_weights_are_reduced_in_fp32():
    assert {} == changed(FSDP._replace(live_backward=FSDP.live_backward + 62), "fsdp", weight_bytes=4)
    narrow = FSDP.live_backward - 62 + 31 * 2
    assert {} == changed(FSDP._replace(live_backward=narrow), "fsdp", weight_bytes=2, compute_bytes=2)


def test_sharded_gradients_accumulate():
    assert {} == changed(FSDP._replace(gradients_before=475), "fsdp", gradient_accumulation_steps=2)


def test_a_deferred_reduction_keeps_whole_gradients():
    expected = FSDP._replace(gradients_before=2300 * 2, gradients_done=0.0)

    assert {} == changed(expected, "fsdp", defers_reduction=True, gradient_accumulation_steps=2)


def test_offloaded_parameters_take_everything_with_them():
    away = {"weights": 0, "adapters": 0, "master": 0, "states": 0, "gradients_after": 0, "gradients_done": 0.0}
    more = {"offload_parameters": True, "defers_reduction": True, "gradient_accumulation_steps": 2}

    assert {} == changed(FSDP._replace(**away), "fsdp", **more)
    assert {} == changed(FSDP._replace(states=0), "fsdp", offload_optimizer=True)


@pytest.mark.parametrize(("weight_bytes", "width"), [(2, 2), (4, 4)])
def test_stages_of_fsdp_2_keep_parameters_and_gradients_whole(weight_bytes, width):
    extra = 62 if weight_bytes == 4 else 0
    expected = FSDP._replace(
        live_forward=8100,
        live_tail=8100,
        live_backward=8100 + 62 + extra,
        gradients_before=2300 * width,
        gradients_done=0.0,
    )

    assert {} == changed(
        expected, "fsdp", release={"fsdp": "fsdp2"}, pipeline_parallel_size=2, weight_bytes=weight_bytes
    )


def test_one_stage_of_fsdp_2_and_stages_of_fsdp_1_are_as_without():
    assert {} == changed(FSDP, "fsdp", release={"fsdp": "fsdp2"})
    assert {} == changed(FSDP, "fsdp", pipeline_parallel_size=2)


def test_deferred_gradients_without_stages_have_the_width_of_compute():
    expected = FSDP._replace(gradients_before=2300 * 2, gradients_done=0.0, live_backward=FSDP.live_backward + 62)

    assert {} == changed(expected, "fsdp", defers_reduction=True, weight_bytes=4)


def test_one_flat_unit_has_gradients_and_copies_of_everything():
    copies = 2025 * 44 // 100
    expected = FSDP._replace(
        live_backward=580 + 2 * ROOT + 580,
        gradients_after=2025,
        permanent=copies,
        load=8100 + 2025 + copies,
    )

    assert {} == changed(expected, "fsdp", release={"fsdp": "fsdp1_flat"})


HOOKED = {"trains_base": False, "gradient_checkpointing": "full", "compute_bytes": 2}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, 20),
        ({"trains_base": True}, 0),
        ({"gradient_checkpointing": "none"}, 0),
        ({"framework": "torchtune"}, 0),
        ({"release": {"fsdp": "fsdp2"}}, 0),
        ({"release": {"reentrant": False}}, 0),
    ],
)
def test_hooks_of_a_wrapped_frozen_model_hold_inputs_when_layers_are_recomputed(change, found):
    assert found == held(job("fsdp", **HOOKED | change), SIZES).held_inputs


# ---- Megatron ----


def test_megatrons_optimizer_shards_twelve_bytes_a_parameter_of_which_a_third_is_the_master():
    states = 12 * 2000 // 4 + 12 * 300 // 2
    expected = ALONE._replace(
        master=states // 3,
        states=states - states // 3,
        gradients_before=1900,
        gradients_done=0.0,
    )

    assert {} == changed(expected, "distributed_optimizer", expert_parallel_size=2)


def test_experts_are_sharded_over_their_replicas_of_which_there_is_at_least_one():
    found = held(job("distributed_optimizer", expert_parallel_size=8), SIZES)

    assert 12 * 2000 // 4 + 12 * 300 == found.master + found.states


# ---- states in unified memory ----


@pytest.mark.parametrize(("sharding", "expected"), [("none", 10), ("ddp", 10), ("zero1", 3), ("fsdp", 3)])
def test_paged_states_are_cut_like_the_others(sharding, expected):
    assert expected == paged_share(job(sharding), 10)


def test_a_frozen_base_stays_gathered_as_backward_passes_it_before_torch_2_1():
    new, old = (held(job("fsdp", trains_base=False, torch=torch), SIZES) for torch in ("2.1", "2.0"))

    assert (new.held_units, old.held_units) == (0, SIZES.block_gathered)
    assert held(job("fsdp", torch="2.0"), SIZES).held_units == 0
