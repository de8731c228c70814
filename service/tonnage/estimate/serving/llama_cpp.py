"""
llama.cpp: whole layers per device, the whole context and one micro-batch's graph allocated at start.

Nothing is claimed by a fraction. Phases: load (model buffer), kv_allocation (caches), prefill (graph and what
grows at run time), idle (what stays).
"""

from collections.abc import Iterator

from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving import llama_cpp_items as items
from tonnage.estimate.serving.llama_cpp_buffers import Shape
from tonnage.estimate.serving.llama_cpp_devices import Device, host, shape
from tonnage.estimate.serving.llama_cpp_fit import fitted
from tonnage.estimate.serving.llama_cpp_settings import Settings, settings
from tonnage.estimate.serving.llama_cpp_weights import FileWeights, file_weights
from tonnage.estimate.serving.process import device_context, host_memory, version_findings
from tonnage.laws import llama_cpp_graph
from tonnage.spec.model import Model
from tonnage.spec.report import (
    Account,
    Assumption,
    CapacityTokens,
    Finding,
    GpuLoad,
    Host,
    KvCache,
    MemoryItem,
    PhaseItems,
    exactly,
)
from tonnage.spec.workload import Workload
from tonnage.units import GiB, MiB, format_size

_INVALIDATED_BY = (
    "another build: compute buffers shrank twice in 2026",
    "another backend than CUDA: other pools and contexts",
    "free memory that differs between the devices: the default split follows it",
)


def account(workload: Workload) -> Account:
    """
    What a llama.cpp server allocates on every GPU and on the host.

    Args:
        workload: Resolved card for llama.cpp.

    Returns:
        Loads by GPU, cache, host items and findings.
    """
    return account_of(workload, settings(workload))


def account_of(workload: Workload, chosen: Settings) -> Account:
    """
    The same for settings that another front end made (Ollama).

    Args:
        workload: Resolved card.
        chosen: Settings of the process.

    Returns:
        Account.
    """
    model = workload.model
    parts = file_weights(model, workload.weight_format, workload.formats, workload.weight_bytes)
    fit = fitted(workload, parts, chosen)
    chosen, found = fit.chosen, fit.devices
    tower = bool(parts.projector and (chosen.projector or _wants_images(workload)))
    loads = tuple(_load(workload, device, chosen, parts, tower=tower) for device in found)
    return Account(
        loads=loads,
        kv_cache=_kv_report(found, chosen),
        host=_host(workload, chosen, parts, fit.layers),
        assumptions=tuple(_with_layers(chosen.assumptions, fit.layers)),
        unknowns=_unknowns(workload, parts, tower=tower),
        invalidated_by=_INVALIDATED_BY,
        findings=(*fit.given_up, *_findings(workload, chosen), *version_findings(workload)),
    )


def _with_layers(assumed: tuple[Assumption, ...], layers: int) -> Iterator[Assumption]:
    """The assumptions, with the layers that did fit instead of those that were tried."""
    for assumption in assumed:
        tried = assumption.field == "serving.n_gpu_layers"
        yield replace(assumption, value=layers) if tried else assumption


def _load(workload: Workload, device: Device, chosen: Settings, parts: FileWeights, *, tower: bool) -> GpuLoad:
    model = workload.model
    context = device_context(workload.gpu, torch=False)
    model_buffer = [items.weights(model, device, parts, known_file=workload.weight_bytes is not None)]
    if tower and device.index == 0:
        model_buffer.append(items.projector(parts))
    load = (*model_buffer, context)
    cached = (*load, *items.caches(device, chosen))
    idle = (*cached, *items.compute(device, chosen), *items.overlap(device, workload.gpu))
    running = (*idle, *items.run_time(device, chosen, parts))
    phases = (
        PhaseItems("load", load),
        PhaseItems("kv_allocation", cached),
        PhaseItems("prefill", running),
        PhaseItems("idle", idle),
    )
    return GpuLoad(ranks=(device.index,), stage=device.index, phases=phases)


def _wants_images(workload: Workload) -> bool:
    multimodal = workload.serving.multimodal if workload.serving is not None else None
    if multimodal is None or multimodal.language_model_only:
        return False
    return bool(multimodal.images_per_prompt or multimodal.videos_per_prompt or multimodal.audios_per_prompt)


def _text_alone(workload: Workload) -> bool:
    multimodal = workload.serving.multimodal if workload.serving is not None else None
    return multimodal is not None and (multimodal.language_model_only or multimodal.images_per_prompt == 0)


