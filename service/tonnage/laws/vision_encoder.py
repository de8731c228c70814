"""Vision towers in a profile run: how many items, what their pixels and features take, and the tower's own widest moment."""

from math import isqrt

from tonnage.units import ceil_div

ROTATED_COPIES = 99
"""Tensors of one rank's heads, in tenths: q, k, v, both rotated and what rotating takes. [tenths]"""


def patches(*, height: int, width: int, patch_size: int, spatial_merge_size: int) -> int:
    """
    Patches of an image whose sides are rounded to whole merged patches.

    Args:
        height: Of the image. [pixels]
        width: Of the image. [pixels]
        patch_size: Side of a patch. [pixels]
        spatial_merge_size: Patches a side of one token. [unitless]

    Returns:
        Patches, at least one token's. [unitless]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/models/qwen2_vl/image_processing_qwen2_vl.py smart_resize
    """
    factor = patch_size * spatial_merge_size
    rows, columns = (max(1, (side + factor // 2) // factor) for side in (height, width))
    return rows * columns * spatial_merge_size * spatial_merge_size


def items(*, budget: int, tokens_per_item: int, max_num_seqs: int, limit: int, max_model_len: int) -> int:
    """
    Items of the largest kind that one encoder batch is profiled with.

    Args:
        budget: max_num_batched_tokens. [tokens]
        tokens_per_item: Tokens one largest item becomes. [tokens]
        max_num_seqs: Running requests. [requests]
        limit: Items per prompt. [unitless]
        max_model_len: Longest request. [tokens]

    Returns:
        Items, at least one. [unitless]

    Source:
        vllm-project/vllm@0.19.0 vllm/multimodal/encoder_budget.py MultiModalBudget._get_max_items
    """
    by_budget = max(budget, tokens_per_item) // tokens_per_item
    by_prompt = max_num_seqs * min(limit, max(max_model_len // tokens_per_item, 1))
    return max(1, min(by_budget, by_prompt))


def features(*, tokens: int, output_size: int, element_bytes: int) -> int:
    """
    Encoder outputs, kept while the language model is profiled.

    Args:
        tokens: Tokens of all profiled items. [tokens]
        output_size: Width of a feature. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/gpu_model_runner.py profile_run (encoder_cache)
    """
    return tokens * output_size * element_bytes


def filled_features(*, items: int, budget: int, tokens_per_item: int, output_size: int, element_bytes: int) -> int:
    """
    Copies of the encoder's outputs, each in a tensor as long as the encoder budget, that stand beside them.

    Args:
        items: Profiled items. [unitless]
        budget: max_num_batched_tokens, or what one item takes of a request where that is more. [tokens]
        tokens_per_item: Features of one item. [tokens]
        output_size: Width of a feature. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Size; 0 where an item fills the budget. [bytes]

    Source:
        vllm-project/vllm@0.11.0 vllm/v1/worker/gpu_model_runner.py profile_run (expanded_outputs)
    """
    return items * budget * output_size * element_bytes if tokens_per_item < budget else 0


def largest_video(
    *, max_model_len: int, max_pixels: int, factor: int, temporal_patch_size: int, max_frames: int
) -> int:
    """
    Tokens of the video with the most frames that a request holds, whose pixels have a limit over all frames.

    A request that holds the three frames of the widest rounding holds any more frames, down to one token a frame pair.

    Args:
        max_model_len: Longest request. [tokens]
        max_pixels: Limit over all frames. [pixels]
        factor: Side of a token. [pixels]
        temporal_patch_size: Frames of a token. [unitless]
        max_frames: Frames of a video at most. [unitless]

    Returns:
        Tokens. [unitless]

    Source:
        vllm-project/vllm@0.11.0 vllm/model_executor/models/qwen3_vl.py get_num_frames_with_most_features;
        huggingface/transformers@v4.57.1 src/transformers/models/qwen3_vl/video_processing_qwen3_vl.py smart_resize
    """

    def tokens(frames: int) -> int:
        side = max(1, isqrt(max_pixels // frames) // factor)
        return ceil_div(frames, temporal_patch_size) * side * side

    return tokens(temporal_patch_size if max_model_len < tokens(temporal_patch_size + 1) else max_frames)


def pixels(*, patches: int, patch_size: int, temporal_patch_size: int, element_bytes: int, channels: int = 3) -> int:
    """
    Pixels of the profiled items.

    Args:
        patches: Patches over all items. [unitless]
        patch_size: Side of a patch. [pixels]
        temporal_patch_size: Frames of a patch. [unitless]
        element_bytes: dtype of the model. [bytes]
        channels: Colours. [unitless]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/gpu_model_runner.py _get_mm_dummy_batch
    """
    return patches * channels * patch_size * patch_size * temporal_patch_size * element_bytes


def tower_mlp(*, patches: int, hidden_size: int, width: int, gated: bool, element_bytes: int) -> int:
    """
    Widest moment of the tower's MLP: stream, residual, and the halves with their product.

    Args:
        patches: Patches over all items. [unitless]
        hidden_size: Width of the tower. [elements]
        width: Width of its MLP on this rank. [elements]
        gated: Gate and up projection.
        element_bytes: dtype of the model. [bytes]

    Returns:
        Transient peak. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/models/siglip.py SiglipMLP, qwen2_5_vl.py Qwen2_5_VisionMLP
    """
    return patches * element_bytes * (2 * hidden_size + (3 if gated else 2) * width)


def tower_attention(
    *, patches: int, hidden_size: int, tensor_parallel_size: int, rotary: bool, element_bytes: int
) -> int:
    """
    Widest moment of the tower's attention: stream and residual, q, k, v, their rotated copies and the output.

    Args:
        patches: Patches over all items. [unitless]
        hidden_size: Width of the tower. [elements]
        tensor_parallel_size: Ranks that share the heads. [unitless]
        rotary: Rotary positions: q and k are put together and copied; 12.9 tensors in all.
        element_bytes: dtype of the model. [bytes]

    Returns:
        Transient peak. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/models/qwen2_5_vl.py Qwen2_5_VisionAttention.forward; measured:
        start-up logs of Qwen3.5-9B (0.19.0, L40S: 12.7), Qwen3.5-4B (0.22.0, L40S: 12.8), Qwen2.5-VL-7B (0.23.0,
        A100: 13.0)
    """
    if rotary:
        return patches * element_bytes * (3 * hidden_size + ROTATED_COPIES * hidden_size // (10 * tensor_parallel_size))
    return patches * element_bytes * (hidden_size + 4 * hidden_size // tensor_parallel_size)
