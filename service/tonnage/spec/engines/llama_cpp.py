"""Builds of llama.cpp, as far as they allocate differently."""

from typing import Literal

from tonnage.spec.engine import Release


class LlamaCpp(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One era of builds."""

    n_batch: int = 2048
    n_ubatch: int = 512
    flash_attn: bool
    """Flash attention where nothing is said and the backend has it."""
    n_parallel: int = 1
    """Slots of a server where nothing is said. [sequences]"""
    unified_slots: bool = True
    """Slots share one stream where their number is not said either."""
    separate_streams: bool = False
    """Stated slots have streams of their own."""
    offloads_all_layers: bool = False
    """Every layer goes to the GPU where nothing is said."""
    fit_margin_bytes: int | None = None
    """Unstated context and layers are shrunk until this much of every device is free; None: they are not. [bytes]"""
    fit_min_context: int = 4096
    """Context is not shrunk below this. [tokens]"""
    sliding_cache: bool = False
    """Sliding-window layers cache their window, not the context."""
    latent_cache: bool = False
    """Latent attention caches its latent, if the file holds the absorbed matrices."""
    padding_without_flash: int = 256
    """Rounding of the context without flash attention. [cells]"""
    separate_f32_mask: bool = False
    """The f32 mask stays beside its f16 copy."""
    outputs: Literal["every_token", "slots"] = "every_token"
    """Rows of logits the graph is reserved for."""
    transposed_value_indices: bool = True
    """Without flash attention values are scattered by an index per element."""
    reserves_dequantized: bool = False
    """The compute buffer holds the f16 copy of a quantized cache; before, the pool grew by it at run time."""
    keeps_raw_input: bool = False
    """Graphs hold embedded tokens and raw embeddings as inputs, whichever is used; both stay to the end."""
    traced: bool = False
    """Buffers were compared with dry runs of the build; else the band is wide."""
    prompt_cache_bytes: int = 0
    """Prompts a server keeps on the host. [bytes]"""


RELEASE = LlamaCpp
