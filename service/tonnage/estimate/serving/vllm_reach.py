"""How far vLLM's longest request reaches: cards that differ in it alone mostly share everything but what the cache holds."""

from typing import NamedTuple

from tonnage.estimate.serving.profiled_items import largest_item
from tonnage.estimate.serving.vllm_settings import (
    batch_tier,
    compute_capability,
    images_per_prompt,
    profiles_images,
    profiles_videos,
    runs_v0,
    traits,
)
from tonnage.laws import vision_encoder
from tonnage.spec import card
from tonnage.spec.workload import Workload
from tonnage.units import ceil_div

_WHOLE_CONTEXT = 8_192
"""Longer requests widen MLA's prefill workspace no more: laws.serving_activations.mla_context_tokens. [tokens]"""


def reach(workload: Workload) -> tuple[int, ...]:
    """
    How far the longest request reaches into the settings and the profile.

    Args:
        workload: Resolved card for vLLM.

    Returns:
        Equal for lengths with the same batch and profile, so that they differ only in what the cache holds: nothing, or the
        stated length (0 for the model's own) as far as something is cut by it. [tokens]
    """
    return beyond(limits(workload), workload)


class Limits(NamedTuple):
    """What a longest request reaches into, of a card of any length."""

    everywhere: bool
    """Every length has settings of its own."""
    shortest: int
    """Below it the batch is cut by the length. [tokens]"""
    mla: bool
    images: bool


def limits(workload: Workload) -> Limits:
    """
    What the longest request of a card may reach into.

    Args:
        workload: Resolved card for vLLM, of any length.

    Returns:
        Limits, the same for all lengths.
    """
    serving, release, kind = workload.serving, workload.profile, traits(workload.model)
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    legacy = runs_v0(release, *compute_capability(workload.gpu), workload)
    everywhere = kind.indexed or kind.encodes_only or legacy
    shortest = 0
    if serving.max_num_batched_tokens is None:
        tier = batch_tier(release, workload.gpu)
        shortest = ceil_div(tier.max_num_batched_tokens, serving.max_num_seqs or tier.max_num_seqs)
    return Limits(everywhere, shortest, kind.mla, profiles_images(workload.model, serving))


def beyond(found: Limits, workload: Workload) -> tuple[int, ...]:
    """
    How far the longest request of a card reaches.

    Args:
        found: Its limits.
        workload: The card with its length.

    Returns:
        As `reach`.
    """
    serving = workload.serving
    length = (serving.max_model_len if serving is not None else None) or 0
    if not length or found.everywhere or length < found.shortest:
        return (length,)
    reached = (min(length, _WHOLE_CONTEXT),) if found.mla else ()
    return (*reached, *_of_images(workload, length)) if found.images else reached


def _of_images(workload: Workload, length: int) -> tuple[int, ...]:
    """Tokens of the largest item and how many are profiled; the length itself where it cuts one."""
    serving = workload.serving
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    places = workload.profile.qwen3_video_token_places
    item = largest_item(workload.model, length, profiles_videos(serving), places)
    if item is None or item.budgeted > length:
        return (length,)
    tier = batch_tier(workload.profile, workload.gpu)
    batch = serving.max_num_batched_tokens or tier.max_num_batched_tokens
    items = vision_encoder.items(
        budget=batch,
        tokens_per_item=item.budgeted,
        max_num_seqs=serving.max_num_seqs or min(tier.max_num_seqs, batch),
        limit=images_per_prompt(serving),
        max_model_len=length,
    )
    return (item.tokens, items)