def _kv_report(found: tuple[Device, ...], chosen: Settings) -> KvCache | None:
    fullest = max(found, key=lambda d: d.cache.keys_and_values)
    total = sum(d.cache.keys_and_values for d in found)
    state = sum(d.cache.recurrent for d in found)
    if not total and not state:
        return None
    tokens = chosen.context_tokens
    per_slot = tokens if chosen.unified else tokens // chosen.slots
    return KvCache(
        bytes_per_token=fullest.cache.keys_and_values // max(1, tokens),
        state_bytes_per_sequence=fullest.cache.recurrent // max(1, chosen.slots),
        pool=exactly(fullest.cache.keys_and_values),
        capacity_tokens=CapacityTokens(tokens, tokens, tokens),
        max_concurrency=1.0 if chosen.unified else float(chosen.slots),
        max_model_len=per_slot,
        largest_max_model_len=per_slot,
        detail="the whole context is allocated at start; unified slots share it, separate ones divide it",
    )


def _findings(workload: Workload, chosen: Settings) -> tuple[Finding, ...]:
    found = []
    if chosen.v.block_elements > 1 and not chosen.flash_attention:
        reason = "a quantized V cache needs flash attention: the context is not created without"
        found.append(Finding(status="excluded", reason=reason, field="/serving/flash_attn"))
    found += _demand(workload, chosen)
    return tuple(found)


def _demand(workload: Workload, chosen: Settings) -> list[Finding]:
    serving = workload.serving
    if serving is None:
        return []
    found = []
    wanted = (serving.input_tokens or 0) + (serving.output_tokens or 0)
    per_slot = chosen.context_tokens if chosen.unified else chosen.context_tokens // chosen.slots
    if wanted > per_slot:
        reason = f"a request of {wanted} tokens does not fit into the {per_slot} tokens of a slot"
        found.append(Finding(status="excluded", reason=reason, field="/serving/max_model_len"))
    replicas = workload.placement.data_parallel_size
    if serving.concurrency is not None and serving.concurrency > chosen.slots * replicas:
        reason = f"{serving.concurrency} concurrent requests wait for {chosen.slots * replicas} slots"
        found.append(Finding(status="needs_confirmation", reason=reason, field="/serving/n_parallel"))
    elif (
        wanted
        and serving.concurrency
        and chosen.unified
        and wanted * serving.concurrency > chosen.context_tokens * replicas
    ):
        reason = f"{serving.concurrency} requests of {wanted} tokens share a context of {chosen.context_tokens}"
        found.append(Finding(status="needs_confirmation", reason=reason, field="/serving/max_model_len"))
    return found


def _unknowns(workload: Workload, parts: FileWeights, *, tower: bool) -> tuple[str, ...]:
    found = []
    if parts.projector and not tower and not _text_alone(workload):
        size = format_size(parts.projector)
        found.append(
            f"projector (--mmproj, {size} in 16 bit): not counted unless multimodal states what a prompt holds"
        )
    if workload.draft is not None:
        found.append("draft model: its weights, cache and graph are not counted")
    if workload.serving is not None and workload.serving.lora is not None:
        found.append("adapters: their weights are not counted")
    return tuple(found)


def _host(workload: Workload, chosen: Settings, parts: FileWeights, offloaded: int) -> Host:
    model = workload.model
    held = shape(chosen)
    left = host(model, parts, chosen, offloaded, held)
    disk = workload.weight_bytes or parts.total - _tied(model, parts)
    spread = chosen.release.prompt_cache_bytes + GiB
    return _host_of(
        model, held, weights=left.weights, cache=left.cache, disk=disk, spread=spread,
        copies=1 if chosen.release.separate_f32_mask else 4 if chosen.release.keeps_raw_input else 2,
    )  # fmt: skip


@remembered()
def _host_of(model: Model, held: Shape, *, weights: int, cache: int, disk: int, spread: int, copies: int) -> Host:
    outputs = llama_cpp_graph.output_buffer(slots=held.slots, vocab_size=model.vocab_size)
    buffer = llama_cpp_graph.host_buffer(
        tokens=held.tokens,
        hidden_size=model.hidden_size,
        mask_bytes=(4 if held.separate_f32_mask else 2) * held.cells,
        index_bytes=36,
        copies=copies,
    )
    named = (
        _host_item("weights", weights, "token embedding and what no GPU holds; pages of the file are reclaimable"),
        _host_item("kv_cache", cache, "layers on the host"),
        _host_item("activations", buffer, "pinned inputs"),
        _host_item("logits", outputs, "one row per slot"),
    )
    listed = tuple(item for item in named if item.bytes.expected)
    expected = sum(item.bytes.expected for item in listed) + 500 * MiB
    return host_memory(expected=expected, spread=spread, disk_bytes=disk, items=listed)


def _tied(model: Model, parts: FileWeights) -> int:
    return parts.input if model.tie_word_embeddings else 0


def _host_item(component: str, size: int, detail: str) -> MemoryItem:
    return MemoryItem(
        component=component,
        bytes=exactly(size),
        basis="derived",
        law="laws.llama_cpp_graph.host_buffer",
        source="ggml-org/llama.cpp@0c1e57098 src/llama-context.cpp",
        detail=detail,
        counter="device",
    )
