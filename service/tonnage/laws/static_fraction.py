"""How SGLang chooses mem_fraction_static, and what of its pool goes to windows and recurrent states."""

from tonnage.units import GiB


def by_ranks_and_board(*, fraction: float, board: int) -> float:
    """
    Fraction of a rank count on boards above 96 GiB, where the rest would be more than graphs and activations need.

    Args:
        fraction: Fraction by ranks alone. [fraction]
        board: Board as nvidia-smi prints it. [bytes]

    Returns:
        Fraction. [fraction]

    Source:
        sgl-project/sglang@0.4.6.post5 python/sglang/srt/server_args.py __post_init__
    """
    if board <= 96 * GiB:
        return fraction
    return min(fraction + 48 * GiB * (1 - fraction) / board, (board - 18 * GiB) / board)


def from_reserve(*, board: int, reserve: int) -> float:
    """
    What a reserve leaves of the board, to three decimals.

    Args:
        board: Board as nvidia-smi prints it. [bytes]
        reserve: Kept for graphs and activations. [bytes]

    Returns:
        Fraction. [fraction]

    Source:
        sgl-project/sglang@0.5.8 python/sglang/srt/server_args.py _handle_gpu_memory_settings
    """
    return round((board - reserve) / board, 3)


def vision_tower(*, factor: float, layers: int, hidden_size: int) -> float:
    """
    What a multimodal model multiplies its fraction with: less for towers larger than ViT-L.

    Args:
        factor: Factor of a ViT-L. [fraction]
        layers: Layers of the tower. [layers]
        hidden_size: Width of the tower. [elements]

    Returns:
        Factor. [fraction]

    Source:
        sgl-project/sglang@0.5.17 python/sglang/srt/server_args.py adjust_mem_fraction_for_vlm
    """
    complexity = layers * hidden_size * hidden_size / (24 * 1024 * 1024)
    return factor * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def tokens(*, pool: int, token_bytes: float, page_size: int = 1) -> int:
    """
    Tokens of a pool, whole pages.

    Args:
        pool: Cache memory. [bytes]
        token_bytes: Cache of one token over all layers of the rank. [bytes/token]
        page_size: Tokens of a page. [tokens]

    Returns:
        Tokens. [tokens]

    Source:
        sgl-project/sglang@0.5.8 python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py
        profile_max_num_token, init_memory_pool
    """
    return max(0, int(pool // token_bytes) // page_size * page_size) if token_bytes else 0


def windowed_token(*, full_bytes: int, sliding_bytes: int, ratio: float) -> float:
    """
    Cache that one token of the full-attention layers costs once sliding-window layers have a smaller pool of their own.

    Args:
        full_bytes: Cache of one token over the full-attention layers of the rank. [bytes/token]
        sliding_bytes: Cache of one token over the sliding-window layers of the rank. [bytes/token]
        ratio: Tokens of a sliding-window layer for one of a full layer. [fraction]

    Returns:
        Bytes per token of the full layers, which is what the log counts. [bytes/token]

    Source:
        sgl-project/sglang@0.5.12 python/sglang/srt/model_executor/pool_configurator.py HybridSWAPoolConfigurator;
        gemma-4-E4B on GB10: 28,672 and 71,680 bytes, 997,846 tokens in 79.94 GiB
    """
    return full_bytes + ratio * sliding_bytes if full_bytes else float(sliding_bytes)


def compressed_token(
    *,
    latent_bytes: int,
    state_width: int,
    window: int,
    ratio: float,
    windowed_layers: int,
    compressions: tuple[tuple[int, int, int], ...],
    speculative: bool,
) -> float:
    """
    Cache that one token of a model with compressed latents (DeepSeek-V4) costs.

    Every layer keeps its window, which is `ratio` of all tokens; compressed layers keep an entry for every few tokens,
    index keys with it, and a ring of uncompressed states for every window page.

    Args:
        latent_bytes: One latent as stored. [bytes/token]
        state_width: Width of a compressor's state. [elements]
        window: Sliding window. [tokens]
        ratio: Tokens of the windows for one of all. [fraction]
        windowed_layers: Entries of compress_ratios, the prediction layer among them. [layers]
        compressions: (tokens of an entry, layers, width of an index key or 0) by kind of layer.
        speculative: A draft is used: rings are twice as long and one more layer is held.

    Returns:
        Bytes per token. [bytes/token]

    Source:
        sgl-project/sglang@0.5.12 python/sglang/srt/model_executor/pool_configurator.py DSV4PoolConfigurator
        _get_bytes_per_full_token; a log of DeepSeek-V4-Flash prints bytes_per_full_token=15955.85
    """
    size = ratio * latent_bytes * windowed_layers
    for tokens, layers, index_width in compressions:
        overlap, ring = (2, 2 * tokens) if index_width else (1, tokens)
        states = 2 * overlap * (state_width + index_width) * _STATE_BYTES
        entry = latent_bytes + (index_width + index_width // _INDEX_BLOCK * _SCALE_BYTES if index_width else 0)
        pages = ratio * ring * (2 if speculative else 1) / window
        size += layers * (entry / tokens + pages * states)
    return size * (windowed_layers + 1) / windowed_layers if speculative else size


_STATE_BYTES = 4
_SCALE_BYTES = 4
"""Compressor states and scales of index keys are fp32. [bytes]"""
_INDEX_BLOCK = 128
"""Elements of an index key that share a scale. [elements]"""


def state_slots(*, pool: int, state_bytes: int, ratio: float) -> int:
    """
    Recurrent states of a hybrid model's pool.

    Args:
        pool: Cache memory for states and keys together. [bytes]
        state_bytes: State of one sequence over all layers of the rank. [bytes]
        ratio: Memory of states for one byte of keys and values. [fraction]

    Returns:
        Slots. [unitless]

    Source:
        sgl-project/sglang@0.5.8 python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py handle_max_mamba_cache
    """
    return max(0, int(pool * ratio / (1 + ratio)) // state_bytes)


def running_requests(*, tokens: int, context: int, per_context: int, least: int, most: int) -> int:
    """
    Requests that may run at once by default.

    Args:
        tokens: Tokens of the pool. [tokens]
        context: Longest request. [tokens]
        per_context: Requests for every context that fits. [requests]
        least: Lower bound. [requests]
        most: Upper bound. [requests]

    Returns:
        Requests. [requests]

    Source:
        sgl-project/sglang@0.5.8 python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py init_memory_pool
    """
    return min(max(tokens * per_context // context, least), most)


def decode_capture_sizes(*, largest: int) -> tuple[int, ...]:
    """
    Batch sizes captured for decoding.

    Args:
        largest: cuda_graph_max_bs. [requests]

    Returns:
        Sizes, ascending. [requests]

    Source:
        sgl-project/sglang@0.5.17 python/sglang/srt/server_args.py _generate_decode_cuda_graph_batch_sizes
    """
    sizes = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32))
    kept = tuple(size for size in sizes if size <= largest)
    return kept if largest in kept else (*kept, largest)


def prefill_capture_sizes(*, largest: int) -> tuple[int, ...]:
    """
    Token counts captured for prefill.

    Args:
        largest: Chunk of a prefill. [tokens]

    Returns:
        Sizes, ascending. [tokens]

    Source:
        sgl-project/sglang@0.5.17 python/sglang/srt/server_args.py _generate_prefill_cuda_graph_batch_sizes
    """
    sizes = (
        *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64),
        *range(1280, 4097, 256), *range(4608, largest + 1, 512),
    )  # fmt: skip
    return tuple(size for size in sizes if size <= largest)
