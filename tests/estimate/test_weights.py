"""Weights against what libraries really build: per rank, per stage, per format, to the byte."""

import pytest
from tests.estimate.stock import FORMATS, LLAMA_8B, LLAMA_70B, golden, model

from tonnage.architecture import count_only
from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.weights import WeightRules, disk_bytes, stage_weights

VLLM = WeightRules(vocabulary_multiple=64)
META = golden("vllm_meta_device.json")["cases"]
QUANTIZED_BY_LLAMA_CPP = golden("llama_quantize.json")["models"]
BITSANDBYTES = golden("bitsandbytes.json")["models"]
BIASES_LLAMA_CPP_WAS_NOT_GIVEN = {"deepseek-v3": 58 * 256 * 4}
EXPLAINED = {
    "llama-3.1-8b fp8": 4 * 32 * 2,  # shards of a merged matrix share a logical width, kept as a parameter
    "llama-3.1-8b gptq": -4 * (3 * 4096 + 4096 + 2 * 4096 + 14336) * 32,  # no group index without act-order
    "llama-3.1-8b ct-w8a8": 576,
    "llama-3.1-8b ct-w4a16": 2624,  # shapes of the packed matrices, as int64
    "llama-3.1-8b ct-fp8": 576,
    "deepseek-v3 MLA tp8": -58 * 256 * 4,  # the class default has no correction bias
}
"""What a library holds beside or below the law's figure, and why. [bytes]"""
FP32_ROUTER = {"glm-4.5": WeightRules(vocabulary_multiple=64, fp32=frozenset({"router"}))}


@pytest.mark.parametrize("name", META)
def test_a_rank_holds_what_vllm_builds_on_the_meta_device(name):
    case = META[name]
    read = model(case["config"])

    first = stage_weights(
        read,
        FORMATS[read.weight_format or "bf16"],
        FORMATS,
        tensor_parallel_size=case["tensor_parallel_size"],
        rules=FP32_ROUTER.get(name, VLLM),
    )[0]

    assert case["weight_bytes"] == first.total + EXPLAINED.get(name, 0)


@pytest.mark.parametrize("name", QUANTIZED_BY_LLAMA_CPP)
def test_every_gguf_file_type_takes_what_llama_quantize_writes(name):
    recorded = QUANTIZED_BY_LLAMA_CPP[name]
    read = model(recorded["config"])
    extra = BIASES_LLAMA_CPP_WAS_NOT_GIVEN.get(name, 0)

    computed = {
        kind: stage_weights(read, FORMATS["gguf-" + kind.replace("_", "-")], FORMATS)[0].total - extra
        for kind in recorded["bytes"]
    }

    assert recorded["bytes"] == computed


@pytest.mark.parametrize("kind", [f.id for f in FORMATS.values() if f.kind == "file-mix" and f.effective_bits])
def test_llama_3_1_8b_takes_the_bits_that_llama_cpp_publishes(kind):
    read = model(LLAMA_8B)

    bits = 8 * stage_weights(read, FORMATS[kind], FORMATS)[0].total / read.parameters_total

    assert FORMATS[kind].effective_bits == pytest.approx(bits, abs=6e-5)


@pytest.mark.parametrize("name", BITSANDBYTES)
@pytest.mark.parametrize(
    ("kind", "recorded"), [("bf16", "bf16"), ("bnb-nf4", "nf4"), ("bnb-nf4-dq", "nf4_dq"), ("bnb-int8", "int8")]
)
def test_a_bitsandbytes_model_takes_what_the_library_stores(name, kind, recorded):
    case = BITSANDBYTES[name]

    assert case[recorded] == stage_weights(model(case["config"]), FORMATS[kind], FORMATS)[0].total


def test_llama_3_1_8b_in_bf16_is_16_060_522_496_bytes():
    stage = stage_weights(model(LLAMA_8B), FORMATS["bf16"])[0]

    assert 16_060_522_496 == stage.total
    assert 8_030_261_248 == stage.parameters
    assert stage.total == sum(stage.bytes_by_component.values())
    assert 4096 * 14336 == stage.largest_matrix


def test_a_bare_count_of_seven_billion_is_14_gigabytes_in_bf16():
    assert 14_000_000_000 == stage_weights(count_only(7 * 10**3 * 10**6), FORMATS["bf16"])[0].total


