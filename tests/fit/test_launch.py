"""Launch material names the engine's own flags and the device plug-in's own resources."""

import shlex

import pytest
import yaml
from fit_requests import catalog, offered, request, sku

from tonnage.fit import fit

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def launched(*, gpu="h100-sxm", count=1, **fields):
    fields.setdefault("offer", offered(sku(gpu=gpu, gpus_per_host=count)))
    card = {"model": LLAMA, "weights": {}, "reserve": 0} | fields
    found = fit(catalog(), request(**card))
    return found.candidates[0].launch


def test_vllm_gets_its_flags_and_nothing_that_was_not_asked_for():
    made = launched(
        serving={"engine": "vllm", "engine_version": "0.19.0", "max_model_len": 8192, "kv_cache_dtype": "fp8"}, count=4
    )

    assert [
        "vllm", "serve", LLAMA, "--tensor-parallel-size", "4", "--max-model-len", "8192", "--kv-cache-dtype", "fp8",
    ] == list(made.command)  # fmt: skip
    assert "vllm/vllm-openai:v0.19.0 --model" in made.docker
    assert shlex.split(made.docker)[:3] == ["docker", "run", "--rm"]


def test_boolean_flags_stand_alone_and_false_ones_not_at_all():
    eager = launched(serving={"engine": "vllm", "max_model_len": 4096, "enforce_eager": True}).command
    graphs = launched(serving={"engine": "vllm", "max_model_len": 4096, "enforce_eager": False}).command

    assert "--enforce-eager" in eager
    assert "--enforce-eager" not in graphs


@pytest.mark.parametrize(
    ("gpu", "resource", "amount"),
    [
        ("h100-sxm", "nvidia.com/gpu", "1"),
        ("mi300x", "amd.com/gpu", "1"),
        ("gaudi3", "habana.ai/gaudi", "1"),
        ("h100-sxm:3g.40gb", "nvidia.com/mig-3g.40gb", "1"),
    ],
)
def test_kubernetes_asks_for_the_device_by_its_own_name(gpu, resource, amount):
    made = launched(gpu=gpu, serving={"engine": "vllm", "max_model_len": 4096})

    assert {resource: amount} == made.kubernetes["containers"][0]["resources"]["limits"]


def test_several_gpus_get_shared_memory():
    made = launched(count=4, serving={"engine": "vllm", "max_model_len": 4096})

    assert "Memory" == made.kubernetes["volumes"][0]["emptyDir"]["medium"]
    assert "/dev/shm" == made.kubernetes["containers"][0]["volumeMounts"][0]["mountPath"]


def test_a_model_without_a_name_and_a_format_to_be_made_are_said():
    made = launched(model={"parameters": 10**9}, weights={"format": "awq-w4-g128"}, reserve="1 GiB")

    assert any("./model" in note for note in made.notes)


def test_amd_devices_are_passed_their_own_way():
    assert "--device /dev/kfd --device /dev/dri" in launched(gpu="mi300x", serving={"engine": "vllm"}).docker


@pytest.mark.parametrize(
    ("gpu", "serving", "image"),
    [
        ("h100-sxm", {"engine": "vllm", "engine_version": "0.19.0"}, "vllm/vllm-openai:v0.19.0"),
        ("mi300x", {"engine": "vllm", "engine_version": "0.27.1"}, "vllm/vllm-openai-rocm:v0.27.1"),
        ("mi300x", {"engine": "vllm", "engine_version": "0.11.0"}, None),
        ("max-1550", {"engine": "vllm", "engine_version": "0.14.1"}, "intel/vllm:0.14.1-xpu"),
        ("gaudi3", {"engine": "vllm"}, None),
        ("gaudi3", {"engine": "tgi", "engine_version": "3.3.5"}, "huggingface/text-generation-inference:3.3.5-gaudi"),
        ("mi355x", {"engine": "sglang", "engine_version": "0.5.18"}, "lmsysorg/sglang:v0.5.18-rocm720-mi35x"),
        ("mi300x", {"engine": "ollama", "engine_version": "0.9.3"}, "ollama/ollama:0.9.3-rocm"),
        ("rtx-4090", {"engine": "llama.cpp", "engine_version": "b10481"}, "ggml-org/llama.cpp:server-cuda-b10481"),
        ("h100-sxm", {"engine": "vllm", "engine_version": "0.19"}, "vllm/vllm-openai:latest"),
    ],
)
def test_the_image_is_the_engine_s_own_for_the_vendor_and_the_version(gpu, serving, image):
    weights = {"format": "gguf-q4-k-m"} if serving["engine"] in {"ollama", "llama.cpp"} else {}
    made = launched(gpu=gpu, serving=serving | {"max_model_len": 4096}, weights=weights)

    assert image == made.image
    assert image is not None or "$IMAGE" in made.docker
    assert bool(made.notes) is (
        image is None or image.endswith("latest") or not image.startswith(("vllm", "intel", "lms"))
    )


def test_without_a_version_the_image_is_the_newest_release_whose_memory_is_known():
    newest = catalog().engines.get("vllm").known_until

    assert f"vllm/vllm-openai:v{newest}" == launched(serving={"engine": "vllm", "max_model_len": 4096}).image


