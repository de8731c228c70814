"""What mlx-lm keeps on Apple silicon: weights, a cache that grows in steps, one prefill step."""

from tonnage.units import round_up

STEP = 256


def cache_tokens(*, tokens: int) -> int:
    """
    Tokens a cache has room for: it grows by steps of 256.

    Args:
        tokens: Tokens held. [tokens]

    Returns:
        Room. [tokens]

    Source:
        ml-explore/mlx-lm@d78bf58e mlx_lm/models/cache.py KVCache (step = 256)
    """
    return round_up(tokens, STEP)


def rotating_cache_tokens(*, tokens: int, window: int, prefill_step: int) -> int:
    """
    Tokens a sliding-window cache has room for while prompts are processed in steps.

    Args:
        tokens: Tokens seen. [tokens]
        window: Attention window (max_size). [tokens]
        prefill_step: Tokens of one step. [tokens]

    Returns:
        Room. [tokens]

    Source:
        ml-explore/mlx-lm@d78bf58e mlx_lm/models/cache.py RotatingKVCache (max_size + step - 1 during prefill)
    """
    return min(cache_tokens(tokens=tokens), window + prefill_step - 1)


def prefill_step(*, tokens: int, hidden_size: int, intermediate_size: int, element_bytes: int) -> int:
    """
    Widest moment of one prefill step.

    Args:
        tokens: Tokens of the step. [tokens]
        hidden_size: Width of the stream. [elements]
        intermediate_size: Feed-forward width, of all experts a token uses. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Gate, up and product, and four rows of the stream; lazy evaluation may need less or more. [bytes]

    Source:
        ml-explore/mlx-lm@d78bf58e mlx_lm/generate.py generate_step (prefill_step_size); not measured
    """
    return tokens * element_bytes * (3 * intermediate_size + 4 * hidden_size)


def unfused_scores(*, tokens: int, context_tokens: int, heads: int, element_bytes: int, latent: bool = False) -> int:
    """
    Scores of one layer where no fused kernel takes the heads.

    Args:
        tokens: Tokens of the step. [tokens]
        context_tokens: Tokens attended to. [tokens]
        heads: Query heads. [heads]
        element_bytes: Compute dtype. [bytes]
        latent: Latent attention hands its rotary scores over as a mask of every head. [flag]

    Returns:
        Every head's scores of every pair, twice with a mask of its own. [bytes]

    Source:
        ml-explore/mlx@846d17622 mlx/backend/metal/scaled_dot_product_attention.cpp use_fallback, mlx/fast.cpp fallback;
        ml-explore/mlx-lm@d78bf58e mlx_lm/models/deepseek_v3.py (pe_scores); measured: mlx-lm 1781 (28.5 to 39.8 GB by step), 839
    """
    return (2 if latent else 1) * tokens * context_tokens * heads * element_bytes


def growth_copy(*, layer_bytes: int) -> int:
    """
    Copy of one layer's cache while it is concatenated with the next step's room.

    Args:
        layer_bytes: Keys and values of one layer. [bytes]

    Returns:
        Size. [bytes]

    Source:
        ml-explore/mlx-lm@d78bf58e mlx_lm/models/cache.py KVCache.update_and_fetch (mx.concatenate)
    """
    return layer_bytes
