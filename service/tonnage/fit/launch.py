"""Launch material that runs as given: the engine's own flags, environment, docker line, Kubernetes resources."""

import shlex
from collections.abc import Iterator
from typing import Any

from tonnage.fit import servers, trainers
from tonnage.fit.images import HUB, SHARED_MEMORY, Container, container, docker_line
from tonnage.fit.packages import Order
from tonnage.fit.technical import Technical
from tonnage.spec.card import ModelCard, SizingCard
from tonnage.spec.facts import Gpu
from tonnage.spec.fit import Launch
from tonnage.units import GiB, ceil_div

RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/xe",
    "google": "google.com/tpu",
    "aws": "aws.amazon.com/neuron",
}


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
        files={} if card.training is None else trainers.files(technical, card.training, model or "./model"),
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
        yield from servers.command(technical, card.serving, name)
    elif card.training is not None:
        yield from trainers.command(technical, order, card.training, name)


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
            "OLLAMA_KV_CACHE_TYPE": servers.kv_dtypes(technical, serving)[0],
        }
        yield from ((name, str(value)) for name, value in names.items() if value is not None)
        if serving.flash_attn is not None:
            yield "OLLAMA_FLASH_ATTENTION", "1" if serving.flash_attn else "0"


def _notes(technical: Technical, order: Order, card: SizingCard, model: str | None) -> Iterator[str]:
    engine = None if card.serving is None else str(card.serving.__struct_config__.tag)
    unsaid = () if card.serving is None else servers.unsaid(card.serving)
    if unsaid:
        yield f"not among the flags of this command, set them where your version takes them: {', '.join(unsaid)}"
    if engine == "ollama":
        pull = shlex.join(["docker", "exec", "-it", "CONTAINER", "ollama", "run", model or "MODEL"])
        yield f"the server takes its models over its port: {pull}"
    elif technical.variant.weight_format.kind in {"file-mix", "tensor-type"}:
        yield f"./model.gguf stands for a file of {model or 'the model'} in {technical.variant.weight_format.id}"
        return
    if model is None:
        yield "the card names no repository: ./model stands for the place of the weights"
    weight_format, known = technical.variant.weight_format, technical.variant.workload.model
    if weight_format.id not in {known.weight_format, known.dtype} and servers.quantization(technical) is None:
        yield f"the weights have to be in {weight_format.id}: take or make such a checkpoint"
    if order.hosts > 1:
        yield f"{order.hosts} hosts: start the same command on each under the engine's launcher (Ray, torchrun rendezvous)"
    if (
        card.training is not None
        and technical.placement.pipeline_parallel_size > 1
        and card.training.framework not in trainers.PIPELINED
    ):
        yield "layers are spread by device_map='auto': one GPU works at a time"
    if card.training is not None and card.training.framework in trainers.WITH_FILES:
        yield "config.yaml says what the card says: add the data set, and what else your job needs"
    elif technical.sharding is not None:
        yield f"set sharding to {technical.sharding} in the framework's configuration"
    if card.training is not None and technical.placement.data_parallel_size > 1:
        yield f"{technical.placement.data_parallel_size} data-parallel ranks multiply the batch of a step"
