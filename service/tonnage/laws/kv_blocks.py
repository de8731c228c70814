"""
vLLM's block pool: how layers of different kinds share blocks, how many blocks a pool holds, what a request takes.

A "class" is a set of layers with the same cache specification. Classes are cut into groups of equal
size; one block backs one layer of every group position, so a block costs page x group size.
"""

from collections.abc import Sequence

from tonnage.units import ceil_div, round_up


def page(*, block_size: int, bytes_per_token: int) -> int:
    """
    One layer's part of one block.

    Args:
        block_size: Tokens of a block. [tokens]
        bytes_per_token: Keys and values of one token in the layer on this rank. [bytes/token]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py AttentionSpec.page_size_bytes
    """
    return block_size * bytes_per_token


def group_size(*, class_layers: Sequence[int]) -> int:
    """
    Layers of every group: the smaller class's, or the larger's when it is less than half as large again.

    Args:
        class_layers: Layers by class, over all pipeline stages. [layers]

    Returns:
        Layers of a group. [layers]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size
    """
    smallest, largest = min(class_layers), max(class_layers)
    return largest if 2 * largest < 3 * smallest else smallest


def group_count(*, layers: int, group_size: int) -> int:
    """
    Groups a class is cut into, the last one padded.

    Args:
        layers: Layers of the class. [layers]
        group_size: Layers of a group. [layers]

    Returns:
        Groups. [unitless]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size
    """
    return ceil_div(layers, group_size)


def blocks(*, pool: int, page_bytes: int, group_size: int) -> int:
    """
    Blocks of a pool.

    Args:
        pool: Cache memory of this rank. [bytes]
        page_bytes: One layer's part of a block. [bytes]
        group_size: Layers of the largest group on this rank. [layers]

    Returns:
        Whole blocks, 0 for a pool that holds none. [blocks]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/core/kv_cache_utils.py get_num_blocks (two floors)
    """
    return max(pool // page_bytes // group_size, 0)


def full_attention_blocks(*, tokens: int, block_size: int) -> int:
    """
    Blocks one request takes in a group of full-attention layers.

    Args:
        tokens: Length of the request. [tokens]
        block_size: Tokens of a block. [tokens]

    Returns:
        Blocks. [blocks]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py FullAttentionSpec.max_memory_usage_bytes
    """
    return ceil_div(tokens, block_size)


def sliding_window_blocks(*, tokens: int, window: int, in_flight_tokens: int, block_size: int) -> int:
    """
    Blocks one request takes in a group of sliding-window layers, the tokens in flight included.

    Args:
        tokens: Length of the request. [tokens]
        window: Attention window. [tokens]
        in_flight_tokens: Tokens scheduled at once, over all batches under way. [tokens]
        block_size: Tokens of a block. [tokens]

    Returns:
        Blocks, one more because a window need not begin at a block. [blocks]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py SlidingWindowSpec.max_memory_usage_bytes
    """
    return ceil_div(min(window - 1 + in_flight_tokens, tokens), block_size) + 1


def chunked_local_blocks(*, tokens: int, chunk: int, in_flight_tokens: int, block_size: int) -> int:
    """
    Blocks one request takes in a group of chunked-local layers.

    Args:
        tokens: Length of the request. [tokens]
        chunk: Length of a chunk. [tokens]
        in_flight_tokens: Tokens scheduled at once, over all batches under way. [tokens]
        block_size: Tokens of a block. [tokens]

    Returns:
        Blocks. [blocks]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py ChunkedLocalAttentionSpec.max_memory_usage_bytes
    """
    return ceil_div(min(chunk + in_flight_tokens, tokens), block_size)


def recurrent_blocks(*, spare_states: int = 0) -> int:
    """
    Blocks one request takes in a group of recurrent layers, whatever its length.

    Args:
        spare_states: States beside the one in use: one per draft token, one that the prefix cache keeps. [states]

    Returns:
        Blocks. [blocks]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py MambaSpec.max_memory_usage_bytes (mamba_cache_mode none, align)
    """
    return 1 + spare_states


def hybrid_block_size(*, state_bytes: int, bytes_per_token: int, align: int) -> int:
    """
    Block of attention layers beside recurrent ones, grown until a block holds a whole state.

    Args:
        state_bytes: State of one sequence in one recurrent layer on this rank. [bytes]
        bytes_per_token: Keys and values of one token in one attention layer on this rank. [bytes/token]
        align: Block alignment of the attention kernel. [tokens]

    Returns:
        Tokens of a block. [tokens]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/models/config.py
        HybridAttentionMambaModelConfig.verify_and_update_config;
        measured: tests/measured/serving_vllm.json#vllm-28228-kimi-linear-tp2
    """
    return round_up(ceil_div(state_bytes, bytes_per_token), align)


def printed_by_group(*, blocks: int, groups: int, block_size: int) -> int:
    """
    "GPU KV cache size" up to 0.20.0: blocks shared out over the groups.

    Args:
        blocks: Blocks of the pool. [blocks]
        groups: Groups of the model. [unitless]
        block_size: Smallest block of the groups. [tokens]

    Returns:
        Tokens. [tokens]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/core/kv_cache_utils.py _report_kv_cache_config
    """
    return blocks // groups * block_size


def printed_by_concurrency(*, concurrency: float, max_model_len: int) -> int:
    """
    "GPU KV cache size" from 0.20.1: requests of the longest length times that length.

    Args:
        concurrency: Requests of max_model_len that fit at once. [requests]
        max_model_len: Longest request. [tokens]

    Returns:
        Tokens. [tokens]

    Source:
        vllm-project/vllm@0.20.2 vllm/v1/core/kv_cache_utils.py get_kv_cache_capacity
    """
    return int(concurrency * max_model_len)
