"""What one generate() call runs with: batch, prompt, answer, attention and caches."""

from functools import lru_cache
from typing import Literal

from msgspec import Struct

from tonnage.estimate.caches import DTYPE_BYTES, plain_kv_format
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.transformers_resident import Loading
from tonnage.estimate.serving.transformers_widths import Execution
from tonnage.laws.device_context import cublas_workspace
from tonnage.spec import card
from tonnage.spec.engines.transformers import Transformers as Release
from tonnage.spec.facts import Gpu, KvFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption
from tonnage.spec.workload import Workload
from tonnage.units import ceil_div

CacheKind = Literal["dynamic", "tuple", "static", "none"]
"""Grown by concatenation, also as tuples of all layers, allocated at once, or no cache at all."""
NEW_TOKENS = 20
"""generate()'s own limit of new tokens when none is stated. [tokens]"""

_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16",
    "float32": "fp32", "float": "fp32", "fp32": "fp32",
}  # fmt: skip
_STATIC = frozenset({"static", "hybrid", "sliding_window", "offloaded_static"})
_COPIED_HEADS = frozenset({"sdpa", "eager"})
_HOPPER = 9
_DEFAULT_MAJOR = 8


class Settings(Struct, frozen=True, kw_only=True):
    """Everything of a call that memory depends on."""

    release: Release
    dtype: str
    batch_size: int
    prompt_tokens: int
    new_tokens: int
    eager: bool
    cache: CacheKind
    kv_formats: tuple[KvFormat, KvFormat]
    loading: Loading
    execution: Execution
    workspace_bytes: int
    assumptions: tuple[Assumption, ...]

    @property
    def length(self) -> int:
        """Tokens a sequence holds in the cache when the last one is made. [tokens]"""
        return max(self.prompt_tokens, self.prompt_tokens + self.new_tokens - 1)


def settings(workload: Workload) -> Settings:
    """
    The call that the card describes.

    Args:
        workload: Resolved card for Transformers.

    Returns:
        Settings, and the assumptions that completed them.
    """
    serving, release, model = workload.serving, workload.profile, workload.model
    assert isinstance(serving, card.Transformers)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    notes: list[Assumption] = []
    dtype = _dtype(workload)
    implementation = _attention(serving, release, model, notes)
    prompt, new = _tokens(serving, model, notes)
    repeats = serving.engine_version is None or release.repeats_kv_heads
    plain = plain_kv_format(dtype)
    return Settings(
        release=release,
        dtype=dtype,
        batch_size=_batch(workload, serving, notes),
        prompt_tokens=prompt,
        new_tokens=new,
        eager=implementation == "eager",
        cache=_cache(serving, release, model),
        kv_formats=workload.kv_formats or (plain, plain),
        loading=_loading(workload, release, notes),
        execution=_one_execution(
            DTYPE_BYTES[dtype],
            repeats and implementation in _COPIED_HEADS,
            release.experts == "grouped",
            4 if model.model_type in release.fp32_routing_models else DTYPE_BYTES[dtype],
        ),
        workspace_bytes=cublas_workspace(compute_capability_major=_major(workload.gpu)),
        assumptions=tuple(notes),
    )


def _dtype(workload: Workload) -> str:
    stated = workload.serving.dtype if workload.serving is not None else None
    if stated is not None and stated in _DTYPES:
        return _DTYPES[stated]
    form = workload.weight_format
    return form.id if form.kind == "plain" and form.id in DTYPE_BYTES else workload.model.dtype


@remembered(512)
def _major(gpu: Gpu | None) -> int:
    if gpu is None or gpu.compute_capability is None or gpu.vendor != "nvidia":
        return _DEFAULT_MAJOR
    return int(gpu.compute_capability.split(".")[0])


def _attention(serving: card.Transformers, release: Release, model: Model, notes: list[Assumption]) -> str:
    if serving.attn_implementation is not None:
        return serving.attn_implementation
    only_eager = _only_eager(model)
    chosen = "eager" if only_eager else release.attn_implementation
    why = "attention sinks and soft caps have no sdpa kernel" if only_eager else f"default of {release.since}"
    notes.append(Assumption("serving.attn_implementation", chosen, why))
    return chosen


@remembered()
def _only_eager(model: Model) -> bool:
    attentions = [group.layer.attention for group in model.layers if group.layer.attention is not None]
    return any(attention.sinks or attention.softcap for attention in attentions)


def _tokens(serving: card.Transformers, model: Model, notes: list[Assumption]) -> tuple[int, int]:
    new = serving.output_tokens
    if serving.input_tokens is not None:
        if new is None:
            room = (serving.max_model_len or 0) - serving.input_tokens
            new = room if room > 0 else NEW_TOKENS
            notes.append(Assumption("serving.output_tokens", new, "up to max_model_len, else generate()'s default"))
        return max(1, serving.input_tokens), max(1, new)
    new = NEW_TOKENS if new is None else max(1, new)
    length = serving.max_model_len or model.max_position_embeddings or 2048
    prompt = max(1, length - new + 1)
    notes.append(Assumption("serving.input_tokens", prompt, "one request as long as max_model_len"))
    return prompt, new


def _batch(workload: Workload, serving: card.Transformers, notes: list[Assumption]) -> int:
    if serving.batch_size is not None:
        return serving.batch_size
    total = serving.concurrency or serving.max_num_seqs or 1
    batch = ceil_div(total, workload.placement.data_parallel_size)
    notes.append(Assumption("serving.batch_size", batch, "the concurrent requests as one batch"))
    return batch


def _cache(serving: card.Transformers, release: Release, model: Model) -> CacheKind:
    if not model.num_hidden_layers and model.known:
        return "none"
    if serving.cache_implementation is not None:
        return "static" if serving.cache_implementation in _STATIC else "dynamic"
    if model.model_type in release.static_hybrid_models:
        return "static"
    return "tuple" if release.tuple_cache or model.model_type in release.tuple_cache_models else "dynamic"


def _loading(workload: Workload, release: Release, notes: list[Assumption]) -> Loading:
    """Without a stated version weights are taken to arrive one by one, as `.to(device)` still does."""
    serving = workload.serving
    if serving is None or serving.engine_version is None:
        notes.append(
            Assumption(
                "serving.engine_version", release.since, "newest release; loading as without an allocator warm-up"
            )
        )
        least = release.least_warm_up.get(workload.weight_format.family, 0.0)
        return _one_loading(least, False, False, release.balances_by_largest_leaf)
    quantized = workload.weight_format.kind == "linear"
    warm = release.warm_up_quantized if quantized else release.warm_up_plain
    return _one_loading(warm, release.warm_up_counts_tied_head, release.fused_experts, release.balances_by_largest_leaf)


@lru_cache(maxsize=64)
def _one_loading(warm: float, warm_tied_head: bool, fused_experts: bool, largest_leaf: bool) -> Loading:
    """Equal settings are one object: results are remembered by identity."""
    return Loading(warm, warm_tied_head, fused_experts, largest_leaf)


@lru_cache(maxsize=64)
def _one_execution(element_bytes: int, repeats: bool, grouped: bool, routing_bytes: int) -> Execution:
    return Execution(element_bytes, repeats, grouped, routing_bytes)
