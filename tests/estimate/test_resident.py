"""Weights as the allocator counts them, against what vLLM printed on start-up."""

import pytest
from tests.estimate.stock import FORMATS, LLAMA_8B, LLAMA_70B, golden, model

from tonnage.estimate.resident import resident_tensors, unsplit_remainders
from tonnage.estimate.weights import WeightRules, stage_weights
from tonnage.units import GiB, MiB

VLLM = WeightRules(vocabulary_multiple=64, merges=True, stacks_experts=True)
TRITON_ON_HOPPER = WeightRules(vocabulary_multiple=64, merges=True, stacks_experts=True, expert_values_multiple=256)
PRINTED_TO = 0.005
"""vLLM prints two decimals. [GiB]"""

QWEN_14B = LLAMA_8B | {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 5120, "intermediate_size": 13824,
    "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 152064,
}  # fmt: skip
PHI_4 = LLAMA_8B | {
    "model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 5120, "intermediate_size": 17920,
    "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10, "vocab_size": 100352,
    "max_position_embeddings": 16384,
}  # fmt: skip
GEMMA_2_2B = {
    "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "vocab_size": 256000, "sliding_window": 4096, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT_OSS = golden("vllm_meta_device.json")["cases"]["gpt-oss-20b mxfp4"]["config"]
GPT_OSS_120B = GPT_OSS | {
    "num_hidden_layers": 36, "num_local_experts": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}  # fmt: skip

MEASURED = [
    # config, format, ranks, rules, rotary table [MiB], printed [GiB], source
    (LLAMA_8B, "bf16", 1, VLLM, 32, 14.99, "llm-d-planner accuracy_report.md@f3265ef, vLLM 0.19, H100"),
    (LLAMA_8B, "bf16", 4, VLLM, 32, 3.77, "llm-d-planner accuracy_report.md@f3265ef, vLLM 0.19, H100"),
    (QWEN_14B, "bf16", 2, VLLM, 32, 13.9476, "vllm-project/vllm issue 13061, vLLM 0.7"),
    (PHI_4, "bf16", 1, VLLM, 4, 27.39, "llm-d-planner accuracy_report.md@f3265ef, vLLM 0.19, H100"),
    (GEMMA_2_2B, "bf16", 1, VLLM, 4, 4.90, "llm-d-planner results v0.19.0 google-gemma-2-2b-it 8192@d3121e0"),
    (GPT_OSS, "mxfp4", 1, TRITON_ON_HOPPER, 32, 13.47, "llm-d-planner empirical-vllm-memory-results.md@e50305a"),
    (GPT_OSS_120B, "mxfp4", 1, TRITON_ON_HOPPER, 32, 64.38, "llm-d-planner empirical-vllm-memory-results.md@e50305a"),
]


@pytest.mark.parametrize(
    ("config", "name", "ranks", "rules", "rotary", "printed", "_"), MEASURED, ids=[f"{m[-2]}" for m in MEASURED]
)
def test_weights_remainders_and_rotary_table_are_what_vllm_prints(config, name, ranks, rules, rotary, printed, _):
    read, arguments = model(config), {"tensor_parallel_size": ranks, "rules": rules}
    weights = stage_weights(read, FORMATS[name], FORMATS, **arguments)[0].total
    remainders = unsplit_remainders(resident_tensors(read, FORMATS[name], FORMATS, **arguments)[0])

    assert printed == pytest.approx((weights + remainders + rotary * MiB) / GiB, abs=PRINTED_TO, rel=4e-4)


def test_llama_3_1_8bs_matrices_fill_their_segments():
    assert 0 == unsplit_remainders(resident_tensors(model(LLAMA_8B), FORMATS["bf16"], rules=VLLM)[0])


def test_a_matrix_half_a_mebibyte_short_of_a_segment_counts_the_half():
    one = resident_tensors(model(QWEN_14B), FORMATS["bf16"], tensor_parallel_size=2, rules=VLLM)[0]
    down = 5120 * 13824 // 2 * 2

    assert (down, 1) in one
    assert MiB // 2 == 68 * MiB - down
    assert 48 * MiB // 2 <= unsplit_remainders(one)


def test_merged_projections_are_one_tensor_and_separate_ones_are_not():
    read = model(LLAMA_8B)
    merged = resident_tensors(read, FORMATS["bf16"], rules=VLLM)[0]
    separate = resident_tensors(read, FORMATS["bf16"], rules=WeightRules())[0]

    assert (4096 * 6144 * 2, 1) in merged
    assert (4096 * 2 * 14336 * 2, 1) in merged
    assert (4096 * 4096 * 2, 1) in separate
    assert sum(size * count for size, count in merged) == sum(size * count for size, count in separate)


def test_stacked_experts_are_one_tensor_per_projection_and_others_one_each():
    read = model(golden("vllm_meta_device.json")["cases"]["qwen3-30b-a3b"]["config"])
    stacked = resident_tensors(read, FORMATS["bf16"], rules=VLLM)[0]
    apart = resident_tensors(read, FORMATS["bf16"], rules=WeightRules())[0]

    assert (128 * 2 * 768 * 2048 * 2, 1) in stacked
    assert (768 * 2048 * 2, 128) in apart


def test_every_stage_makes_its_own_tensors():
    stages = resident_tensors(model(LLAMA_70B), FORMATS["bf16"], pipeline_parallel_size=4, rules=VLLM)
    weights = stage_weights(model(LLAMA_70B), FORMATS["bf16"], pipeline_parallel_size=4, rules=VLLM)

    assert [stage.total for stage in weights] == [sum(s * n for s, n in stage) for stage in stages]