def test_a_bare_count_is_spread_over_stages_and_ranks():
    stages = stage_weights(
        count_only(8 * 10**3 * 10**6), FORMATS["bf16"], tensor_parallel_size=2, pipeline_parallel_size=2
    )

    assert [4_000_000_000] * 2 == [stage.total for stage in stages]


def test_a_bare_count_in_four_bits_takes_the_formats_own_bits():
    size = stage_weights(count_only(7 * 10**3 * 10**6), FORMATS["awq-w4-g128"])[0].total

    assert 7 * 10**9 * 4.15625 / 8 == pytest.approx(size, rel=0.003)


def test_stages_hold_embedding_first_and_head_last():
    first, last = stage_weights(model(LLAMA_8B), FORMATS["bf16"], pipeline_parallel_size=2)

    assert "embedding" in first.bytes_by_component
    assert "lm_head" not in first.bytes_by_component
    assert "lm_head" in last.bytes_by_component
    assert tuple(range(16)) == first.layers
    assert 16_060_522_496 == first.total + last.total


def test_a_tied_head_is_a_second_copy_on_the_last_of_several_stages():
    tied = model(LLAMA_8B, tie_word_embeddings=True)
    whole = stage_weights(tied, FORMATS["bf16"])[0].total
    stages = stage_weights(tied, FORMATS["bf16"], pipeline_parallel_size=4)

    assert whole + 128256 * 4096 * 2 == sum(stage.total for stage in stages)


def test_heads_that_do_not_divide_are_refused_by_name():
    with pytest.raises(ContradictoryWorkload, match=r"num_attention_heads \(32\)"):
        stage_weights(model(LLAMA_8B), FORMATS["bf16"], tensor_parallel_size=3)


def test_kv_projections_are_replicated_beyond_the_kv_heads():
    read = model(LLAMA_70B)
    eight, sixteen = (
        stage_weights(read, FORMATS["bf16"], tensor_parallel_size=ranks)[0].bytes_by_component["attention"]
        for ranks in (8, 16)
    )
    kv = 2 * 80 * 128 * 8192 * 2

    assert (eight - kv) // 2 + kv == sixteen


def test_experts_are_dealt_out_whole_under_expert_parallelism():
    read = model(META["qwen3-30b-a3b"]["config"])
    cut = stage_weights(read, FORMATS["bf16"], tensor_parallel_size=4)[0]
    dealt = stage_weights(read, FORMATS["bf16"], tensor_parallel_size=4, expert_parallel_size=4)[0]
    whole = stage_weights(read, FORMATS["bf16"])[0]

    assert whole.bytes_by_component["routed_experts"] // 4 == cut.bytes_by_component["routed_experts"]
    assert cut.bytes_by_component == dealt.bytes_by_component
    assert 4 * cut.largest_matrix >= dealt.largest_matrix


def test_components_an_engine_does_not_load_are_absent():
    read = model(LLAMA_8B)
    without = stage_weights(read, FORMATS["bf16"], rules=WeightRules(absent=frozenset({"lm_head"})))[0]

    assert 16_060_522_496 - 128256 * 4096 * 2 == without.total


def test_an_embedding_that_an_engine_keeps_whole_is_not_cut_over_ranks():
    read = model(LLAMA_8B)
    cut, whole = (
        stage_weights(read, FORMATS["bf16"], tensor_parallel_size=4, rules=WeightRules(replicated_names=names))[0]
        for names in ((), ("embed_tokens",))
    )

    assert 128256 * 4096 * 2 * 3 // 4 == whole.total - cut.total


def test_a_repack_drops_zeros_and_group_index_of_symmetric_gptq():
    read, kind = model(LLAMA_8B), FORMATS["gptq-w4-g128-sym"]
    kept = stage_weights(read, kind)[0]
    dropped = stage_weights(read, kind, rules=WeightRules(without_zeros=frozenset({"gptq"})))[0]
    linears, columns = 6_979_321_856, 3 * 4096 + 4096 + 2 * 4096 + 14336

    assert linears // 128 // 2 + 32 * columns * 4 == kept.total - dropped.total


def test_mxfp4_quantizes_experts_only():
    stage = stage_weights(model(META["gpt-oss-20b mxfp4"]["config"]), FORMATS["mxfp4"])[0]

    assert 24 * 32 * 3 * 2880 * 2880 == stage.quantized_parameters


def test_a_file_on_disk_is_at_least_what_is_loaded():
    read = model(LLAMA_8B)

    assert 16_060_522_496 == disk_bytes(read, FORMATS["bf16"])
