"""Commands are such as the engines' own parsers take, and no setting of a card is lost on the way."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from test_launch import LLAMA, launched

from tonnage.fit.servers import DEMAND, SERVERS
from tonnage.spec import card
from tonnage.units import GiB

KNOWN = tomllib.loads((Path(__file__).parent / "engine_flags.toml").read_text())
CARDS = {
    str(one.__struct_config__.tag): one
    for one in (
        card.Vllm, card.Sglang, card.LlamaCpp, card.Ollama, card.TensorRtLlm, card.Transformers, card.Tgi, card.Mlx,
    )
}  # fmt: skip
GGUF = frozenset({"llama.cpp", "ollama"})
STATED = {
    "dtype": "bf16", "max_model_len": 4096, "max_num_seqs": 16, "max_num_batched_tokens": 4096,
    "gpu_memory_utilization": 0.8, "kv_cache_memory_bytes": "20 GiB", "block_size": 16, "enforce_eager": True,
    "lora": {"max_loras": 2, "max_lora_rank": 16},
    "multimodal": {"images_per_prompt": 0, "videos_per_prompt": 0},
    "cudagraph_capture_sizes": [1, 2, 4], "cudagraph_max_capture_size": 64, "enable_prefix_caching": False,
    "swap_space": 2.0, "cpu_offload_gb": 1.0, "use_v2_model_runner": False,
    "cuda_graph_max_bs": 32, "disable_cuda_graph": True, "chunked_prefill_size": 2048, "page_size": 16,
    "disable_radix_cache": True, "n_gpu_layers": 99, "n_batch": 1024, "n_ubatch": 256, "n_parallel": 2,
    "kv_unified": True, "flash_attn": True, "cpu_moe_layers": 0, "tensor_split": [1.0], "swa_full": True,
    "no_kv_offload": True, "max_batch_size": 8, "max_num_tokens": 4096, "free_gpu_memory_fraction": 0.8,
    "backend": "pytorch", "attn_implementation": "sdpa", "cache_implementation": "static", "max_batch_total_tokens": 65536,
    "prefill_step_size": 1024,
}  # fmt: skip
APART = {"kv_cache_dtype", "speculative", "enable_dp_attention", "dp_size", "enable_expert_parallel"}
"""Fields that ask for more than one value, GPU or expert: tested below."""
KV_DTYPE = {"vllm": "fp8_e4m3", "sglang": "fp8", "tgi": "fp8", "llama.cpp": "q8-0", "ollama": "q8_0"}


def started(engine, count=1, model=LLAMA, **settings):
    weights = {"format": "gguf-q4-k-m"} if engine in GGUF else {}
    gpu = "apple-m4-max-128" if engine == "mlx" else "h100-sxm"
    serving = {"engine": engine, "max_model_len": 8192} | settings
    return launched(gpu=gpu, count=count, model=model, weights=weights, serving=serving)


def of_engine():
    return [(engine, name) for engine, one in CARDS.items() for name in one.__struct_fields__]


def flags_of(words):
    return [word for word in words if word.startswith("-") and not word.lstrip("-")[:1].isdigit()]


@pytest.mark.parametrize(("engine", "name"), [f for f in of_engine() if f[1] not in DEMAND | APART])
def test_a_setting_is_a_flag_a_variable_or_a_note(engine, name):
    plain, made = started(engine), started(engine, **{name: STATED[name]})

    if name == "swap_space":
        made = started(engine, engine_version="0.10.0", swap_space=2.0)
    assert made.command != plain.command or made.env != plain.env or any(name in note for note in made.notes)


@pytest.mark.parametrize("engine", CARDS)
def test_what_an_engine_is_told_its_parser_knows(engine):
    said = {n: v for n, v in STATED.items() if n in CARDS[engine].__struct_fields__ and n in SERVERS[engine].said}
    said |= {"kv_cache_dtype": KV_DTYPE[engine]} if engine in KV_DTYPE else {}
    words = list(started(engine, **said).command)
    known = KNOWN.get(engine, {"flags": []})

    assert [] == [flag for flag in flags_of(words[1:]) if flag not in {*known["flags"], "-m"}]
    for flag, choices in known.get("choices", {}).items():
        assert flag not in words or words[words.index(flag) + 1] in choices


@pytest.mark.parametrize(
    ("engine", "settings", "words"),
    [
        ("vllm", {"kv_cache_memory_bytes": "20 GiB"}, ["--kv-cache-memory-bytes", str(20 * GiB)]),
        ("vllm", {"dtype": "fp16"}, ["--dtype", "float16"]),
        ("vllm", {"kv_cache_dtype": "kv-fp16"}, ["--kv-cache-dtype", "float16"]),
        ("vllm", {"swap_space": 2, "engine_version": "0.9.2"}, ["--swap-space", "2"]),
        ("vllm", {"enable_prefix_caching": False}, ["--no-enable-prefix-caching"]),
        ("sglang", {"kv_cache_dtype": "fp8"}, ["--kv-cache-dtype", "fp8_e4m3"]),
        ("tgi", {"kv_cache_dtype": "fp8"}, ["--kv-cache-dtype", "fp8_e4m3fn"]),
        ("llama.cpp", {"flash_attn": True, "engine_version": "b5000"}, ["-fa"]),
        ("llama.cpp", {"flash_attn": True, "engine_version": "b7000"}, ["-fa", "on"]),
        ("llama.cpp", {"kv_cache_dtype": {"k": "q8_0", "v": "f16"}}, ["-ctk", "q8_0", "-ctv", "f16"]),
        ("transformers", {"engine_version": "4.57.1"}, ["--force_model", "meta-llama/Llama-3.1-8B-Instruct"]),
        ("tensorrt-llm", {"backend": "tensorrt"}, ["--backend", "tensorrt"]),
    ],
)
def test_values_are_spelt_as_the_engine_of_that_version_takes_them(engine, settings, words):
    command = list(started(engine, **settings).command)
    place = command.index(words[0])

    assert words == command[place : place + len(words)]


def test_a_draft_model_is_started_with_its_server():
    speculative = {"method": "eagle3", "model": "meta-llama/Llama-3.2-1B", "num_speculative_tokens": 3}
    vllm, sglang = (list(started(engine, speculative=speculative).command) for engine in ("vllm", "sglang"))

    assert speculative == json.loads(vllm[vllm.index("--speculative-config") + 1])
    assert [
        "EAGLE3",
        "--speculative-draft-model-path",
        "meta-llama/Llama-3.2-1B",
        "--speculative-num-draft-tokens",
        "3",
    ] == (sglang[sglang.index("--speculative-algorithm") + 1 :])


def test_groups_of_attention_are_started_with_their_server():
    command = list(started("sglang", count=8, enable_dp_attention=True, dp_size=2).command)

    assert ["--dp-size", "2", "--enable-dp-attention"] == command[command.index("--dp-size") :][:3]


def test_capture_sizes_go_where_every_release_reads_them():
    command = list(started("vllm", cudagraph_capture_sizes=[1, 2, 4]).command)

    assert {"cudagraph_capture_sizes": [1, 2, 4]} == json.loads(command[command.index("--compilation-config") + 1])


def test_experts_are_dealt_out_where_the_card_says_so():
    made = started("vllm", count=4, model="Qwen/Qwen3-30B-A3B", enable_expert_parallel=True)

    assert "--enable-expert-parallel" in made.command


DOCKER = {
    "--gpus": 1,
    "--shm-size": 1,
    "-p": 1,
    "-e": 1,
    "-v": 1,
    "--device": 1,
    "--network": 1,
    "--rm": 0,
    "--privileged": 0,
}
"""Options of `docker run` and how many words follow them."""


@pytest.mark.parametrize("engine", [e for e in CARDS if e != "mlx"])
def test_a_docker_line_is_options_one_image_and_the_engine_s_words(engine):
    words = shlex.split(started(engine, count=2 if engine == "vllm" else 1).docker)
    assert ["docker", "run"] == words[:2]
    place = 2
    while words[place].startswith("-"):
        place += 1 + DOCKER[words[place]]

    assert words[place] == "$IMAGE" or ":" in words[place]
    assert not {"docker", "run"} & set(words[place + 1 :])
