"""Launch material that runs as given: the engine's own flags, environment, docker line, Kubernetes resources."""

import shlex
from collections.abc import Iterator
from typing import Any

from tonnage.fit.images import HUB, SHARED_MEMORY, Container, container, docker_line
from tonnage.fit.packages import Order
from tonnage.fit.technical import Technical
from tonnage.spec.card import KvTypes, ModelCard, SizingCard
from tonnage.spec.facts import Gpu
from tonnage.spec.fit import Launch
from tonnage.units import GiB, ceil_div

Flags = Iterator[tuple[str, Any]]

RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/xe",
    "google": "google.com/tpu",
    "aws": "aws.amazon.com/neuron",
}
PIPELINED = {"megatron", "torchtitan", "deepspeed"}
"""Frameworks with pipeline stages of their own; the others spread layers by device_map."""


def launch(technical: Technical, order: Order, card: SizingCard) -> Launch:
    """
    How to start this candidate.

    Args:
        technical: Layout and format.
        order: Package and hosts.
        card: The sizing card.

    Returns:
        Command, environment, docker line, Kubernetes fragment, and what still has to be done by hand.
    """
    model = _model_name(card)
    command = tuple(_command(technical, order, card, model))
    env = dict(_environment(technical, card))
    found = container(technical, card)
    notes = [*([found.note] if found.note else []), *_notes(technical, order, card, model)]
    return Launch(
        command=command,
        env=env,
        image=found.name,
        docker=docker_line(technical, order, command, env, found),
        kubernetes=kubernetes(technical, order, command, env, found),
        notes=tuple(notes),
    )


def resource_name(gpu: Gpu) -> str:
    """Name the device plug-in gives this GPU; MIG slices by their profile."""
    if gpu.mig_parent is not None:
        return f"nvidia.com/mig-{gpu.id.partition(':')[2]}"
    if gpu.id.startswith("gaudi"):
        return "habana.ai/gaudi"
    return RESOURCES.get(gpu.vendor, f"{gpu.vendor}.com/gpu")


def kubernetes(
    technical: Technical, order: Order, command: tuple[str, ...], env: dict[str, str], found: Container
) -> dict[str, Any]:
    """Part of a pod specification: resources, command, environment, shared memory."""
    per_host = min(order.package.gpus_per_host, technical.placement.gpus)
    resources: dict[str, Any] = {"limits": {resource_name(technical.gpu): str(per_host)}}
    if technical.host is not None and technical.host.high:
        resources["requests"] = {"memory": f"{ceil_div(technical.host.high, GiB * order.hosts)}Gi"}
    engine: dict[str, Any] = {"name": "engine", "resources": resources}
    if found.image is not None and found.image.registry == HUB:
        engine["image"] = found.name
    if command and (found.image is None or not found.image.serves_alone):
        engine["command"] = [*command, *found.arguments]
    if found.image is not None:
        engine["ports"] = [{"containerPort": found.image.port}]
    if env:
        engine["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if per_host > 1:
        engine["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 (the mount point NCCL uses)
    spec: dict[str, Any] = {"containers": [engine]}
    if per_host > 1:
        limit = f"{SHARED_MEMORY // GiB}Gi"
        spec["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": limit}}]
    return spec


def _model_name(card: SizingCard) -> str | None:
    if isinstance(card.model, ModelCard):
        return card.model.id
    return card.model


def _command(technical: Technical, order: Order, card: SizingCard, model: str | None) -> Iterator[str]:
    name = model or "./model"
    if card.serving is not None:
        engine = str(card.serving.__struct_config__.tag)
        head, flags = SERVERS.get(engine, (None, None))
        if head is not None and flags is not None:
            yield from head(name)
            yield from _written(flags(technical, card.serving))
    elif card.training is not None:
        yield from _trainer(technical, order, card, name)


def _written(flags: Flags) -> Iterator[str]:
    for flag, value in flags:
        if value is True:
            yield flag
        elif value is not None and value is not False:
            yield from (flag, f"{value:g}" if isinstance(value, float) else str(value))


def _above_one(size: int) -> int | None:
    return size if size > 1 else None


def _kv(serving: Any) -> str | None:
    stated = serving.kv_cache_dtype
    return (
        None if stated == "auto" or isinstance(stated, KvTypes) else str(stated).removeprefix("kv-").replace("-", "_")
    )


def _quantization(technical: Technical) -> str | None:
    """Formats vLLM and SGLang make while loading a 16-bit checkpoint."""
    family = technical.variant.weight_format.family
    own = technical.variant.workload.model.weight_format == technical.variant.weight_format.id
    return None if own else {"bitsandbytes": "bitsandbytes", "fp8": "fp8"}.get(family)


