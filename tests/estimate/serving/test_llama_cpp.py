import pytest
from cards import BERT, DEEPSEEK_V3, LLAMA_8B, answer, assumed, size

from tonnage.units import GiB, MiB

CPP = {"engine": "llama.cpp", "engine_version": "b9500"}
ONE_SLOT = CPP | {"max_model_len": 8_192, "n_parallel": 1, "n_gpu_layers": 999}


def weights_of(report):
    return [sum(i.bytes.expected for i in g.items if i.component == "weights") for g in report.gpus]


def test_llama_8b_needs_the_buffers_of_the_dry_run():
    report = answer(LLAMA_8B, "gguf-q4-k-m", **ONE_SLOT)

    assert 4_403 == size(report, "weights") // MiB
    assert 1_024 * MiB == size(report, "kv_cache")
    assert 116 == (size(report, "activations") + size(report, "logits")) // MiB


def test_a_server_without_stated_slots_has_four_that_share_the_context():
    report = answer(LLAMA_8B, "gguf-q4-k-m", **CPP, max_model_len=8_192, n_gpu_layers=999)

    assert 4 == assumed(report)["serving.n_parallel"]
    assert (8_192, 1.0) == (report.kv_cache.max_model_len, report.kv_cache.max_concurrency)


def test_stated_slots_divide_the_context():
    report = answer(LLAMA_8B, "gguf-q4-k-m", **CPP, max_model_len=8_192, n_parallel=4, n_gpu_layers=999)

    assert (2_048, 4.0) == (report.kv_cache.max_model_len, report.kv_cache.max_concurrency)


def test_older_builds_reserve_logits_for_every_token():
    old = answer(LLAMA_8B, "gguf-q4-k-m", **{**ONE_SLOT, "engine_version": "b6200"}, flash_attn=True)
    new = answer(LLAMA_8B, "gguf-q4-k-m", **ONE_SLOT)

    assert 258 == (size(old, "activations", "idle") + size(old, "logits", "idle")) // MiB
    assert 0 == size(new, "logits", "idle")


def test_an_unstated_build_keeps_room_for_the_older_ones():
    unstated = answer(LLAMA_8B, "gguf-q4-k-m", **{k: v for k, v in ONE_SLOT.items() if k != "engine_version"})
    parts = [i.bytes for i in unstated.gpus[0].items if i.component in ("activations", "logits")]

    assert 258 == sum(p.expected for p in parts) // MiB
    assert sum(p.low for p in parts) <= 116 * MiB


def test_fewer_layers_on_the_gpu_leave_the_rest_on_the_host():
    whole = answer(LLAMA_8B, "gguf-q4-k-m", **ONE_SLOT)
    half = answer(LLAMA_8B, "gguf-q4-k-m", **{**ONE_SLOT, "n_gpu_layers": 17})

    assert size(whole, "kv_cache") // 2 == size(half, "kv_cache")
    assert sum(i.bytes.expected for i in half.host.items) > sum(i.bytes.expected for i in whole.host.items) + GiB


def test_no_layer_on_the_gpu_leaves_nothing_there():
    none = answer(LLAMA_8B, "gguf-q4-k-m", **{**ONE_SLOT, "n_gpu_layers": 0})

    assert 0 == size(none, "weights") == size(none, "kv_cache")


def test_tensor_split_divides_layers_over_devices():
    even = answer(LLAMA_8B, "gguf-q4-k-m", {"pipeline_parallel_size": 2}, **ONE_SLOT)
    uneven = answer(LLAMA_8B, "gguf-q4-k-m", {"pipeline_parallel_size": 2}, **ONE_SLOT, tensor_split=[3, 1])
    whole = answer(LLAMA_8B, "gguf-q4-k-m", **ONE_SLOT)

    assert sum(weights_of(even)) == sum(weights_of(uneven)) == size(whole, "weights")
    assert weights_of(uneven)[0] > 2 * weights_of(uneven)[1]


def test_experts_on_the_host_leave_the_gpu():
    whole = answer(DEEPSEEK_V3, "gguf-q4-k-m", **ONE_SLOT)
    attention_only = answer(DEEPSEEK_V3, "gguf-q4-k-m", **ONE_SLOT, cpu_moe_layers=61)

    assert size(attention_only, "weights") < size(whole, "weights") // 20
    assert size(whole, "kv_cache") == size(attention_only, "kv_cache")


def test_deepseek_caches_latents_and_older_files_every_head():
    stated = answer(DEEPSEEK_V3, "gguf-q4-k-m", **ONE_SLOT)
    old = answer(DEEPSEEK_V3, "gguf-q4-k-m", **{**ONE_SLOT, "engine_version": "b5000"})

    assert 61 * 576 * 2 * 8_192 == size(stated, "kv_cache")
    assert 61 * 81_920 * 8_192 == size(old, "kv_cache")


