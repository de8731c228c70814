"""Open fields are filled by the framework's version, and said so."""

import pytest
from asking import answer, job

from tonnage.errors import SizingError

MAMBA = {
    "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 4, "num_heads": 80, "head_dim": 64, "vocab_size": 50288,
}  # fmt: skip


def assumed(found):
    return {a.field: a.value for a in found.assumptions}


def test_stated_fields_are_not_assumed():
    stated = {
        "gradient_checkpointing": "full", "attn_implementation": "eager", "cross_entropy": "full", "packed": False,
    }  # fmt: skip

    assert assumed(job(**stated)) == {}


def test_omitted_fields_are_listed_with_their_values():
    found = job(method="lora", micro_batch_size=None)

    assert (
        assumed(found)
        >= {
            "training.micro_batch_size": 8,
            "training.gradient_checkpointing": "none",
            "training.attn_implementation": "sdpa",
            "training.lora.rank": 8,
            "training.lora.target_modules": ["q_proj", "v_proj"],
        }.items()
        if isinstance(assumed(found), set)
        else assumed(found)
    )


def test_trl_checkpoints_by_default_since_0_24():
    assert job(framework="trl", framework_version="0.20.0").gradient_checkpointing == "none"
    assert job(framework="trl", framework_version="0.24.0").gradient_checkpointing == "full"


def test_adapters_follow_peft():
    old, new = {"peft": "0.10.0"}, {"peft": "0.12.0"}

    assert job(method="lora", library_versions=old).adapter_bytes == 2
    assert job(method="lora", library_versions=new).adapter_bytes == 4
    assert job(method="lora", library_versions=old, weights="bnb-nf4").adapter_bytes == 4


def test_an_old_torch_stands_for_an_old_environment():
    found = job(method="qlora", weights="bnb-nf4", framework_version="2023-12", library_versions={"torch": "2.0"})

    assert found.libraries.keeps_four_bit_inputs


def test_lora_on_a_quantized_base_is_qlora():
    assert job(method="lora", weights="bnb-nf4").method == "qlora"


def test_qlora_needs_a_quantized_base():
    with pytest.raises(SizingError, match="quantized"):
        job(method="qlora")


def test_sharding_without_ranks_is_none():
    assert job(sharding="fsdp").sharding == "none"
    assert job(sharding="zero3").sharding == "zero3"


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, False),
        ({"sharding": "zero3", "placement": {"data_parallel_size": 8}}, True),
        ({"framework": "megatron"}, True),
        ({"weight_dtype": "fp32", "master_weights": True}, False),
    ],
)
def test_master_weights(training, expected):
    assert job(**training).master is expected


def test_mixed_precision_is_autocast_only_where_it_is():
    assert job(weights="fp32", compute_dtype="bf16").autocast
    assert not job().autocast
    assert not job(weights="fp32", compute_dtype="bf16", framework="torchtitan").autocast


def test_names_of_which_none_is_a_linear_are_refused_with_those_that_are():
    with pytest.raises(
        SizingError, match="none of nonsense is a linear of this model; its linears: q_proj, k_proj, v_proj"
    ) as error:
        job(method="lora", lora={"rank": 8, "target_modules": ["nonsense"]})

    assert error.value.pointer == "/training/lora/target_modules"


def test_names_that_are_passed_over_are_noted():
    found = job(method="lora", lora={"rank": 8, "target_modules": ["q_proj", "nonsense"]})

    assert {a.role for a in found.adapters} == {"q"}
    assert assumed(found)["training.lora.target_modules"] == ["q_proj"]


def test_a_frameworks_own_names_that_are_no_linear_fall_back_and_are_assumed():
    found = job(MAMBA, method="lora", lora={"rank": 8}, framework="unsloth")

    assert assumed(found)["training.lora.target_modules"] == ["all-linear"]


def test_a_bare_count_has_no_names_to_refuse():
    named = {"method": "lora", "lora": {"rank": 8, "target_modules": ["nonsense"]}}
    found = answer(more={"model": {"parameters": 7_000_000_000}}, **named)

    assert found.model.parameters.trainable > 0


def test_the_embedding_may_carry_an_adapter():
    found = job(method="lora", lora={"rank": 8, "target_modules": ["embed_tokens"]})

    assert [(a.role, a.component) for a in found.adapters] == [("embed", "embedding")]


def test_whole_samples_packed_together_still_vary_in_length():
    assert job(framework="ms-swift", packed=True, sequence_lengths="fixed").varying
    assert not job(framework="axolotl", packed=True, sequence_lengths="varying").varying


def test_target_modules_without_a_rank_take_the_default_rank_and_say_so():
    found = job(method="lora", lora={"target_modules": ["q_proj"]})

    assert found.release.defaults.lora_rank == found.rank
    assert "training.lora.rank" in {assumption.field for assumption in found.assumptions}


UNSLOTH = {"framework": "unsloth", "framework_version": "2026.2.1"}
T4, L4 = {"gpu": "t4"}, {"gpu": "l4"}
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "max_position_embeddings": 8192,
}  # fmt: skip


def test_unsloth_trains_all_weights_in_fp32_where_the_card_has_no_bf16():
    wide, narrow = (job(**UNSLOTH, method="full", placement=placed) for placed in (T4, L4))

    assert (4, 2, True) == (wide.weight_bytes, wide.compute_bytes, wide.autocast)
    assert 2 == narrow.weight_bytes == job(**UNSLOTH, method="lora", placement=T4).weight_bytes


def test_layers_that_overflow_in_fp16_compute_in_fp32_beside_16_bit_weights():
    found = job(GEMMA, **UNSLOTH, method="lora", placement=T4)

    assert (2, True, False) == (found.weight_bytes, found.fp32_stream, found.autocast)
    assert not job(GEMMA, **UNSLOTH, method="lora", placement=L4).fp32_stream
    assert not job(**UNSLOTH, method="lora", placement=T4).fp32_stream


def test_fp16_weights_that_train_run_without_autocast_whose_scaler_refuses_their_gradients():
    half, brain = (
        job(method="full", framework_version="4.46.0", weight_dtype=d, compute_dtype=d) for d in ("fp16", "bf16")
    )

    assert (False, True) == (half.autocast, brain.autocast)
    assert job(method="full", framework_version="4.46.0", weight_dtype="fp32", compute_dtype="fp16").autocast
