"""Releases of Ollama: its own defaults on top of the llama.cpp era it runs."""

from msgspec import Struct

from tonnage.spec.engines.llama_cpp import LlamaCpp


class ContextTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Default context by the memory of all GPUs, largest first."""

    minimum_bytes: int
    """Smallest total of the tier. [bytes]"""
    num_ctx: int
    """[tokens]"""


class BatchTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Automatic batch by context, largest first."""

    above_context: int
    """Contexts longer than this. [tokens]"""
    at_most_used: float
    """Only while the predicted use stays below this part of the free memory. [fraction]"""
    num_batch: int
    """[tokens]"""


class Ollama(LlamaCpp, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of Ollama."""

    context_tiers: tuple[ContextTier, ...]
    slots_if_they_fit: int = 1
    """Slots tried where nothing is said; one if they do not fit. [sequences]"""
    single_slot_models: tuple[str, ...] = ()
    """Model types that always get one slot."""
    flash_attn_models: tuple[str, ...] = ()
    """Model types with flash attention by default."""
    expanded_file_models: tuple[str, ...] = ()
    """Model types whose files in Ollama's library were made before latent attention was absorbed."""
    batch_tiers: tuple[BatchTier, ...] = ()
    reserve_bytes: int
    """Left free on every GPU. [bytes]"""


RELEASE = Ollama
