"""What a llama.cpp process runs with, whoever started it: the server itself, or Ollama."""

from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from tonnage.estimate.caches import plain_kv_format
from tonnage.spec import card
from tonnage.spec.engines.llama_cpp import LlamaCpp as Release
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption
from tonnage.spec.workload import Workload

T = TypeVar("T")

_UNKNOWN_CONTEXT = 4096
_ENCODER_BATCH = 2048


class Settings(Struct, frozen=True, kw_only=True):
    """Everything of a process that memory depends on."""

    release: Release
    era_known: bool
    """False without a stated build: older builds need more, and the band says so."""
    context_tokens: int
    """-c over all slots. [tokens]"""
    context_stated: bool
    slots: int
    unified: bool
    micro_batch: int
    flash_attention: bool
    k: KvFormat
    v: KvFormat
    layers: int | None
    """-ngl; None: as many as fit. [layers]"""
    shares: tuple[float, ...]
    cpu_moe_layers: int
    swa_full: bool
    kv_on_host: bool
    draft_tokens: int
    every_token: bool
    """Logits (or embeddings) of every token are wanted."""
    assumptions: tuple[Assumption, ...]
    expanded_file: bool = False
    """The file has no absorbed matrices: latent attention caches every head."""
    projector: int = 0
    """Vision and audio towers that are loaded whatever the prompt holds. [bytes]"""

    @property
    def padding(self) -> int:
        """Rounding of streams. [cells]"""
        return 256 if self.flash_attention else self.release.padding_without_flash

    @property
    def reserves_dequantized(self) -> bool:
        """The f16 copy of a quantized cache is known to stand in the compute buffer; it is counted beside it otherwise."""
        return self.release.reserves_dequantized and self.era_known

    @property
    def all_outputs(self) -> bool:
        """Rows of every token are reserved."""
        return self.every_token or self.release.outputs == "every_token"


def settings(workload: Workload) -> Settings:
    """
    The process that the card describes.

    Args:
        workload: Resolved card for llama.cpp.

    Returns:
        Settings, and the assumptions that completed them.
    """
    serving, release, model = workload.serving, workload.profile, workload.model
    assert isinstance(serving, card.LlamaCpp)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    notes: list[Assumption] = []
    encoder = is_encoder(model)
    slots, unified = _slots(serving, release, notes)
    context = _context(serving, model, notes)
    flash = _stated(serving.flash_attn, release.flash_attn, "flash_attn", release, notes)
    batch = serving.n_batch or serving.max_num_batched_tokens or release.n_batch
    ubatch = _stated(serving.n_ubatch, _ENCODER_BATCH if encoder else release.n_ubatch, "n_ubatch", release, notes)
    k, v = workload.kv_formats or (plain_kv_format("fp16"), plain_kv_format("fp16"))
    layers = serving.n_gpu_layers
    if layers is None and model.known:
        why = "as many as fit" if release.fit_margin_bytes else "all: a card was asked for"
        notes.append(Assumption("serving.n_gpu_layers", model.num_hidden_layers + 1, why))
    speculative = serving.speculative
    return Settings(
        release=release,
        era_known=serving.engine_version is not None,
        context_tokens=context,
        context_stated=serving.max_model_len is not None,
        slots=slots,
        unified=unified,
        micro_batch=min(ubatch, batch),
        flash_attention=flash,
        k=k,
        v=v,
        layers=layers,
        shares=shares(workload, serving.tensor_split),
        cpu_moe_layers=serving.cpu_moe_layers or 0,
        swa_full=bool(serving.swa_full),
        kv_on_host=bool(serving.no_kv_offload),
        draft_tokens=speculative.num_speculative_tokens if speculative is not None else 0,
        every_token=encoder,
        assumptions=tuple(notes),
    )


def shares(workload: Workload, tensor_split: list[float] | None) -> tuple[float, ...]:
    """Parts of the devices: as stated, else equal cards with equal free memory."""
    placement = workload.placement
    devices = placement.pipeline_parallel_size * placement.tensor_parallel_size
    if tensor_split and sum(tensor_split) > 0:
        return (*tensor_split, *([0.0] * max(0, devices - len(tensor_split))))
    return equal_shares(devices)


@lru_cache(maxsize=64)
def equal_shares(devices: int) -> tuple[float, ...]:
    """One part per device."""
    return (1.0,) * devices


def is_encoder(model: Model) -> bool:
    """Embedding models: no cache, an output for every token."""
    return model.known and not model.num_hidden_layers


def _stated(given: T | None, default: T, field: str, release: Release, notes: list[Assumption]) -> T:
    if given is not None:
        return given
    notes.append(Assumption(f"serving.{field}", default, f"default from {release.since}"))
    return default


def _slots(serving: card.LlamaCpp, release: Release, notes: list[Assumption]) -> tuple[int, bool]:
    stated = serving.n_parallel or serving.max_num_seqs
    slots = _stated(stated, release.n_parallel, "n_parallel", release, notes)
    if not release.separate_streams:
        return slots, True
    default = release.unified_slots if stated is None else False
    return slots, serving.kv_unified if serving.kv_unified is not None else default or slots == 1


def _context(serving: card.LlamaCpp, model: Model, notes: list[Assumption]) -> int:
    if serving.max_model_len is not None:
        return serving.max_model_len
    trained = model.max_position_embeddings or _UNKNOWN_CONTEXT
    notes.append(Assumption("serving.max_model_len", trained, "the context the model was trained for"))
    return trained
