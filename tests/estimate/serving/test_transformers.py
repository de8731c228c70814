import pytest
from cards import BERT, DEEPSEEK_V3, LLAMA_8B, answer, assumed, size, total

from tonnage.units import GiB, MiB

HF = {"engine": "transformers"}
LONG = HF | {"input_tokens": 6_144, "output_tokens": 2_048}


def test_cache_holds_every_token_but_the_last():
    report = answer(LLAMA_8B, **LONG)

    assert 131_072 * (6_144 + 2_048 - 1) == size(report, "kv_cache", "idle")
    assert 131_072 * 6_144 == size(report, "kv_cache", "prefill")


def test_weights_count_the_remainders_of_their_segments():
    report = answer(LLAMA_8B, **LONG)

    assert size(report, "weights") == pytest.approx(8_030_261_248 * 2, rel=0.01)
    assert size(report, "weights") >= 8_030_261_248 * 2


def test_a_long_prompt_peaks_in_the_prefill_and_a_short_one_in_the_last_step():
    prefill = answer(LLAMA_8B, **LONG)
    decode = answer(LLAMA_8B, **HF, input_tokens=1, output_tokens=2_048)

    assert prefill.peak.allocated.expected == total(prefill, "prefill").expected
    assert decode.peak.allocated.expected == total(decode, "decode").expected


def test_before_4_45_logits_of_the_whole_prompt_lead():
    old = answer(LLAMA_8B, **LONG, engine_version="4.44.2")
    new = answer(LLAMA_8B, **LONG, engine_version="4.45.2")

    assert 6_144 * 128_256 * 6 == size(old, "logits", "prefill")
    assert old.peak.allocated.expected - new.peak.allocated.expected > 3 * GiB


def test_eager_attention_pays_for_scores_of_every_head():
    eager = answer(LLAMA_8B, **LONG, attn_implementation="eager")
    sdpa = answer(LLAMA_8B, **LONG, attn_implementation="sdpa")

    assert size(eager, "activations", "prefill") > 32 * 6_144 * 6_144 * 8
    assert size(eager, "activations", "prefill") > size(sdpa, "activations", "prefill")


def test_a_batch_multiplies_cache_and_activations_but_not_weights():
    one, four = (answer(LLAMA_8B, **LONG, batch_size=n) for n in (1, 4))

    assert 4 * size(one, "kv_cache", "idle") == size(four, "kv_cache", "idle")
    assert 4 * size(one, "activations", "prefill") == size(four, "activations", "prefill")
    assert size(one, "weights") == size(four, "weights")


def test_concurrent_requests_are_one_batch_over_the_replicas():
    report = answer(LLAMA_8B, placement={"data_parallel_size": 2}, **LONG, concurrency=8)

    assert 4 == assumed(report)["serving.batch_size"]


def test_tuple_caches_exist_twice():
    old = answer(
        LLAMA_8B, **HF, input_tokens=1, output_tokens=2_048, engine_version="4.35.2", attn_implementation="eager"
    )

    assert size(old, "kv_cache", "decode") == size(old, "activations", "decode")


def test_blocks_outgrown_by_the_cache_are_in_the_peak_but_given_back_before_anything_fails():
    report = answer(LLAMA_8B, **HF, input_tokens=1, output_tokens=2_048, batch_size=64)
    decode = next(p for p in report.phases if p.phase == "decode")
    (outgrown,) = [i for i in decode.items if i.component == "fragmentation" and "outgrown" in i.detail]

    assert report.required.high < report.peak.device.high - outgrown.bytes.high // 2
    assert report.required.expected >= decode.total.allocated.expected


def test_latent_caches_came_with_5_15():
    expanded = answer(DEEPSEEK_V3, **LONG, engine_version="5.0.0")
    latent = answer(DEEPSEEK_V3, **LONG, engine_version="5.15.0")

    assert 61 * 576 * 2 * 8_191 == size(latent, "kv_cache", "idle")
    assert size(expanded, "kv_cache", "idle") > 50 * size(latent, "kv_cache", "idle")


def test_four_bit_gptq_keeps_a_matrix_in_half_precision():
    report = answer(LLAMA_8B, "gptq-w4-g128-sym", **LONG)

    assert 2 * 14_336 * 4_096 == size(report, "quantization_workspace")


def test_hopper_has_the_larger_cublas_workspace():
    hopper = answer(LLAMA_8B, placement={"gpu": "h100-sxm"}, **LONG)
    ampere = answer(LLAMA_8B, placement={"gpu": "a100-80-sxm"}, **LONG)

    assert 32 * MiB == size(hopper, "workspace")
    assert 8_519_680 == size(ampere, "workspace")


def test_a_device_map_places_every_layer_once():
    one = answer(LLAMA_8B, **LONG)
    three = answer(LLAMA_8B, placement={"pipeline_parallel_size": 3}, **LONG)

    weights = [sum(i.bytes.expected for i in g.items if i.component == "weights") for g in three.gpus]
    caches = [sum(i.bytes.expected for i in g.items if i.component == "kv_cache") for g in three.gpus]
    assert 3 == len(three.gpus)
    assert sum(weights) == pytest.approx(size(one, "weights"), rel=0.01)
    assert sum(caches) == size(one, "kv_cache")


def test_encoders_have_no_cache_and_no_decode():
    report = answer(BERT, **HF, input_tokens=512, batch_size=8)

    assert {"load", "prefill"} == {p.phase for p in report.phases}
    assert report.kv_cache is None
    assert size(report, "weights") == pytest.approx(109_482_240 * 4, rel=0.02)


def test_nothing_is_claimed_in_advance():
    report = answer(LLAMA_8B, placement={"gpu": "a100-80-sxm"}, **LONG)

    assert report.claimed_bytes is None
    assert "met" == report.verdict


def test_an_unknown_newer_version_needs_confirmation():
    report = answer(LLAMA_8B, placement={"gpu": "a100-80-sxm"}, **LONG, engine_version="9.0.0")

    assert "needs_confirmation" == report.verdict


def test_longer_prompts_never_cost_less():
    peaks = [
        answer(LLAMA_8B, **HF, input_tokens=n, output_tokens=64).peak.device.expected for n in (1, 100, 1_000, 10_000)
    ]

    assert sorted(peaks) == peaks


def test_prompts_longer_than_the_window_make_a_mask():
    windowed = {**LLAMA_8B, "model_type": "mistral", "sliding_window": 4_096}
    report = answer(windowed, **LONG)
    plain = answer({**windowed, "sliding_window": None}, **LONG)

    assert 6_144 * 6_144 == size(report, "activations", "prefill") - size(plain, "activations", "prefill")


def test_bitsandbytes_dequantizes_a_matrix_where_the_prompt_is_short():
    short = answer(LLAMA_8B, "bnb-nf4", **HF, input_tokens=16, output_tokens=8)
    long = answer(LLAMA_8B, "bnb-nf4", **LONG)

    assert 2 * 14_336 * 4_096 == size(short, "dequantization", "prefill")
    assert 0 == size(long, "dequantization", "prefill")