def test_a_quantized_value_cache_without_flash_attention_is_refused():
    report = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "h100-sxm"}, **ONE_SLOT, kv_cache_dtype="q8_0", flash_attn=False)

    assert "excluded" == report.verdict


def test_a_quantized_cache_is_staged_in_half_precision_when_read():
    report = answer(LLAMA_8B, "gguf-q4-k-m", **ONE_SLOT, kv_cache_dtype="q8_0")

    assert 8_192 * 8 * 256 * 2 == size(report, "dequantization")
    assert 1_024 * MiB * 17 // 32 == size(report, "kv_cache")


def test_a_request_longer_than_a_slot_is_excluded():
    report = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "h100-sxm"}, **ONE_SLOT, input_tokens=8_000, output_tokens=1_000)

    assert "excluded" == report.verdict


def test_more_requests_than_slots_need_confirmation():
    report = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "h100-sxm"}, **ONE_SLOT, concurrency=8)

    assert "needs_confirmation" == report.verdict


def test_unstated_layers_are_as_many_as_fit():
    report = answer(LLAMA_8B, "gguf-q8-0", {"gpu": "rtx-3070"}, **CPP, max_model_len=32_768, n_parallel=1)

    assert "needs_confirmation" == report.verdict
    assert report.required.expected < report.capacity.usable_bytes
    told = next(reason.reason for reason in report.reasons if "layers fit" in reason.reason)
    assert told.startswith(f"only {assumed(report)['serving.n_gpu_layers']} of 33 layers fit")


def test_an_unstated_context_is_cut_to_what_fits():
    report = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "rtx-3070"}, **CPP, n_parallel=1)

    assert "met" == report.verdict
    assert 4_096 <= report.kv_cache.max_model_len < 131_072


def test_encoders_have_no_cache():
    report = answer(BERT, "gguf-f16", **CPP, max_model_len=512)

    assert report.kv_cache is None
    assert size(report, "weights") > 0


@pytest.mark.parametrize("context", [4_096, 16_384, 65_536])
def test_contexts_grow_the_cache_in_proportion(context):
    report = answer(LLAMA_8B, "gguf-q4-k-m", **{**ONE_SLOT, "max_model_len": context})

    assert 131_072 * context == size(report, "kv_cache")


def test_a_projector_that_nobody_asked_for_is_named_among_the_unknowns():
    def unknown(**fields):
        report = answer("google/gemma-3-12b-it", "gguf-q4-k-m", {"gpu": "h100-sxm"}, engine="llama.cpp", **fields)
        return [words for words in report.unknowns if "mmproj" in words]

    assert 1 == len(unknown(max_model_len=8_192))
    assert [] == unknown(max_model_len=8_192, multimodal={"images_per_prompt": 1})
    assert [] == unknown(max_model_len=8_192, multimodal={"language_model_only": True})


QUANTIZED = {
    "kv_cache_dtype": {"k": "q8_0", "v": "q8_0"},
    "max_model_len": 131_072,
    "n_gpu_layers": 999,
    "n_parallel": 1,
}


def test_copies_of_a_quantized_cache_moved_into_the_compute_buffer():
    before = answer(LLAMA_8B, "gguf-q4-k-m", **CPP | {"engine_version": "b9450"}, **QUANTIZED)
    since = answer(LLAMA_8B, "gguf-q4-k-m", **CPP | {"engine_version": "b9510"}, **QUANTIZED)
    copies = 131_072 * 2 * 8 * 128 * 2

    assert copies == size(before, "dequantization", "prefill")
    assert 0 == size(since, "dequantization", "prefill")
    assert size(since, "activations", "idle") > copies > size(before, "activations", "idle")


def test_experts_on_the_host_visit_in_the_compute_buffer():
    whole, left = (
        answer(
            "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
            "gguf-q4-0",
            **CPP | {"engine_version": "b10900"},
            max_model_len=8_192,
            n_gpu_layers=99,
            n_parallel=1,
            cpu_moe_layers=layers,
        )
        for layers in (0, 13)
    )
    tensor = 64 * 2_048 * 1_408 * 18 // 32

    assert size(left, "activations", "idle") > tensor > size(whole, "activations", "idle")


def test_a_latent_cache_may_turn_out_to_be_one_of_every_head():
    report = answer(
        "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "gguf-q4-0", **CPP, max_model_len=2_048, n_gpu_layers=99
    )
    (cached,) = (i.bytes for i in report.gpus[0].items if i.component == "kv_cache")

    assert (60, 540) == (cached.expected // MiB, cached.high // MiB)
