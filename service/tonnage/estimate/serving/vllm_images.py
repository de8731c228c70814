"""What the images or the video of vLLM's profile run keep and take for a moment."""

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.serving.profiled_items import Item, largest_item
from tonnage.estimate.serving.vllm_settings import Settings
from tonnage.laws import vision_encoder
from tonnage.spec.model import Model, Vision
from tonnage.units import ceil_div


class Images(Struct, frozen=True):
    """What the profiled images take. [bytes]"""

    kept: int = 0
    """Features and pixels alive while the language model runs."""
    peak: int = 0
    """The tower's own widest moment, pixels included."""
    known: bool = True
    """What the largest image becomes is known."""
    long: bool = False
    """It becomes more tokens than a request may have; the V0 engine then ran without (one start-up log of 0.6.6)."""


NO_IMAGES = Images()
UNKNOWN_IMAGES = Images(known=False)


def profiled_images(model: Model, settings: Settings, *, first: bool, tensor_parallel_size: int) -> Images:
    """
    What the largest images or the largest video of an encoder batch take of a rank.

    Args:
        model: A model, with or without a tower.
        settings: vLLM's.
        first: The rank has the first layers, and so the tower.
        tensor_parallel_size: Ranks that share the tower's heads. [unitless]

    Returns:
        Nothing where no tower is profiled.
    """
    vision = model.vision
    skipped = settings.runner_v2 and not settings.release.v2_profiles_encoder
    if vision is None or not settings.images or not first or skipped:
        return NO_IMAGES
    item = _largest(model, settings)
    if item is None:
        return UNKNOWN_IMAGES
    if settings.legacy:
        items = profiled_requests(model, settings)
    else:
        items = vision_encoder.items(
            budget=settings.max_num_batched_tokens,
            tokens_per_item=item.budgeted,
            max_num_seqs=settings.max_num_seqs,
            limit=settings.images_per_prompt,
            max_model_len=settings.max_model_len,
        )
    found = _profiled(
        model, vision, settings, tensor_parallel_size, patches=items * item.patches, tokens=items * item.tokens
    )
    if settings.release.encoder_outputs_fill_budget and not settings.legacy:
        found = replace(found, kept=found.kept + _filled(model, vision, settings, item, items))
    if item.tokens <= settings.max_model_len:
        return found
    return Images(long=True) if settings.legacy else replace(found, long=True)


def _largest(model: Model, settings: Settings) -> Item | None:
    return largest_item(model, settings.max_model_len, settings.videos, settings.release.qwen3_video_token_places)


def _filled(model: Model, vision: Vision, settings: Settings, item: Item, items: int) -> int:
    return vision_encoder.filled_features(
        items=items,
        budget=max(settings.max_num_batched_tokens, item.budgeted),
        tokens_per_item=item.tokens,
        output_size=model.hidden_size * (1 + vision.deepstack_levels),
        element_bytes=settings.element_bytes,
    )


def profiled_requests(model: Model, settings: Settings) -> int:
    """
    Requests of the dummy batch: the V0 engine takes as many as the batch holds with an image each.

    Args:
        model: A model, with or without a tower.
        settings: vLLM's.

    Returns:
        Requests. [requests]
    """
    if not (settings.legacy and settings.images):
        return settings.rows
    item = _largest(model, settings)
    if item is None:
        return settings.rows
    return max(1, min(settings.max_num_seqs, settings.max_num_batched_tokens // item.tokens))


def _profiled(
    model: Model, vision: Vision, settings: Settings, tensor_parallel_size: int, *, patches: int, tokens: int
) -> Images:
    width = settings.element_bytes
    features = vision_encoder.features(
        tokens=tokens,
        output_size=model.hidden_size * (1 + vision.deepstack_levels),
        element_bytes=width,
    )
    pixels = vision_encoder.pixels(
        patches=patches,
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        element_bytes=width,
    )
    ranks = 1 if settings.encoder_replicated else tensor_parallel_size
    widest = max(
        vision_encoder.tower_mlp(
            patches=patches,
            hidden_size=vision.hidden_size,
            width=ceil_div(vision.intermediate_size, ranks),
            gated=vision.gated,
            element_bytes=width,
        ),
        vision_encoder.tower_attention(
            patches=patches,
            hidden_size=vision.hidden_size,
            tensor_parallel_size=ranks,
            rotary=vision.temporal_patch_size > 1,
            element_bytes=width,
        ),
    )
    kept = features if settings.runner_v2 else features + pixels
    return Images(kept=kept, peak=pixels + widest)
