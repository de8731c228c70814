"""GGUF headers come out as the models they were made from; names of keys as llama.cpp writes them."""

import pytest

from tonnage.architecture import read_gguf
from tonnage.errors import MissingFact, Unsupported


def header(architecture, tokens, **own):
    named = {f"{architecture}.{key.replace('__', '.')}": value for key, value in own.items()}
    return {
        "general.architecture": architecture,
        "general.file_type": 15,
        "tokenizer.ggml.tokens": ["x"] * tokens,
    } | named


def heads(count, keys, **more):
    return {"attention__head_count": count, "attention__head_count_kv": keys} | more


LLAMA_8B = header("llama", 128256, block_count=32, embedding_length=4096, feed_forward_length=14336, **heads(32, 8))
HEADERS = {
    "Llama-3.1-8B": (8_030_261_248, LLAMA_8B),
    "Llama-3.2-1B, tied": (
        1_235_814_400,
        header("llama", 128256, block_count=16, embedding_length=2048, feed_forward_length=8192, **heads(32, 8)),
    ),
    "Mixtral-8x7B": (
        46_702_792_704,
        header("llama", 32000, block_count=32, embedding_length=4096, feed_forward_length=14336, expert_count=8,
               expert_used_count=2, **heads(32, 8)),
    ),
    "Qwen2.5-7B": (
        7_615_616_512,
        header("qwen2", 152064, block_count=28, embedding_length=3584, feed_forward_length=18944, **heads(28, 4)),
    ),
    "Qwen3-30B-A3B": (
        30_532_122_624,
        header("qwen3moe", 151936, block_count=48, embedding_length=2048, feed_forward_length=6144,
               expert_feed_forward_length=768, expert_count=128, expert_used_count=8,
               **heads(32, 4, attention__key_length=128)),
    ),
    "Gemma-2-9B": (
        9_241_705_984,
        header("gemma2", 256000, block_count=42, embedding_length=3584, feed_forward_length=14336,
               **heads(16, 8, attention__key_length=256, attention__sliding_window=4096)),
    ),
    "DeepSeek-V3, latent cache as one head": (
        671_026_404_352,
        header("deepseek2", 129280, block_count=61, embedding_length=7168, feed_forward_length=18432,
               expert_feed_forward_length=2048, leading_dense_block_count=3, attention__q_lora_rank=1536,
               attention__kv_lora_rank=512, attention__key_length=576, attention__value_length=512,
               attention__key_length_mla=192, attention__value_length_mla=128, rope__dimension_count=64,
               expert_count=256, expert_used_count=8, expert_shared_count=1, expert_gating_func=2, **heads(128, 1)),
    ),
    "DeepSeek-V2-Lite, written before latent caches": (
        15_706_484_224,
        header("deepseek2", 102400, block_count=27, embedding_length=2048, feed_forward_length=10944,
               expert_feed_forward_length=1408, leading_dense_block_count=1, attention__kv_lora_rank=512,
               attention__key_length=192, attention__value_length=128, rope__dimension_count=64, expert_count=64,
               expert_used_count=6, expert_shared_count=2, **heads(16, 16)),
    ),
    "gpt-oss-20b": (
        20_914_757_184,
        header("gpt-oss", 201088, block_count=24, embedding_length=2880, feed_forward_length=2880,
               expert_feed_forward_length=2880, attention__sliding_window=128, expert_count=32, expert_used_count=4,
               **heads(64, 8, attention__key_length=64)),
    ),
    "GLM-4.5-Air, prediction layer among its blocks": (
        106_852_245_504,
        header("glm4moe", 151552, block_count=47, nextn_predict_layers=1, embedding_length=4096,
               feed_forward_length=10944, expert_feed_forward_length=1408, leading_dense_block_count=1,
               expert_count=128, expert_used_count=8, expert_shared_count=1, **heads(96, 8, attention__key_length=128)),
    ),
    "Qwen3-Next-80B-A3B": (
        79_674_391_296,
        header("qwen3next", 151936, block_count=48, embedding_length=2048, feed_forward_length=5120,
               expert_feed_forward_length=512, expert_shared_feed_forward_length=512, expert_count=512,
               expert_used_count=10, ssm__conv_kernel=4, ssm__state_size=128, ssm__group_count=16,
               ssm__time_step_rank=32, ssm__inner_size=4096, **heads(16, 2, attention__key_length=256)),
    ),
    "LFM2-1.2B, heads by layer": (
        1_170_340_608,
        header("lfm2", 65536, block_count=16, embedding_length=2048, feed_forward_length=8192, shortconv__l_cache=3,
               **heads(32, [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0])),
    ),
    "Granite-4.0-H-Tiny": (
        6_939_037_248,
        header("granitehybrid", 100352, block_count=40, embedding_length=1536, feed_forward_length=512,
               expert_shared_feed_forward_length=1024, expert_count=64, expert_used_count=6, ssm__conv_kernel=4,
               ssm__state_size=128, ssm__group_count=1, ssm__inner_size=3072, ssm__time_step_rank=48,
               **heads(12, [4 if layer in (5, 15, 25, 35) else 0 for layer in range(40)])),
    ),
    "Mamba-370M": (
        371_516_416,
        header("mamba", 50280, block_count=48, embedding_length=1024, feed_forward_length=0, attention__head_count=0,
               ssm__conv_kernel=4, ssm__inner_size=2048, ssm__state_size=16, ssm__time_step_rank=64),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_counts_as_its_model(name):
    expected, metadata = HEADERS[name]
    assert expected == read_gguf(metadata).parameters_total


def test_the_file_type_is_the_weight_format():
    assert ["gguf-q4-k-m", "gguf-f16", None] == [
        read_gguf({**LLAMA_8B, "general.file_type": number}).weight_format for number in (15, 1, 1024)
    ]
    assert "fp16" == read_gguf({**LLAMA_8B, "general.file_type": 1}).dtype


def test_what_the_header_does_not_say_is_said():
    assert "taken as untied" in read_gguf(LLAMA_8B).notes[-1]


def test_a_published_count_decides_whether_the_head_is_tied():
    model = read_gguf(LLAMA_8B, parameters=8_030_261_248 - 128256 * 4096)
    assert True is model.tie_word_embeddings


def test_the_same_header_is_the_same_object():
    assert read_gguf(dict(LLAMA_8B)) is read_gguf(dict(LLAMA_8B))


def test_missing_keys_are_named_as_the_header_names_them():
    short = {key: value for key, value in LLAMA_8B.items() if key not in ("llama.block_count", "tokenizer.ggml.tokens")}
    with pytest.raises(MissingFact, match=r"llama\.block_count, tokenizer\.ggml\.tokens") as refused:
        read_gguf(short)
    assert "/model/gguf/llama.block_count" == refused.value.pointer


def test_a_header_without_architecture_is_refused():
    with pytest.raises(MissingFact, match=r"general\.architecture"):
        read_gguf({"llama.block_count": 32})


def test_an_architecture_without_a_table_says_what_has_one():
    with pytest.raises(Unsupported, match="gpt-oss"):
        read_gguf({"general.architecture": "telepathy"})
