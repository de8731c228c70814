"""What must hold for any model: shards add up to at least the whole, more is never less."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimate.stock import BF16, FORMATS, KV_FORMATS, LLAMA_8B, golden, model

from tonnage.estimate.caches import sequence_bytes, token_bytes
from tonnage.estimate.resident import resident_tensors, unsplit_remainders
from tonnage.estimate.weights import WeightRules, stage_weights

HEADS = st.sampled_from([4, 8, 16, 32])
RANKS = st.sampled_from([1, 2, 4])
WIDENING = ["awq-w4-g128", "bnb-nf4", "fp8-per-tensor", "int8-w8a8", "bf16", "fp32"]
GGUF = ["gguf-q2-k", "gguf-q3-k-m", "gguf-q4-k-m", "gguf-q5-k-m", "gguf-q6-k", "gguf-q8-0", "gguf-bf16", "gguf-f32"]
KV = ["kv-q4_0", "kv-q5_0", "kv-q8_0", "kv-bf16", "kv-fp32"]


@st.composite
def configs(draw):
    heads = draw(HEADS)
    return LLAMA_8B | {
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= heads])),
        "hidden_size": 256 * draw(st.integers(1, 32)),
        "head_dim": draw(st.sampled_from([64, 128])),
        "intermediate_size": 256 * draw(st.integers(1, 64)),
        "num_hidden_layers": draw(st.integers(1, 24)),
        "vocab_size": draw(st.integers(1000, 300_000)),
        "tie_word_embeddings": draw(st.booleans()),
    }


@given(configs(), RANKS, st.sampled_from(WIDENING))
@settings(max_examples=60, deadline=None)
def test_ranks_hold_together_at_least_the_whole(config, ranks, name):
    read = model(config)
    whole = stage_weights(read, FORMATS[name])[0]
    part = stage_weights(read, FORMATS[name], tensor_parallel_size=ranks)[0]

    assert ranks * part.total >= whole.total
    assert ranks * part.parameters >= whole.parameters


@given(configs(), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_stages_hold_together_the_whole_and_the_copy_of_a_tied_head(config, stages):
    read = model(config)
    stages = min(stages, read.num_hidden_layers)
    whole = stage_weights(read, FORMATS["bf16"])[0].total
    copy = read.vocab_size * read.hidden_size * 2 if read.tie_word_embeddings and stages > 1 else 0

    assert whole + copy == sum(s.total for s in stage_weights(read, FORMATS["bf16"], pipeline_parallel_size=stages))


@given(configs())
@settings(max_examples=40, deadline=None)
def test_wider_formats_never_take_less(config):
    read = model(config)
    for ladder in (WIDENING, GGUF):
        sizes = [stage_weights(read, FORMATS[name], FORMATS)[0].total for name in ladder]
        assert sorted(sizes) == sizes


@given(configs(), st.sampled_from(["hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"]))
@settings(max_examples=60, deadline=None)
def test_a_larger_dimension_never_takes_less(config, key):
    larger = config | {key: config[key] + (256 if key.endswith("size") else 1)}
    for name in ("bf16", "awq-w4-g128", "gguf-q4-k-m"):
        assert stage_weights(model(larger), FORMATS[name], FORMATS)[0].total >= (
            stage_weights(model(config), FORMATS[name], FORMATS)[0].total
        )


@given(configs(), RANKS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_tensors_as_made_add_up_to_the_weights_and_the_allocator_counts_no_less(config, ranks, merges):
    read, rules = model(config), WeightRules(vocabulary_multiple=64, merges=merges)
    stage = stage_weights(read, FORMATS["bf16"], tensor_parallel_size=ranks, rules=rules)[0]
    made = resident_tensors(read, FORMATS["bf16"], tensor_parallel_size=ranks, rules=rules)[0]

    assert stage.total == sum(size * count for size, count in made)
    assert 0 <= unsplit_remainders(made) <= sum(count for _, count in made) * 2**20 + 512 * len(made)


@given(configs(), RANKS, st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_caches_of_ranks_add_up_and_grow_with_length_and_width(config, ranks, tokens):
    read = model(config)
    sizes = [token_bytes(read, KV_FORMATS[name], KV_FORMATS[name]) for name in KV]

    assert sorted(sizes) == sizes
    assert ranks * token_bytes(read, BF16, BF16, tensor_parallel_size=ranks) >= token_bytes(read, BF16, BF16)
    assert sequence_bytes(read, tokens, BF16, BF16) <= sequence_bytes(read, tokens + 1, BF16, BF16)


@given(st.integers(0, 200_000), st.integers(1, 8192))
@settings(max_examples=60, deadline=None)
def test_a_window_never_costs_more_than_full_attention(tokens, window):
    config = golden("vllm_meta_device.json")["cases"]["gpt-oss-20b"]["config"]
    read = model(config, sliding_window=window)

    assert sequence_bytes(read, tokens, BF16, BF16) <= tokens * token_bytes(read, BF16, BF16)
