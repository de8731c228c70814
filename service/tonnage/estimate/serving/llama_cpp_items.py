"""Items of one llama.cpp GPU, with their bands by era and kind of model."""

from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.llama_cpp_devices import Device
from tonnage.estimate.serving.llama_cpp_settings import Settings
from tonnage.estimate.serving.llama_cpp_weights import FileWeights
from tonnage.spec.facts import Gpu
from tonnage.spec.model import Model
from tonnage.spec.report import Amount, Basis, Counter, MemoryItem
from tonnage.units import MiB

_SOURCE = "ggml-org/llama.cpp@0c1e57098 "
_TABLE = "measured: tests/measured/llama_cpp_buffers.json"
_POOL_MOST = 300 * MiB
"""cuBLAS and matrix-multiplication pools of the CUDA backend. [bytes]"""
_PROJECTOR_COMPUTE = 1024 * MiB
"""What Ollama budgets for the projector's graph. [bytes]"""


def weights(model: Model, device: Device, parts: FileWeights, *, known_file: bool) -> MemoryItem:
    """Model buffer: layers and, on the last device, the output matrix."""
    layers = f"layers {device.first} to {device.last - 1}" if device.last > device.first else "no layer"
    held = f"{layers}{' and the output matrix' if device.output else ''} of {len(parts.layers)}"
    uncertain = known_file or model.trust not in ("exact", "checked")
    return _weights(device.weights, held, known_file, uncertain)


@remembered()
def _weights(size: int, held: str, known_file: bool, uncertain: bool) -> MemoryItem:
    basis: Basis = "user" if known_file else "derived"
    detail = f"{held}; token embedding on the host"
    return _item(
        "weights",
        Amount(size - size // 50 if uncertain else size, size, size + size // 200),
        basis,
        "laws.weights.packed_rows",
        "src/llama-model.cpp load_tensors",
        detail=detail,
    )


def caches(device: Device, chosen: Settings) -> tuple[MemoryItem, ...]:
    """KV buffer and recurrent buffer, allocated for the whole context at start."""
    found = []
    size = device.cache.keys_and_values
    if size:
        most = max(device.cache_most, size + size // 200)
        detail = f"{chosen.context_tokens} tokens over {chosen.slots} slots, {chosen.k.id} and {chosen.v.id}"
        if device.cache_most > size:
            detail += "; a file without the absorbed matrices, or a build before 2025-04, caches every head"
        law = "laws.llama_cpp_cache.layer"
        found.append(
            _item("kv_cache", Amount(size, size, most), "derived", law, "src/llama-kv-cache.cpp", detail=detail)
        )
    state = device.cache.recurrent
    if state:
        law = "laws.llama_cpp_cache.recurrent"
        amount = Amount(state, state, state + state // 200)
        found.append(_item("recurrent_state", amount, "derived", law, "src/llama-memory-recurrent.cpp"))
    return tuple(found)


def compute(device: Device, chosen: Settings) -> tuple[MemoryItem, ...]:
    """Compute buffer: activations, and the logits where the output stage is the larger."""
    graph = device.graph
    below, above = _relative_band(device, chosen)
    total = graph.total
    # Where the logits of every token lead, they may stand up to two rows of the stream further.
    rows = graph.hidden if graph.logits and chosen.all_outputs else 0
    high = max(device.graph_most, total + max(int(above * total), rows))
    least = min(device.graph_least, total)
    low = least - int(below * least)
    law = f"laws.llama_cpp_graph.{graph.law}"
    source = "src/llama-context.cpp sched_reserve; " + _TABLE
    basis: Basis = "derived"
    detail = f"micro-batch of {chosen.micro_batch}" + ("" if chosen.flash_attention else ", no flash attention")
    if not chosen.era_known:
        detail += "; as builds before 2026-06: logits for every token, masks in f32 and f16; newer ones need less"
    shared = Amount(min(low, graph.activations), graph.activations, max(graph.activations, high - graph.logits))
    items = [_item("activations", shared, basis, law, source, detail=detail)]
    if graph.logits:
        # The band of the buffer is the band of its larger part.
        part = Amount(max(0, low - shared.low), graph.logits, graph.logits)
        items.append(_item("logits", part, basis, "laws.llama_cpp_graph.output_stage", source))
    return tuple(items)


def overlap(device: Device, gpu: Gpu | None) -> tuple[MemoryItem, ...]:
    """Copies of inputs on several devices; backends without events (ROCm without peer copies, Vulkan) keep none."""
    if not device.pipeline:
        return ()
    expected = 0 if gpu is not None and gpu.vendor != "nvidia" else device.pipeline
    law, source = "laws.llama_cpp_graph.pipeline_copies", "ggml/src/ggml-backend.cpp; " + _TABLE
    detail = "copies of inputs that overlap devices"
    return (_item("workspace", Amount(0, expected, device.pipeline), "derived", law, source, detail=detail),)


def _relative_band(device: Device, chosen: Settings) -> tuple[float, float]:
    if not chosen.release.traced:
        return 0.15, 0.1
    if not device.graph.plain:
        return 0.15, 0.15
    return 0.02, 0.04


def run_time(device: Device, chosen: Settings, parts: FileWeights) -> tuple[MemoryItem, ...]:
    """What grows while requests run and no log line shows."""
    items = []
    staging = device.cache.staging
    if staging and not chosen.reserves_dequantized:
        amount = Amount(0, staging, staging + staging // 10)
        law = "laws.llama_cpp_cache.dequantized_staging"
        source = "ggml-org/llama.cpp PR 23861 (idle 7981, peak 8275 MiB)"
        items.append(_item("dequantization", amount, "measured", law, source, counter="device"))
    items.append(_pools(3 * parts.largest_expert_tensor if chosen.cpu_moe_layers else 0))
    return tuple(items)


@remembered()
def _pools(experts: int) -> MemoryItem:
    amount = Amount(0, 0, _POOL_MOST + experts)
    detail = "matrix multiplication pools; expert tensors visiting from the host"
    law = "laws.weights.packed_rows"
    return _item("framework", amount, "assumed", law, "ggml/src/ggml-cuda.cu", detail=detail, counter="device")


def projector(parts: FileWeights) -> MemoryItem:
    """Vision or audio towers (mmproj) and their graph, on the first GPU."""
    amount = Amount(parts.projector, parts.projector + _PROJECTOR_COMPUTE // 4, parts.projector + _PROJECTOR_COMPUTE)
    source = "ollama/ollama@fb3076099 (budgets weights + 1 GiB)"
    return _item("vision_encoder", amount, "assumed", "laws.weights.blocks", source, detail="16-bit mmproj file")


def _item(
    component: str,
    amount: Amount,
    basis: Basis,
    law: str,
    source: str,
    *,
    detail: str = "",
    counter: Counter = "allocated",
) -> MemoryItem:
    return MemoryItem(
        component=component,
        bytes=amount,
        basis=basis,
        law=law,
        source=_SOURCE + source if source.startswith(("src/", "ggml/")) else source,
        detail=detail,
        counter=counter,
    )
