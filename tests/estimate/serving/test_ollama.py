import pytest
from cards import LLAMA_8B, answer, assumed, size

from tonnage.units import GiB, MiB

OLLAMA = {"engine": "ollama"}


@pytest.mark.parametrize(
    ("version", "gpu", "context"),
    [
        ("0.5.4", "h100-sxm", 2_048),
        ("0.7.0", "h100-sxm", 4_096),
        ("0.16.0", "rtx-3070", 4_096),
        ("0.16.0", "rtx-4090", 32_768),
        ("0.16.0", "h100-sxm", 131_072),
    ],
)
def test_default_context_follows_release_and_memory(version, gpu, context):
    report = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": gpu}, **OLLAMA, engine_version=version)

    assert context == assumed(report)["serving.max_model_len"]


def test_slots_were_four_where_they_fit_and_are_one():
    then = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "h100-sxm"}, **OLLAMA, engine_version="0.5.4")
    small = answer(LLAMA_8B, "gguf-q8-0", {"gpu": "rtx-3070"}, **OLLAMA, engine_version="0.5.4", max_model_len=8_192)
    now = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "h100-sxm"}, **OLLAMA, engine_version="0.16.0")

    assert 4 == assumed(then)["serving.n_parallel"]
    assert 1 == assumed(small)["serving.n_parallel"]
    assert 1 == assumed(now)["serving.n_parallel"]


def test_every_slot_has_the_context():
    report = answer(LLAMA_8B, "gguf-q4-k-m", **OLLAMA, max_model_len=8_192, n_parallel=4)

    assert 4 * 1_024 * MiB == size(report, "kv_cache")
    assert 8_192 == report.kv_cache.max_model_len


def test_long_contexts_take_larger_batches_while_memory_is_left():
    large = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "h100-sxm"}, **OLLAMA, max_model_len=65_536)
    small = answer(LLAMA_8B, "gguf-q4-k-m", {"gpu": "rtx-4090"}, **OLLAMA, max_model_len=90_112)

    assert 2_048 == assumed(large)["serving.n_ubatch"]
    assert 1_024 >= assumed(small)["serving.n_ubatch"]


def test_a_model_too_large_runs_partly_on_the_host():
    report = answer(LLAMA_8B, "gguf-q8-0", {"gpu": "rtx-3070"}, **OLLAMA, max_model_len=16_384)

    assert "needs_confirmation" == report.verdict
    assert report.required.expected <= report.capacity.usable_bytes


def test_the_projector_is_loaded_whatever_the_prompt_holds():
    report = answer("google/gemma-3-12b-it", "gguf-q4-k-m", {"gpu": "h100-sxm"}, **OLLAMA, max_model_len=8_192)
    text = {"language_model_only": True}
    alone = answer(
        "google/gemma-3-12b-it", "gguf-q4-k-m", {"gpu": "h100-sxm"}, **OLLAMA, max_model_len=8_192, multimodal=text
    )

    assert 0.7 * GiB < size(report, "vision_encoder") < 1.2 * GiB
    assert assumed(report)["serving.multimodal.language_model_only"] is False
    assert not any(item.component == "vision_encoder" for item in alone.gpus[0].phases[0].items)


def test_layers_make_room_for_the_projector():
    small = {"gpu": "rtx-3070"}
    with_it = answer("google/gemma-3-12b-it", "gguf-q4-k-m", small, **OLLAMA, max_model_len=8_192)
    text = {"language_model_only": True}
    without = answer("google/gemma-3-12b-it", "gguf-q4-k-m", small, **OLLAMA, max_model_len=8_192, multimodal=text)

    assert size(with_it, "weights") < size(without, "weights")


def test_files_of_deepseek_v2_in_the_library_cache_every_head_without_flash_attention():
    report = answer(
        "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
        "gguf-q5-k-m",
        engine="ollama",
        engine_version="0.32.13",
        max_model_len=2_048,
        n_parallel=1,
    )

    assert 540 == size(report, "kv_cache", "idle") // MiB
    assert not assumed(report)["serving.flash_attn"]
