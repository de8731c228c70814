"""Ollama: a llama.cpp process under Ollama's own defaults, whole or as many layers as fit."""

from msgspec.structs import replace

from tonnage.estimate.caches import plain_kv_format
from tonnage.estimate.serving.llama_cpp import account_of
from tonnage.estimate.serving.llama_cpp_devices import devices
from tonnage.estimate.serving.llama_cpp_fit import budget, need
from tonnage.estimate.serving.llama_cpp_settings import Settings, equal_shares, is_encoder
from tonnage.estimate.serving.llama_cpp_weights import FileWeights, file_weights
from tonnage.spec import card
from tonnage.spec.engines.ollama import Ollama as Release
from tonnage.spec.model import Model
from tonnage.spec.report import Account, Assumption
from tonnage.spec.workload import Workload

_UNKNOWN_CONTEXT = 4096
_ENCODER_BATCH = 2048


def account(workload: Workload) -> Account:
    """
    What Ollama's runner allocates on every GPU and on the host.

    Args:
        workload: Resolved card for Ollama.

    Returns:
        Account of its llama.cpp process.
    """
    return account_of(workload, settings(workload))


def settings(workload: Workload) -> Settings:
    """
    The process that Ollama starts.

    Args:
        workload: Resolved card for Ollama.

    Returns:
        Settings with Ollama's defaults, and the assumptions that completed them.
    """
    serving, release, model = workload.serving, workload.profile, workload.model
    assert isinstance(serving, card.Ollama)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    notes: list[Assumption] = []
    parts = file_weights(model, workload.weight_format, workload.formats, workload.weight_bytes)
    per_slot = _context(workload, serving, release, notes)
    expanded = model.model_type in release.expanded_file_models
    flash = _flash(serving, release, model, expanded=expanded, notes=notes)
    k, v = workload.kv_formats or (plain_kv_format("fp16"), plain_kv_format("fp16"))
    placement = workload.placement
    base = Settings(
        release=release,
        era_known=serving.engine_version is not None,
        context_tokens=per_slot,
        context_stated=True,
        slots=1,
        unified=not release.separate_streams,
        micro_batch=release.n_ubatch,
        flash_attention=flash,
        k=k,
        v=v,
        layers=serving.n_gpu_layers,
        shares=equal_shares(placement.pipeline_parallel_size * placement.tensor_parallel_size),
        cpu_moe_layers=0,
        swa_full=False,
        kv_on_host=False,
        draft_tokens=0,
        every_token=is_encoder(model),
        assumptions=(),
        expanded_file=expanded,
        projector=_projector(serving, parts, notes),
    )
    slotted = _with_slots(workload, parts, base, serving, notes)
    batched = _with_batch(workload, parts, slotted, serving, notes)
    return replace(batched, assumptions=tuple(notes))


def _projector(serving: card.Ollama, parts: FileWeights, notes: list[Assumption]) -> int:
    """Ollama starts its runner with the model's projector, whether or not a prompt holds images."""
    if not parts.projector or (serving.multimodal is not None and serving.multimodal.language_model_only):
        return 0
    notes.append(Assumption("serving.multimodal.language_model_only", False, "the projector is loaded with the model"))
    return parts.projector


def _context(workload: Workload, serving: card.Ollama, release: Release, notes: list[Assumption]) -> int:
    if serving.max_model_len is not None:
        return serving.max_model_len
    trained = workload.model.max_position_embeddings or _UNKNOWN_CONTEXT
    gpu, placement = workload.gpu, workload.placement
    count = placement.pipeline_parallel_size * placement.tensor_parallel_size
    memory = (gpu.memory_device_bytes or gpu.memory_usable_bytes) * count if gpu is not None else 0
    tier = next(t for t in release.context_tiers if memory >= t.minimum_bytes)
    chosen = min(trained, tier.num_ctx)
    notes.append(Assumption("serving.max_model_len", chosen, f"num_ctx from {release.since} for this much GPU memory"))
    return chosen


def _flash(serving: card.Ollama, release: Release, model: Model, *, expanded: bool, notes: list[Assumption]) -> bool:
    if serving.flash_attn is not None:
        return serving.flash_attn
    # No CUDA kernel has keys of 192 and values of 128 elements for every head (ggml-cuda fattn.cu): it turns itself off.
    chosen = (release.flash_attn and not expanded) or model.model_type in release.flash_attn_models
    notes.append(Assumption("serving.flash_attn", chosen, f"default from {release.since}"))
    return chosen


def _with_slots(
    workload: Workload, parts: FileWeights, base: Settings, serving: card.Ollama, notes: list[Assumption]
) -> Settings:
    release = base.release
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    stated = serving.n_parallel or serving.max_num_seqs
    single = base.every_token or workload.model.model_type in release.single_slot_models
    if single:
        slots = 1
    elif stated is not None:
        return _slotted(base, stated)
    else:
        slots = release.slots_if_they_fit
        if slots > 1 and not _fits(workload, parts, _slotted(base, slots)):
            slots = 1
    notes.append(Assumption("serving.n_parallel", slots, f"default from {release.since}"))
    return _slotted(base, slots)


def _slotted(base: Settings, slots: int) -> Settings:
    unified = slots == 1 or not base.release.separate_streams
    return replace(base, slots=slots, context_tokens=base.context_tokens * slots, unified=unified)


def _fits(workload: Workload, parts: FileWeights, chosen: Settings, share: float = 1.0) -> bool:
    free = budget(workload, chosen)
    if free is None:
        return share >= 1.0
    return all(need(d) <= share * free for d in devices(workload.model, parts, chosen, len(parts.layers) + 1))


def _with_batch(
    workload: Workload, parts: FileWeights, base: Settings, serving: card.Ollama, notes: list[Assumption]
) -> Settings:
    release = base.release
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    stated = serving.n_ubatch or serving.n_batch or serving.max_num_batched_tokens
    if stated is not None:
        return replace(base, micro_batch=stated)
    chosen = replace(base, micro_batch=_ENCODER_BATCH) if base.every_token else base
    if base.flash_attention and not base.every_token:
        chosen = next(
            (
                larger
                for tier in release.batch_tiers
                if base.context_tokens // base.slots > tier.above_context
                and _fits(workload, parts, larger := replace(base, micro_batch=tier.num_batch), tier.at_most_used)
            ),
            base,
        )
    notes.append(Assumption("serving.n_ubatch", chosen.micro_batch, f"num_batch from {release.since}"))
    return chosen
