"""
The largest image or video a vision tower may be given, which engines profile with.

How many tokens it becomes is the image processor's rule, by kind of tower.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from tonnage.laws import vision_encoder
from tonnage.spec.model import Model, Vision

_LARGEST_QWEN_IMAGE = 16_384
"""max_pixels 12,845,056 / 28^2 (Qwen2-VL), longest_edge 16,777,216 / 32^2 (Qwen3-VL). [tokens]"""
_QWEN3_VIDEO_PIXELS = 25_165_824
"""longest_edge of the video processor of Qwen3-VL, over all frames. [pixels]"""
_QWEN3_VIDEO_FRAMES = 24_576
_VIDEO_FRAME_PAIRS = 7
_LLAMA4_TILES = 17
_INTERNVL_TILES = 13
_INTERNVL_TILE_TOKENS = 256
_KIMI_SIDE = 37
_KIMI_PATCH_LIMIT = 16_384
"""in_patch_limit of the image processor of Kimi K2.5. [patches]"""
_LARGEST_GLM_IMAGE = 30_000
"""max_pixels 47,040,000 over two frames and 28^2 pixels a token. [tokens]"""
_LLAVA_NEXT_TILES = 4
_GEMMA4_FRAMES = 32
_GEMMA4_FRAME_TOKENS = 70
_GEMMA4_IMAGE_TOKENS = 280
_GEMMA4_POOLING = 3


class Item(Struct, frozen=True):
    """One largest item."""

    tokens: int
    patches: int
    places: int = 0
    """Places of a request it takes where that is more than its tokens. [tokens]"""

    @property
    def budgeted(self) -> int:
        """What the encoder budget counts for it. [tokens]"""
        return max(self.tokens, self.places)


def largest_item(model: Model, max_model_len: int, videos: bool, video_token_places: float = 1.0) -> Item | None:
    """
    The item an engine profiles a tower with.

    Args:
        model: A model with a vision tower.
        max_model_len: Longest request. [tokens]
        videos: Videos are allowed as well.
        video_token_places: Places counted for a token of a Qwen3-VL video. [tokens]

    Returns:
        Tokens and patches; None when the processor's rule is not known.
    """
    vision = model.vision
    if vision is None:
        return None
    rule = _RULES.get(str(vision.config.get("model_type"))) or _RULES.get(model.model_type)
    if rule is _qwen3 and videos and video_token_places > 1:
        return _qwen3_video(vision, max_model_len, video_token_places)
    if rule is not None:
        return rule(vision, max_model_len, videos)
    if not vision.tokens_per_image:
        return None
    merged = vision.spatial_merge_size * vision.spatial_merge_size
    return Item(vision.tokens_per_image, _grid(vision) or vision.tokens_per_image * merged)


def _grid(vision: Vision) -> int:
    side = vision.image_size // vision.patch_size if vision.patch_size else 0
    return side * side


def _fixed_tile(vision: Vision, _: int, __: bool) -> Item | None:
    return Item(vision.tokens_per_image, _grid(vision)) if vision.tokens_per_image else None


def _pixtral(vision: Vision, _: int, __: bool) -> Item:
    """Every row of the merged grid ends with a break token."""
    side = vision.image_size // vision.patch_size // vision.spatial_merge_size
    return Item(side * (side + 1), _grid(vision))


def _qwen2(vision: Vision, max_model_len: int, videos: bool) -> Item:
    """A video of so many frame pairs as the longest request holds is larger than an image."""
    pairs = min(_VIDEO_FRAME_PAIRS, max(1, max_model_len // _LARGEST_QWEN_IMAGE)) if videos else 1
    return _merged(vision, _LARGEST_QWEN_IMAGE * pairs)


def _qwen3(vision: Vision, _: int, __: bool) -> Item:
    return _merged(vision, _LARGEST_QWEN_IMAGE)


def _qwen3_video(vision: Vision, max_model_len: int, places: float) -> Item:
    """No larger than an image, but with the time of every frame pair written out it takes more of a request."""
    tokens = vision_encoder.largest_video(
        max_model_len=max_model_len,
        max_pixels=_QWEN3_VIDEO_PIXELS,
        factor=vision.patch_size * vision.spatial_merge_size,
        temporal_patch_size=vision.temporal_patch_size,
        max_frames=_QWEN3_VIDEO_FRAMES,
    )
    return replace(_merged(vision, tokens), places=int(tokens * places))


def _merged(vision: Vision, tokens: int) -> Item:
    return Item(tokens, tokens * vision.spatial_merge_size * vision.spatial_merge_size)


def _llama4(vision: Vision, _: int, __: bool) -> Item:
    grid = _grid(vision)
    ratio = float(vision.config.get("pixel_shuffle_ratio", 0.5))
    return Item(_LLAMA4_TILES * int(grid * ratio * ratio), _LLAMA4_TILES * (grid + 1))


def _internvl(vision: Vision, _: int, __: bool) -> Item:
    return Item(_INTERNVL_TILES * _INTERNVL_TILE_TOKENS, _INTERNVL_TILES * (_grid(vision) + 1))


def _gemma4(vision: Vision, _: int, videos: bool) -> Item:
    """Frames of a video are small, but there may be 32 of them, each with 8 tokens around it."""
    pooled = _GEMMA4_POOLING * _GEMMA4_POOLING
    if videos:
        return Item(_GEMMA4_FRAMES * (_GEMMA4_FRAME_TOKENS + 8), _GEMMA4_FRAMES * _GEMMA4_FRAME_TOKENS * pooled)
    tokens = int(vision.config.get("default_output_length") or _GEMMA4_IMAGE_TOKENS)
    return Item(tokens, tokens * pooled)


def _kimi(vision: Vision, _: int, __: bool) -> Item:
    return _merged(vision, _KIMI_SIDE * _KIMI_SIDE)


def _kimi_k25(_: Vision, __: int, ___: bool) -> Item:
    return Item(_KIMI_PATCH_LIMIT // 4, _KIMI_PATCH_LIMIT)


def _glm(vision: Vision, _: int, __: bool) -> Item:
    return _merged(vision, _LARGEST_GLM_IMAGE)


def _llava(vision: Vision, _: int, __: bool) -> Item:
    return Item(_grid(vision), _grid(vision) + 1)


def _llava_next(vision: Vision, _: int, __: bool) -> Item:
    """Two by two tiles with a break after every row of the whole, and the image once more in small."""
    side = 2 * (vision.image_size // vision.patch_size)
    tokens = (1 + _LLAVA_NEXT_TILES) * _grid(vision) + side
    return Item(tokens, (1 + _LLAVA_NEXT_TILES) * (_grid(vision) + 1))


_RULES: dict[str, Callable[[Vision, int, bool], Item | None]] = {
    "siglip_vision_model": _fixed_tile, "gemma3": _fixed_tile, "mistral3": _pixtral,
    "pixtral": _pixtral,
    "qwen2_vl": _qwen2, "qwen2_vl_vision": _qwen2, "qwen2_5_vl": _qwen2, "qwen2_5_vl_vision": _qwen2,
    "qwen3_vl": _qwen3, "qwen3_vl_vision": _qwen3, "qwen3_vl_moe": _qwen3, "qwen3_vl_moe_vision": _qwen3,
    "qwen3_5": _qwen3, "qwen3_5_vision": _qwen3, "qwen3_5_moe": _qwen3, "qwen3_5_moe_vision": _qwen3,
    "llama4_vision_model": _llama4, "llama4": _llama4,
    "internvl_vision": _internvl, "intern_vit_6b": _internvl,
    "gemma4_vision": _gemma4, "gemma4": _gemma4,
    "moonvit": _kimi, "kimi_vl": _kimi, "kimi_k25": _kimi_k25,
    "glm4v": _glm, "glm4v_moe": _glm,
    "llava": _llava, "llava_next": _llava_next,
}  # fmt: skip
"""
By model_type of the vision config, else of the model.

Source: vllm-project/vllm@0.19.0 vllm/model_executor/models/<model>.py ProcessingInfo
"""
