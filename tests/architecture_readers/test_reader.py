"""What a reader of configs owes its caller: refusals by name, one object per content, trust that is earned."""

import contextlib

import pytest

from tonnage.architecture import count_only, describe_layers, parameters_by_component, read_config
from tonnage.errors import ContradictoryWorkload, MissingFact, SizingError

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_COUNT = 8_030_261_248


def without(*keys):
    return {key: value for key, value in LLAMA.items() if key not in keys}


def test_the_published_count_makes_a_reading_exact():
    model = read_config(LLAMA, parameters=LLAMA_COUNT)
    assert (LLAMA_COUNT, "exact", ()) == (model.parameters_total, model.trust, model.notes)


def test_the_same_content_is_the_same_object():
    assert read_config(dict(LLAMA)) is read_config(dict(LLAMA))
    assert read_config(LLAMA) is not read_config(LLAMA, id="meta-llama/Llama-3.1-8B")


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"]
)
def test_a_missing_key_is_refused_by_name(key):
    with pytest.raises(MissingFact, match=key) as refused:
        read_config(without(key))
    assert f"/model/config/{key}" == refused.value.pointer


def test_all_missing_keys_are_named_at_once():
    with pytest.raises(MissingFact, match="hidden_size, vocab_size"):
        read_config(without("hidden_size", "vocab_size"))


def test_a_missing_model_type_is_refused():
    with pytest.raises(MissingFact, match="model_type"):
        read_config(without("model_type"))


def test_a_nested_config_takes_the_sizes_its_class_assumes():
    towers = {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    }
    config = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "vocab_size": 32064},
        "vision_config": towers,
    }
    model = read_config(config)
    assert 4096 == model.hidden_size
    assert (
        "text_config leaves to its class: hidden_size, intermediate_size, num_attention_heads, num_hidden_layers",
    ) == model.notes


def test_a_part_of_no_known_type_that_lacks_a_key_is_named_with_its_path():
    with pytest.raises(MissingFact, match="text_config lacks num_hidden_layers") as refused:
        read_config({"model_type": "brandnew_vl", "text_config": without("num_hidden_layers", "model_type")})
    assert "/model/config/text_config/num_hidden_layers" == refused.value.pointer


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4096", 10**12, [4096]])
def test_a_size_that_is_no_whole_number_is_refused(value):
    with pytest.raises((ContradictoryWorkload, MissingFact)):
        read_config({**LLAMA, "hidden_size": value})


def test_an_integral_float_is_a_whole_number():
    assert read_config(LLAMA).parameters_total == read_config({**LLAMA, "hidden_size": 4096.0}).parameters_total


def test_more_layers_than_any_model_has_are_refused():
    with pytest.raises(ContradictoryWorkload, match="num_hidden_layers"):
        read_config({**LLAMA, "num_hidden_layers": 513})


def test_a_layer_list_that_ends_early_is_refused():
    config = {**LLAMA, "model_type": "gpt_oss", "layer_types": ["full_attention"] * 3}
    with pytest.raises(ContradictoryWorkload, match="layer_types has 3 entries for 32 layers"):
        read_config(config)


def test_a_layer_word_without_a_law_is_refused():
    with pytest.raises(ContradictoryWorkload, match="telepathy"):
        read_config({**LLAMA, "layer_types": ["telepathy"] * 32})


def test_a_published_count_without_the_head_decides_for_that_reading():
    headless = LLAMA_COUNT - 128256 * 4096
    model = read_config(LLAMA, parameters=headless)
    assert (headless, "exact") == (model.parameters_total, model.trust)
    assert "without its language-model head" in model.notes[0]


def test_a_tied_head_counts_once_and_may_be_stored_twice():
    tied = {**LLAMA, "tie_word_embeddings": True}
    model = read_config(tied, parameters=LLAMA_COUNT)
    assert LLAMA_COUNT - 128256 * 4096 == model.parameters_total
    assert ("exact", "lm_head" in parameters_by_component(model)) == (model.trust, False)


def test_a_count_that_contradicts_the_config_costs_the_trust():
    model = read_config(LLAMA, parameters=13_000_000_000)
    assert ("generic", ("parameters",)) == (model.trust, model.unknown_fields)
    assert "13000000000 differs from the 8030261248" in model.notes[0]


def test_an_unknown_type_is_read_by_generic_laws_and_says_so():
    model = read_config({**LLAMA, "model_type": "brandnew", "shiny_experts_hidden": 7}, parameters=LLAMA_COUNT)
    assert (LLAMA_COUNT, "generic", ("shiny_experts_hidden",)) == (
        model.parameters_total, model.trust, model.unknown_fields,
    )  # fmt: skip