def _vllm(t: Technical, s: Any) -> Flags:
    yield "--dtype", s.dtype
    yield "--tensor-parallel-size", _above_one(t.placement.tensor_parallel_size)
    yield "--pipeline-parallel-size", _above_one(t.placement.pipeline_parallel_size)
    yield "--data-parallel-size", _above_one(t.placement.data_parallel_size)
    yield "--enable-expert-parallel", t.placement.expert_parallel_size > 1
    yield "--max-model-len", s.max_model_len
    yield "--max-num-seqs", s.max_num_seqs
    yield "--max-num-batched-tokens", s.max_num_batched_tokens
    yield "--gpu-memory-utilization", s.gpu_memory_utilization
    yield "--kv-cache-memory-bytes", s.kv_cache_memory_bytes
    yield "--kv-cache-dtype", _kv(s)
    yield "--block-size", s.block_size
    yield "--enforce-eager", s.enforce_eager is True
    yield "--quantization", _quantization(t)
    yield "--cpu-offload-gb", s.cpu_offload_gb
    yield from _vllm_lora(s)


def _vllm_lora(s: Any) -> Flags:
    if s.lora is not None:
        yield "--enable-lora", True
        yield "--max-loras", s.lora.max_loras
        yield "--max-lora-rank", s.lora.max_lora_rank


def _sglang(t: Technical, s: Any) -> Flags:
    yield "--dtype", s.dtype
    yield "--tp-size", _above_one(t.placement.tensor_parallel_size)
    yield "--pp-size", _above_one(t.placement.pipeline_parallel_size)
    yield "--dp-size", s.dp_size if s.enable_dp_attention else _above_one(t.placement.data_parallel_size)
    yield "--enable-dp-attention", s.enable_dp_attention is True
    yield "--ep-size", _above_one(t.placement.expert_parallel_size)
    yield "--context-length", s.max_model_len
    yield "--mem-fraction-static", s.gpu_memory_utilization
    yield "--max-running-requests", s.max_num_seqs
    yield "--chunked-prefill-size", s.chunked_prefill_size
    yield "--page-size", s.page_size
    yield "--cuda-graph-max-bs", s.cuda_graph_max_bs
    yield "--disable-radix-cache", s.disable_radix_cache is True
    yield "--disable-cuda-graph", s.disable_cuda_graph is True
    yield "--kv-cache-dtype", _kv(s)
    yield "--quantization", _quantization(t)


def _llama_cpp(t: Technical, s: Any) -> Flags:
    yield "-c", s.max_model_len
    yield "-ngl", 999 if s.n_gpu_layers is None else s.n_gpu_layers
    yield "-np", s.n_parallel
    yield "-b", s.n_batch
    yield "-ub", s.n_ubatch
    yield "-fa", None if s.flash_attn is None else ("on" if s.flash_attn else "off")
    k, v = (s.kv_cache_dtype.k, s.kv_cache_dtype.v) if isinstance(s.kv_cache_dtype, KvTypes) else (_kv(s), _kv(s))
    yield "-ctk", k
    yield "-ctv", v
    yield "--n-cpu-moe", s.cpu_moe_layers
    yield "-ts", None if s.tensor_split is None else ",".join(f"{part:g}" for part in s.tensor_split)
    yield "--split-mode", "layer" if t.placement.pipeline_parallel_size > 1 else None


def _tensorrt_llm(t: Technical, s: Any) -> Flags:
    yield "--tp_size", _above_one(t.placement.tensor_parallel_size)
    yield "--pp_size", _above_one(t.placement.pipeline_parallel_size)
    yield "--ep_size", _above_one(t.placement.expert_parallel_size)
    yield "--max_seq_len", s.max_model_len
    yield "--max_batch_size", s.max_batch_size or s.max_num_seqs
    yield "--max_num_tokens", s.max_num_tokens or s.max_num_batched_tokens
    yield "--kv_cache_free_gpu_memory_fraction", s.free_gpu_memory_fraction or s.gpu_memory_utilization


def _tgi(t: Technical, s: Any) -> Flags:
    yield "--num-shard", _above_one(t.placement.tensor_parallel_size)
    yield "--max-total-tokens", s.max_model_len
    yield "--max-batch-prefill-tokens", s.max_num_batched_tokens
    yield "--max-batch-total-tokens", s.max_batch_total_tokens
    yield "--max-concurrent-requests", s.max_num_seqs
    yield "--cuda-memory-fraction", s.gpu_memory_utilization
    yield "--kv-cache-dtype", _kv(s)


def _nothing(_: Technical, __: Any) -> Flags:
    yield from ()


