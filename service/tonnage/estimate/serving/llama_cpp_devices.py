"""Which device of a llama.cpp process gets what: layers, output matrix, caches and compute buffers."""

from typing import NamedTuple

from msgspec import Struct

from tonnage.estimate.serving.llama_cpp_buffers import (
    Cache,
    Graph,
    Shape,
    cache,
    graph,
    shape_of,
    was_cached_expanded,
    with_visitor,
)
from tonnage.estimate.serving.llama_cpp_settings import Settings
from tonnage.estimate.serving.llama_cpp_weights import FileWeights
from tonnage.kept import recent
from tonnage.laws import llama_cpp_graph, llama_cpp_placement
from tonnage.spec.model import Model


class Device(Struct, frozen=True, kw_only=True):
    """What one GPU holds."""

    index: int
    first: int
    last: int
    """Layers first to last - 1."""
    output: bool
    weights: int
    cache: Cache
    cache_most: int
    """Keys and values if the file or the build has no latent cache. [bytes]"""
    graph: Graph
    pipeline: int
    """Copies of inputs that overlap devices. [bytes]"""
    graph_least: int
    """Compute buffer of the newest build, where the build is not stated. [bytes]"""
    graph_most: int
    """Compute buffer where masks and two rows of the stream stay in the old builds' output stage. [bytes]"""


class Host(Struct, frozen=True, kw_only=True):
    """What stays on the host. [bytes]"""

    weights: int
    cache: int


def shape(chosen: Settings, *, oldest: bool = False, raw_input: bool = False) -> Shape:
    """
    Buffers' shape under the settings.

    Args:
        chosen: Settings.
        oldest: As the oldest builds have it, for cards that do not state one.
        raw_input: On the one device that the graph begins on.

    Returns:
        Shape.
    """
    release = chosen.release
    return shape_of(
        context_tokens=chosen.context_tokens,
        slots=chosen.slots,
        unified=chosen.unified,
        padding=chosen.padding,
        micro_batch=chosen.micro_batch,
        flash_attention=chosen.flash_attention,
        swa_full=chosen.swa_full,
        draft_tokens=chosen.draft_tokens,
        latent_cache=release.latent_cache and not oldest and not chosen.expanded_file,
        sliding_cache=release.sliding_cache,
        separate_f32_mask=release.separate_f32_mask or oldest,
        value_indices=release.transposed_value_indices,
        every_token=chosen.all_outputs or oldest,
        reserves_dequantized=chosen.reserves_dequantized,
        raw_input=raw_input and release.keeps_raw_input and chosen.era_known,
    )


@recent(4096)
def ranges(num_layers: int, offloaded: int, shares: tuple[float, ...]) -> tuple[tuple[int, int, bool], ...]:
    """
    Layers of every device.

    Args:
        num_layers: Repeating layers. [layers]
        offloaded: -ngl, output matrix counted. [layers]
        shares: Parts of the devices.

    Returns:
        First layer, layer after the last, and whether the output is there, by device.
    """
    units = min(offloaded, num_layers + 1)
    first = llama_cpp_placement.first_offloaded(num_layers=num_layers, n_gpu_layers=offloaded)
    of_unit = [
        llama_cpp_placement.device_of_unit(unit=unit, first=first, offloaded=units, shares=shares)
        for unit in range(first, num_layers + 1)
    ]
    found = []
    for device in range(len(shares)):
        held = [first + at for at, owner in enumerate(of_unit) if owner == device]
        layers = [unit for unit in held if unit < num_layers]
        start = layers[0] if layers else num_layers
        found.append((start, start + len(layers), num_layers in held))
    return tuple(found)