def test_an_unknown_composite_names_the_tower_it_cannot_read():
    model = read_config({"model_type": "brandnew_vl", "text_config": LLAMA, "vision_config": {"layers": 3}})
    assert ("generic", ("vision_config",)) == (model.trust, model.unknown_fields)


def test_a_bare_count_has_no_architecture():
    model = count_only(7_000_000_000, trainable_parameters=20_000_000)
    assert (7_000_000_000, 20_000_000, "count", False) == (
        model.parameters_total, model.trainable_parameters, model.trust, model.known,
    )  # fmt: skip


def test_prediction_layers_stand_beside_the_model():
    small = {
        "model_type": "deepseek_v3", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 8, "vocab_size": 1000, "kv_lora_rank": 128, "q_lora_rank": 256, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 128, "first_k_dense_replace": 1,
    }  # fmt: skip
    plain, predicting = read_config(small), read_config({**small, "num_nextn_predict_layers": 1})
    assert plain.parameters_total == predicting.parameters_total
    last = next(group.layer for group in predicting.layers if 3 in group.indices)
    joined = 2 * 512 * 512 + 3 * 512 + 2 * 1000 * 512
    stored = sum(tensor.elements for tensor in predicting.extra_checkpoint if tensor.parameter)
    assert (last.elements + joined, 1) == (stored, predicting.mtp_layers)


def test_a_config_says_how_its_checkpoint_is_stored():
    stored = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = read_config({**LLAMA, "quantization_config": stored})
    assert ("fp8-block-128x128", stored) == (model.weight_format, model.quantization_config)
    assert "fp16" == read_config({**LLAMA, "torch_dtype": "float16"}).dtype


def test_layers_that_differ_by_their_own_config_form_groups_of_their_own():
    model = read_config({**LLAMA, "per_layer_config": {"0": {"num_key_value_heads": 4}}})
    assert [(0,), tuple(range(1, 32))] == [group.indices for group in model.layers]
    assert 4 == model.layers[0].layer.attention.num_key_value_heads


def test_a_layer_map_reads_as_words():
    assert "32 x full attention; 32 x gated MLP 14336" == describe_layers(read_config(LLAMA))


def test_an_encoder_alone_is_encoder_layers():
    t5 = {
        "model_type": "t5", "d_model": 4096, "d_kv": 64, "num_heads": 64, "num_layers": 24, "d_ff": 10240,
        "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "architectures": ["T5EncoderModel"],
    }  # fmt: skip
    model = read_config(t5)
    assert (4_762_310_656, ["encoder"]) == (model.parameters_total, [group.layer.role for group in model.layers])


def test_the_same_model_counts_the_same_in_the_layout_of_its_own_repository():
    text = {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 151674, "tie_word_embeddings": False,
    }  # fmt: skip
    tower = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    hub = read_config(
        {"model_type": "internvl", "text_config": text, "vision_config": {**tower, "attention_bias": True}}
    )
    own = read_config({"model_type": "internvl_chat", "llm_config": text, "vision_config": {**tower, "qkv_bias": True}})
    assert 7_944_373_760 == hub.parameters_total == own.parameters_total


WEIRD = (None, True, -1, 0, 3.5, 1e300, 10**30, "x", "", [], {}, [None], [[1]], {"a": 1})


@pytest.mark.parametrize("value", WEIRD, ids=repr)
@pytest.mark.parametrize(
    "model_type", ["llama", "gemma4_text", "deepseek_v3", "nemotron_h", "qwen2_vl", "t5", "whisper"]
)
def test_no_value_of_any_key_is_more_than_refused(model_type, value):
    config = LLAMA | {
        "model_type": model_type, "layer_types": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "rope_scaling": None,
        "hybrid_override_pattern": "M*-E" * 8, "vision_config": {}, "d_kv": 64, "d_ff": 128, "per_layer_config": {},
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "quantization_config": None,
    }  # fmt: skip
    for key in config:
        with contextlib.suppress(SizingError):
            read_config({**config, key: value})


def test_more_differing_layers_than_any_model_has_are_refused():
    gemma = {
        "model_type": "gemma3n_text", "hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 2,
        "vocab_size": 262144, "head_dim": 256, "num_kv_shared_layers": 0,
    }  # fmt: skip

    def deep(kinds):
        return gemma | {"num_hidden_layers": 200, "intermediate_size": [1024 + 64 * (n % kinds) for n in range(200)]}

    assert read_config(deep(90)).layers
    with pytest.raises(ContradictoryWorkload, match="differ from each other"):
        read_config(deep(100))