SERVERS: dict[str, tuple[Any, Any]] = {
    "vllm": (lambda m: ["vllm", "serve", m], _vllm),
    "sglang": (lambda m: ["python", "-m", "sglang.launch_server", "--model-path", m], _sglang),
    "llama.cpp": (lambda _: ["llama-server", "-m", "./model.gguf"], _llama_cpp),
    "ollama": (lambda m: ["ollama", "run", m], _nothing),
    "tensorrt-llm": (lambda m: ["trtllm-serve", m], _tensorrt_llm),
    "tgi": (lambda m: ["text-generation-launcher", "--model-id", m], _tgi),
    "mlx": (lambda m: ["mlx_lm.server", "--model", m], _nothing),
    "transformers": (lambda m: ["transformers", "serve", m], _nothing),
}


def _trainer(technical: Technical, order: Order, card: SizingCard, model: str) -> Iterator[str]:
    training = card.training
    if training is None:
        return
    processes = _processes(technical, training.framework)
    per_host = str(min(processes, order.package.gpus_per_host))
    if training.framework == "torchtune":
        yield from ("tune", "run", "--nproc_per_node", per_host, "recipe.py", "--config", "config.yaml")
    elif training.framework == "litgpt":
        recipe = "finetune_full" if training.method == "full" else "finetune_lora"
        yield from ("litgpt", recipe, model, "--devices", str(processes))
        sizes = (
            ("--train.micro_batch_size", training.micro_batch_size),
            ("--train.max_seq_length", training.sequence_length),
        )
        yield from _written(iter(sizes))
    elif training.framework == "axolotl":
        yield from ("axolotl", "train", "config.yaml")
    elif training.framework == "llama-factory":
        yield from ("llamafactory-cli", "train", "config.yaml")
    else:
        hosts = ("--nnodes", str(order.hosts)) if order.hosts > 1 else ()
        yield from ("torchrun", "--nproc-per-node", per_host, *hosts, "train.py")
        yield from _written(_trainer_flags(card))


def _processes(technical: Technical, framework: str) -> int:
    """One per GPU, or one per copy where a framework spreads the layers of a copy over several GPUs by itself."""
    if framework in PIPELINED:
        return technical.used
    return technical.used // technical.placement.pipeline_parallel_size


def _trainer_flags(card: SizingCard) -> Flags:
    training = card.training
    if training is not None and training.framework not in {"megatron", "torchtitan", "unsloth"}:
        yield "--per_device_train_batch_size", training.micro_batch_size
        yield "--gradient_accumulation_steps", training.gradient_accumulation_steps
        yield "--gradient_checkpointing", {"full": "true", "none": "false"}.get(training.gradient_checkpointing or "")
        yield "--max_length", training.sequence_length


def _environment(technical: Technical, card: SizingCard) -> Iterator[tuple[str, str]]:
    if card.training is not None and technical.gpu.vendor == "nvidia":
        yield "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
    serving: Any = card.serving
    runner = getattr(serving, "use_v2_model_runner", None)
    if runner is not None:
        yield "VLLM_USE_V2_MODEL_RUNNER", "1" if runner else "0"
    if serving is not None and str(serving.__struct_config__.tag) == "ollama":
        names = {
            "OLLAMA_CONTEXT_LENGTH": serving.max_model_len,
            "OLLAMA_NUM_PARALLEL": serving.n_parallel,
            "OLLAMA_KV_CACHE_TYPE": _kv(serving),
        }
        yield from ((name, str(value)) for name, value in names.items() if value is not None)
        if serving.flash_attn is not None:
            yield "OLLAMA_FLASH_ATTENTION", "1" if serving.flash_attn else "0"


def _notes(technical: Technical, order: Order, card: SizingCard, model: str | None) -> Iterator[str]:
    engine = None if card.serving is None else str(card.serving.__struct_config__.tag)
    if engine == "ollama":
        pull = shlex.join(["docker", "exec", "-it", "CONTAINER", "ollama", "run", model or "MODEL"])
        yield f"the server takes its models over its port: {pull}"
    elif technical.variant.weight_format.kind in {"file-mix", "tensor-type"}:
        yield f"./model.gguf stands for a file of {model or 'the model'} in {technical.variant.weight_format.id}"
        return
    if model is None:
        yield "the card names no repository: ./model stands for the place of the weights"
    weight_format, known = technical.variant.weight_format, technical.variant.workload.model
    if weight_format.id not in {known.weight_format, known.dtype} and _quantization(technical) is None:
        yield f"the weights have to be in {weight_format.id}: take or make such a checkpoint"
    if order.hosts > 1:
        yield f"{order.hosts} hosts: start the same command on each under the engine's launcher (Ray, torchrun rendezvous)"
    if (
        card.training is not None
        and technical.placement.pipeline_parallel_size > 1
        and card.training.framework not in PIPELINED
    ):
        yield "layers are spread by device_map='auto': one GPU works at a time"
    if technical.sharding is not None:
        yield f"set sharding to {technical.sharding} in the framework's configuration"
    if card.training is not None and technical.placement.data_parallel_size > 1:
        yield f"{technical.placement.data_parallel_size} data-parallel ranks multiply the batch of a step"