def test_a_container_listens_where_its_port_is_published():
    made = launched(serving={"engine": "sglang", "engine_version": "0.5.18", "max_model_len": 4096})
    (container,) = made.kubernetes["containers"]

    assert "-p 8000:30000" in made.docker
    assert made.docker.endswith("--host 0.0.0.0")
    assert ["--host", "0.0.0.0"] == container["command"][-2:]
    assert [{"containerPort": 30000}] == container["ports"]
    assert made.image == container["image"]


def test_ollama_serves_first_and_is_told_its_model_then():
    made = launched(
        serving={"engine": "ollama", "max_model_len": 4096}, weights={"format": "gguf-q4-k-m"}, gpu="rtx-4090"
    )

    assert made.docker.endswith(made.image)
    assert any(f"ollama run {LLAMA}" in note for note in made.notes)


def test_no_container_sees_an_apple_gpu():
    weights, serving = {"format": "gguf-q4-k-m"}, {"engine": "llama.cpp", "max_model_len": 4096}

    assert "" == launched(gpu="apple-m4-max-128", serving=serving, weights=weights).docker


def trained(count=1, framework="trl", gpu="h200-sxm", **training):
    body = {"framework": framework, "micro_batch_size": 1, "sequence_length": 1024, "method": "lora"} | training
    return launched(training=body, gpu=gpu, count=count)


def test_training_starts_one_process_per_gpu_with_the_card_s_batch_and_length():
    made = trained(count=2)

    assert ["torchrun", "--nproc-per-node", "2", "train.py"] == list(made.command[:4])
    assert ["--per_device_train_batch_size", "1"] == list(made.command[4:6])
    assert "expandable_segments:True" == made.env["PYTORCH_CUDA_ALLOC_CONF"]
    assert any("data-parallel ranks multiply the batch" in note for note in made.notes)


@pytest.mark.parametrize(
    ("framework", "first"),
    [("torchtune", "tune"), ("litgpt", "litgpt"), ("axolotl", "axolotl"), ("llama-factory", "llamafactory-cli")],
)
def test_frameworks_with_a_command_of_their_own_are_started_by_it(framework, first):
    assert first == trained(framework=framework).command[0]


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ({"engine": "sglang", "max_model_len": 4096}, ["--context-length", "4096"]),
        ({"engine": "sglang", "disable_radix_cache": True}, ["--disable-radix-cache"]),
        ({"engine": "llama.cpp", "max_model_len": 4096, "n_parallel": 2}, ["-c", "4096", "-ngl", "999", "-np", "2"]),
    ],
)
def test_other_engines_get_their_own_spelling(engine, flags):
    weights = {"format": "gguf-q4-k-m"} if engine["engine"] == "llama.cpp" else {}
    command = launched(serving=engine, weights=weights).command

    assert flags == [part for part in command if part in flags]


def configured(framework, **training):
    return yaml.safe_load(trained(framework=framework, **training).files["config.yaml"])


def test_axolotl_s_file_says_what_the_card_says():
    lora = {"rank": 32, "target_modules": ["all-linear"]}
    made = configured(
        "axolotl", method="qlora", lora=lora, packed=True, optimizer="adamw_8bit", gradient_checkpointing="full",
        attn_implementation="flash_attention_2", compute_dtype="bf16",
    )  # fmt: skip

    assert {
        "base_model": LLAMA, "adapter": "qlora", "load_in_4bit": True, "lora_r": 32, "lora_target_linear": True,
        "sequence_len": 1024, "sample_packing": True, "micro_batch_size": 1, "gradient_checkpointing": True,
        "optimizer": "adamw_8bit", "bf16": True, "flash_attention": True,
    } == made  # fmt: skip


def test_llama_factory_s_file_says_what_the_card_says():
    made = configured(
        "llama-factory", objective="dpo", lora={"rank": 8, "target_modules": ["q_proj", "v_proj"]}, optimizer="adamw",
        gradient_checkpointing="none", attn_implementation="sdpa", sharding="zero3", count=2,
    )  # fmt: skip

    assert {
        "model_name_or_path": LLAMA, "stage": "dpo", "do_train": True, "finetuning_type": "lora", "lora_rank": 8,
        "lora_target": "q_proj,v_proj", "cutoff_len": 1024, "per_device_train_batch_size": 1, "flash_attn": "sdpa",
        "disable_gradient_checkpointing": True, "optim": "adamw_torch", "deepspeed": "examples/deepspeed/ds_z3_config.json",
    } == made  # fmt: skip


@pytest.mark.parametrize("framework", ["trl", "torchtune", "litgpt"])
def test_frameworks_told_by_flags_or_scripts_get_no_file(framework):
    assert {} == trained(framework=framework).files


def test_litgpt_is_told_of_its_adapter():
    command = list(trained(framework="litgpt", method="qlora", lora={"rank": 16}).command)

    assert ["--lora_r", "16", "--quantize", "bnb.nf4"] == command[-4:]
