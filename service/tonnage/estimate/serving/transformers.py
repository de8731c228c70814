"""
Hugging Face generate(): weights, one growing cache, the widest moment of the prefill, no pool.

Phases: load (weights arrive), prefill (the whole prompt at once), decode (the last token), idle (what
generate() leaves allocated when it returns).
"""

from collections.abc import Mapping

from tonnage.estimate import caches
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.process import host_memory, version_findings
from tonnage.estimate.serving.transformers_caches import STATE_BYTES, held
from tonnage.estimate.serving.transformers_items import (
    cache_items,
    decode,
    fixed,
    left_behind,
    loading,
    outgrown,
    prefill,
    stuck,
)
from tonnage.estimate.serving.transformers_resident import Resident, residents
from tonnage.estimate.serving.transformers_settings import Settings, settings
from tonnage.estimate.totals import device_total
from tonnage.estimate.weights import disk_bytes
from tonnage.spec.facts import KvFormat, WeightFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Account, Amount, GpuLoad, Host, KvCache, PhaseItems
from tonnage.spec.workload import Workload
from tonnage.units import GiB

_IMAGES = "images: the activations of the vision tower are not part of a generate() estimate"
_DRAFT = "assisted generation: the assistant's weights and cache are not counted"
_ADAPTERS = "adapters: their weights are not counted"
_INVALIDATED_BY = (
    "another batch size, prompt or answer length",
    "prompts of different lengths in one batch: padding makes masks and repeats heads",
    "torch.compile, or kernel packages (flash-linear-attention, mamba-ssm) that the environment has or lacks",
)


def account(workload: Workload) -> Account:
    """
    What one generate() call holds on every GPU of the device map.

    Args:
        workload: Resolved card for Transformers.

    Returns:
        Loads by GPU with the phases load, prefill, decode and idle.
    """
    chosen = settings(workload)
    model, placement = workload.model, workload.placement
    parts = residents(
        model,
        workload.weight_format,
        workload.formats,
        dtype="" if chosen.dtype == model.dtype else chosen.dtype,
        loading=chosen.loading,
        devices=placement.pipeline_parallel_size * placement.tensor_parallel_size,
        known_bytes=workload.weight_bytes,
    )
    return Account(
        loads=tuple(_load(workload, chosen, part, index, len(parts)) for index, part in enumerate(parts)),
        kv_cache=_kv_report(model, chosen, parts[0].layers if len(parts) > 1 else None),
        host=_host(workload),
        assumptions=chosen.assumptions,
        unknowns=_unknowns(workload),
        invalidated_by=_INVALIDATED_BY,
        findings=version_findings(workload),
    )


def _load(workload: Workload, chosen: Settings, part: Resident, index: int, devices: int) -> GpuLoad:
    model, release = workload.model, chosen.release
    layers = None if devices == 1 else part.layers
    k, v = chosen.kv_formats
    cache = held(
        model,
        k=k,
        v=v,
        batch_size=chosen.batch_size,
        prompt=chosen.prompt_tokens,
        length=chosen.length,
        kind=chosen.cache,
        cuts_windows=release.sliding_cache == "window",
        latent=release.latent_cache,
        layers=layers,
    )
    base = fixed(workload, chosen, part, cache, devices)
    first = cache_items(cache.prompt, cache, chosen, part, grown=False)
    phases = [
        PhaseItems("load", (base[0], *loading(workload, part), base[-1])),
        PhaseItems("prefill", (*base, *first, *prefill(workload, chosen, part, layers))),
    ]
    if chosen.cache == "none":
        return GpuLoad(ranks=(index,), stage=index, phases=tuple(phases))
    last = cache_items(cache.final, cache, chosen, part, grown=True)
    end = (*base, *last, *left_behind(model, chosen, part))
    blocks, step = outgrown(cache, chosen), decode(model, chosen, cache)
    moments = (*phases, PhaseItems("decode", (*end, blocks, step)), PhaseItems("idle", (*end, blocks)))
    needs = (*(p.items for p in phases), (*end, stuck(blocks), step))
    needed = max(map(device_total, needs), key=_expected)
    return GpuLoad(ranks=(index,), stage=index, phases=moments, needed=needed)


def _expected(amount: Amount) -> int:
    return amount.expected


def _kv_report(model: Model, chosen: Settings, layers: tuple[int, ...] | None) -> KvCache | None:
    if chosen.cache == "none" or not model.known:
        return None
    return _cost(model, *chosen.kv_formats, layers=layers)


@remembered()
def _cost(model: Model, k: KvFormat, v: KvFormat, *, layers: tuple[int, ...] | None) -> KvCache:
    return KvCache(
        bytes_per_token=caches.token_bytes(model, k, v, layers=layers),
        state_bytes_per_sequence=caches.state_bytes_per_sequence(model, state_bytes=STATE_BYTES, layers=layers),
        max_model_len=model.max_position_embeddings or None,
        detail="no pool: the cache grows with every token",
    )


def _unknowns(workload: Workload) -> tuple[str, ...]:
    serving = workload.serving
    found = [_IMAGES] if workload.model.vision is not None else []
    if serving is not None and serving.speculative is not None:
        found.append(_DRAFT)
    if serving is not None and serving.lora is not None:
        found.append(_ADAPTERS)
    return tuple(found)


def _host(workload: Workload) -> Host:
    return _host_of(workload.model, workload.weight_format, workload.formats, workload.weight_bytes)


@remembered()
def _host_of(
    model: Model, weight_format: WeightFormat, formats: Mapping[str, WeightFormat], known_bytes: int | None
) -> Host:
    disk = known_bytes
    if disk is None:
        disk = disk_bytes(model, weight_format, formats) if model.known else 0
    return host_memory(expected=2 * GiB, spread=disk + 4 * GiB, disk_bytes=disk)
