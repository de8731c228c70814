"""What llama.cpp and Ollama leave off a GPU when a card does not say how many layers or how long a context."""

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.serving.llama_cpp_devices import Device, devices
from tonnage.estimate.serving.llama_cpp_settings import Settings
from tonnage.estimate.serving.llama_cpp_weights import FileWeights
from tonnage.laws import device_context
from tonnage.spec.report import Finding
from tonnage.spec.workload import Workload
from tonnage.units import format_size

_STEP = 256
"""Contexts are cut to a multiple of this. [tokens]"""


class Fitted(Struct, frozen=True):
    """What the engine ends up with."""

    chosen: Settings
    """Settings, the context perhaps shorter."""
    layers: int
    """Layers on the GPUs, output matrix counted. [layers]"""
    devices: tuple[Device, ...]
    given_up: tuple[Finding, ...] = ()


def fitted(workload: Workload, parts: FileWeights, chosen: Settings) -> Fitted:
    """
    Settings, layers and devices that the engine ends up with.

    Args:
        workload: Resolved card.
        parts: The file by part.
        chosen: Settings as asked for.

    Returns:
        All of them, and what was given up.
    """
    whole = len(parts.layers) + 1
    wanted = whole if chosen.layers is None else min(chosen.layers, whole)
    found = devices(workload.model, parts, chosen, wanted)
    free = budget(workload, chosen) if chosen.layers is None else None
    if free is None or all(need(d) <= free for d in found):
        return Fitted(chosen, wanted, found)
    if not chosen.context_stated:
        shorter = _shorter(workload, parts, chosen, whole, free)
        if shorter is not None:
            return shorter
    return _fewer_layers(workload, parts, chosen, free)


def budget(workload: Workload, chosen: Settings) -> int | None:
    """What the engine lets itself use of one GPU, None where it asks for no margin or no card is known. [bytes]"""
    gpu, margin = workload.gpu, chosen.release.fit_margin_bytes
    if gpu is None or margin is None:
        return None
    context = device_context.cuda(multiprocessors=gpu.multiprocessors or 0) if gpu.vendor == "nvidia" else 0
    return gpu.memory_usable_bytes - margin - context - workload.reserve_bytes - chosen.projector


def _fits(workload: Workload, parts: FileWeights, chosen: Settings, layers: int, free: int) -> bool:
    return all(need(d) <= free for d in devices(workload.model, parts, chosen, layers))


def need(device: Device) -> int:
    """What the engine predicts for one GPU. [bytes]"""
    return device.weights + device.cache.keys_and_values + device.cache.recurrent + device.graph.total + device.pipeline


def _shorter(workload: Workload, parts: FileWeights, chosen: Settings, layers: int, free: int) -> Fitted | None:
    """The longest context that fits with every layer on the GPUs, if the engine's least does."""
    least = min(chosen.release.fit_min_context, chosen.context_tokens)
    if not _fits(workload, parts, replace(chosen, context_tokens=least), layers, free):
        return None
    low, high = least // _STEP, chosen.context_tokens // _STEP
    while high - low > 1:
        middle = (low + high) // 2
        tried = replace(chosen, context_tokens=middle * _STEP)
        low, high = (middle, high) if _fits(workload, parts, tried, layers, free) else (low, middle)
    tokens = max(least, low * _STEP)
    reason = f"the context is cut from {chosen.context_tokens} to {tokens} tokens to leave {_margin(chosen)} free"
    finding = Finding(status="met", reason=reason, field="/serving/max_model_len")
    cut = replace(chosen, context_tokens=tokens)
    return Fitted(cut, layers, devices(workload.model, parts, cut, layers), (finding,))


def _fewer_layers(workload: Workload, parts: FileWeights, chosen: Settings, free: int) -> Fitted:
    low, high = 0, len(parts.layers) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(workload, parts, chosen, middle, free) else (low, middle)
    reason = (
        f"only {low} of {len(parts.layers) + 1} layers fit with {_margin(chosen)} left free; the rest runs on the host"
    )
    finding = Finding(status="needs_confirmation", reason=reason, field="/serving/n_gpu_layers")
    return Fitted(chosen, low, devices(workload.model, parts, chosen, low), (finding,))


def _margin(chosen: Settings) -> str:
    return format_size(chosen.release.fit_margin_bytes or 0)
