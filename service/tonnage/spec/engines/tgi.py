"""Releases of Text Generation Inference."""

from tonnage.spec.engine import Release


class Tgi(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of Text Generation Inference."""

    cuda_memory_fraction: float = 1.0
    wiggle_room: float
    """Part of that fraction the server uses. [fraction]"""
    of_card: bool = True
    """The fraction is of the card; else of what the warm-up left free."""
    longest_default: int = 0
    """max_total_tokens where nothing is said, at most the model's longest; 0: that. [tokens]"""
    scores_prompts: bool = False
    """The warm-up asks for the log-probabilities of every prompt token."""
    block_size: int
    """Tokens of a cache block under the default attention. [tokens]"""
    prefill_tokens: int
    """max_batch_prefill_tokens where the launcher cannot compute one. [tokens]"""
    computes_prefill_tokens: bool = False
    """The launcher derives max_batch_prefill_tokens from card and model."""
    prefill_tokens_by_model: dict[str, int]
    """Model types with a limit of their own. [tokens]"""


RELEASE = Tgi
