"""
vLLM's pages for layers that keep a window and, behind it, compressed keys and values (DeepSeek-V4).

Caches of unequal size share a block: the compressed past and its index in blocks of many tokens, the
window in blocks of 64, the open group of the compressor in blocks of 4 or 8 tokens.
"""

from collections.abc import Sequence

from tonnage.units import ceil_div, round_up

WINDOW_BLOCK = 64
"""Tokens of a block of the window. [tokens]"""
_ROW = 584
"""448 fp8 elements, 64 bf16 rotary elements, 8 scales. [bytes]"""
_ALIGNMENT = 576
"""FlashMLA's packing. [bytes]"""
_INDEX_GROUP = 128
"""Index elements with one fp32 scale. [elements]"""


def row_page(*, rows: int) -> int:
    """
    Page of a window, or of compressed keys and values.

    Args:
        rows: Tokens, or compressed groups, of a block. [rows]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.26.0 vllm/v1/kv_cache_interface.py MLAAttentionSpec.real_page_size_bytes
    """
    return round_up(rows * _ROW, _ALIGNMENT)


def index_page(*, rows: int, index_head_dim: int) -> int:
    """
    Page of the index over compressed groups.

    Args:
        rows: Compressed groups of a block. [rows]
        index_head_dim: Width of an index key. [elements]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.26.0 vllm/models/deepseek_v4/attention.py DeepseekV4Indexer (k_cache_head_dim)
    """
    return round_up(rows * (index_head_dim + index_head_dim // _INDEX_GROUP * 4), _ALIGNMENT)


def state_block(*, compress_ratio: int) -> int:
    """
    Tokens of a block of a compressor's open group.

    Args:
        compress_ratio: Tokens of a group. [tokens]

    Returns:
        Block. [tokens]

    Source:
        vllm-project/vllm@0.26.0 vllm/models/deepseek_v4/compressor.py CompressorStateCache
    """
    return 4 if compress_ratio == 4 else 8


def overlap(*, compress_ratio: int) -> int:
    """
    Groups that a compressed row is made of.

    Args:
        compress_ratio: Tokens of a group. [tokens]

    Returns:
        2 for short groups, which overlap, else 1. [groups]

    Source:
        vllm-project/vllm@0.26.0 vllm/models/deepseek_v4/compressor.py CompressorStateCache (coff)
    """
    return 2 if compress_ratio == 4 else 1


def state_page(*, compress_ratio: int, width: int) -> int:
    """
    Page of a compressor's open group: fp32 vectors and their weights.

    Args:
        compress_ratio: Tokens of a group. [tokens]
        width: Width of a compressed row. [elements]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.26.0 vllm/models/deepseek_v4/compressor.py CompressorStateCache
    """
    elements = 2 * overlap(compress_ratio=compress_ratio) * width
    return round_up(state_block(compress_ratio=compress_ratio) * elements * 4, _ALIGNMENT)


def layers_per_group(*, class_layers: Sequence[int], at_least: int) -> int:
    """
    Layers of a group that pad the classes least, the larger one of equals.

    Args:
        class_layers: Layers by class. [layers]
        at_least: Layers of the class that is never cut. [layers]

    Returns:
        Layers. [layers]

    Source:
        vllm-project/vllm@0.26.0 vllm/v1/core/kv_cache_utils.py _approximate_gcd
    """
    sizes = range(at_least, max(class_layers) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in class_layers), -size), default=at_least)


def weighted_blocks(*, class_blocks: Sequence[int], class_bytes: Sequence[int]) -> int:
    """
    Blocks of one request as the log counted them while it weighed classes by their bytes.

    Args:
        class_blocks: Blocks of the request in one group, by class, the uncut class first. [blocks]
        class_bytes: Pages of all layers of a class. [bytes]

    Returns:
        Blocks. [blocks]

    Source:
        vllm-project/vllm@0.26.0 vllm/v1/core/kv_cache_utils.py get_max_concurrency_for_kv_cache_config
    """
    return ceil_div(sum(n * size for n, size in zip(class_blocks, class_bytes, strict=True)), class_bytes[0])
