"""Releases of Hugging Face Transformers, as far as generate() allocates differently."""

from typing import Literal

from msgspec import field

from tonnage.spec.engine import Release


class Transformers(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of Transformers."""

    attn_implementation: str
    """Default attention: eager, sdpa."""
    last_position_logits: bool = False
    """The prefill makes logits of the last position only."""
    repeats_kv_heads: bool = True
    """Grouped heads are copied to every query head before sdpa."""
    warm_up_plain: float = 0.0
    """Share of the weights that the allocator warm-up takes as one block, 16-bit checkpoints. [fraction]"""
    warm_up_quantized: float = 0.0
    """The same for quantized checkpoints. [fraction]"""
    least_warm_up: dict[str, float] = field(default_factory=dict)
    """Least share that any release able to load a family of formats warms up, for cards without a version; else 0. [fraction]"""
    warm_up_counts_tied_head: bool = False
    """The warm-up also takes room for a head that is then tied: reserved, never used."""
    sliding_cache: Literal["full", "window"] = "full"
    """Whether a dynamic cache cuts sliding layers to their window after the prefill."""
    tuple_cache: bool = False
    """Caches are tuples: the old ones of all layers live until the step's new ones are complete."""
    tuple_cache_models: tuple[str, ...] = ()
    """Model types whose own (remote) code still does so."""
    static_hybrid_models: tuple[str, ...] = ()
    """Model types whose default cache is allocated for the whole length at once, sliding layers for their window."""
    experts: Literal["loop", "grouped"] = "loop"
    """Experts one after the other, or all choices as grouped products."""
    fp32_routing_models: tuple[str, ...] = ()
    """Model types whose router weights stay fp32, so that grouped products are weighted in fp32."""
    fused_awq_models: tuple[str, ...] = ()
    """Model types whose AWQ checkpoints are known to be run with AutoAWQ's own loader, which fuses attention."""
    fused_experts: bool = False
    """All experts of a layer are one tensor."""
    latent_cache: bool = False
    """Latent attention caches its latent, not expanded keys and values."""
    balances_by_largest_leaf: bool = False
    """device_map="auto" leaves room for the largest leaf (embedding), not only for the largest layer."""


RELEASE = Transformers
