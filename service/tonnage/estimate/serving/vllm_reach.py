"""How far vLLM's longest request reaches: cards that differ in it alone mostly share everything but what the cache holds."""

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
    serving, release, model = workload.serving, workload.profile, workload.model
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    length, kind = serving.max_model_len or 0, traits(model)
    if not length or kind.indexed or runs_v0(release, *compute_capability(workload.gpu), workload):
        return (length,)
    tier = batch_tier(release, workload.gpu)
    batch = serving.max_num_batched_tokens or tier.max_num_batched_tokens
    seqs = serving.max_num_seqs or tier.max_num_seqs
    if serving.max_num_batched_tokens is None and seqs * length < batch:
        return (length,)
    reached = (min(length, _WHOLE_CONTEXT),) if kind.mla else ()
    if not profiles_images(model, serving):
        return reached
    item = largest_item(model, length, profiles_videos(serving))
    if item is None or item.tokens > length:
        return (length,)
    items = vision_encoder.items(
        budget=batch,
        tokens_per_item=item.tokens,
        max_num_seqs=serving.max_num_seqs or min(seqs, batch),
        limit=images_per_prompt(serving),
        max_model_len=length,
    )
    return (*reached, item.tokens, items)