def devices(model: Model, parts: FileWeights, chosen: Settings, offloaded: int) -> tuple[Device, ...]:
    """
    Every GPU with its load.

    Args:
        model: Architecture.
        parts: The file by part.
        chosen: Settings.
        offloaded: Layers on the GPUs, output matrix counted. [layers]

    Returns:
        One entry per GPU.
    """
    count = len(parts.layers)
    held = ranges(count, offloaded, chosen.shares)
    overlapped = len(held) > 1 and offloaded > count and not chosen.cpu_moe_layers and not chosen.kv_on_host
    now = shape(chosen, raw_input=len(held) == 1 and held[0][0] == 0)
    # Not every caller knows the build: older ones need more, and a plan must hold for them.
    oldest = now if chosen.era_known else shape(chosen, oldest=True)
    of_card = _OfCard(model, parts, chosen, now, oldest)
    return tuple([_device(of_card, index, part, overlapped=overlapped) for index, part in enumerate(held)])


class _OfCard(NamedTuple):
    """What all devices of a card have in common."""

    model: Model
    parts: FileWeights
    chosen: Settings
    now: Shape
    oldest: Shape


def _device(of_card: _OfCard, index: int, part: tuple[int, int, bool], *, overlapped: bool) -> Device:
    first, last, output = part
    model, parts, chosen, now, oldest = of_card
    k, v = chosen.k, chosen.v
    quantized = k.block_elements > 1
    on_host = min(max(chosen.cpu_moe_layers - first, 0), last - first)
    experts = sum(parts.experts[first : first + on_host]) if on_host else 0
    weights = parts.before[last] - parts.before[first] - experts + (parts.output if output else 0)
    caches = Cache(0, 0, 0) if chosen.kv_on_host else cache(model, k=k, v=v, shape=now, layers=(first, last))
    buffers = graph(model, shape=now, quantized_cache=quantized, layers=(first, last), with_output=output)
    visiting = parts.largest_expert_tensor if on_host else 0
    if visiting:
        buffers = with_visitor(buffers, model, shape=now, layers=(first, last), tensor=visiting)
    cache_most, least = caches.keys_and_values, buffers.total
    if not chosen.era_known:
        older = graph(model, shape=oldest, quantized_cache=quantized, layers=(first, last), with_output=output)
        buffers = max(buffers, older, key=lambda g: g.total)
    if now.latent_cache and not chosen.kv_on_host and was_cached_expanded(model):
        every_head = oldest if not oldest.latent_cache else shape(chosen, oldest=True)
        cache_most = max(cache_most, cache(model, k=k, v=v, shape=every_head, layers=(first, last)).keys_and_values)
    old = not chosen.era_known or chosen.release.separate_f32_mask
    pipeline = 0
    if overlapped:
        pipeline = llama_cpp_graph.pipeline_copies(
            tokens=now.tokens,
            input_bytes=buffers.inputs // now.tokens,
            hidden_size=model.hidden_size,
            first=index == 0,
            raw_input=chosen.release.keeps_raw_input and chosen.era_known,
        )
    return Device(
        index=index,
        pipeline=pipeline,
        first=first,
        last=last,
        output=output,
        weights=weights,
        cache=caches,
        cache_most=cache_most,
        graph=buffers,
        graph_least=least,
        graph_most=buffers.total + (buffers.inputs + buffers.hidden if old else 0),
    )


def host(model: Model, parts: FileWeights, chosen: Settings, offloaded: int, held: Shape) -> Host:
    """
    What the GPUs do not take.

    Args:
        model: Architecture.
        parts: The file by part.
        chosen: Settings.
        offloaded: Layers on the GPUs, output matrix counted. [layers]
        held: Shape of the buffers.

    Returns:
        Weights, caches and experts on the host.
    """
    count = len(parts.layers)
    first = min(count, llama_cpp_placement.first_offloaded(num_layers=count, n_gpu_layers=offloaded))
    experts = sum(parts.experts[first : max(first, chosen.cpu_moe_layers)]) if chosen.cpu_moe_layers else 0
    output = 0 if offloaded else parts.output
    end = count if chosen.kv_on_host else first
    caches = cache(model, k=chosen.k, v=chosen.v, shape=held, layers=(0, end)) if end else Cache(0, 0, 0)
    return Host(
        weights=parts.input + parts.before[first] + output + experts,
        cache=caches.keys_and_values + caches.recurrent,
    )
