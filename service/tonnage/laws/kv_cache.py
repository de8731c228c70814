"""Keys and values by kind of attention: bytes per token of one layer on one rank, and tokens a sequence keeps."""

from tonnage.laws.sharding import kv_heads
from tonnage.units import ceil_div


def row(*, elements: int, block_elements: int, block_bytes: int, per_head_bytes: int = 0) -> int:
    """
    One head's key or value of one token in a cache type.

    Args:
        elements: Head size. [elements]
        block_elements: Elements of one block of the type. [elements]
        block_bytes: Size of one block. [bytes]
        per_head_bytes: Scale and zero stored beside each head's row. [bytes]

    Returns:
        Size of the row. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 ggml/src/ggml.c ggml_row_size
    """
    return ceil_div(elements, block_elements) * block_bytes + per_head_bytes


def full_attention(*, num_key_value_heads: int, key_bytes: int, value_bytes: int, tensor_parallel_size: int = 1) -> int:
    """
    Keys and values of one token in one layer (multi-head, grouped-query or multi-query).

    Args:
        num_key_value_heads: KV heads of the layer. [heads]
        key_bytes: One head's key row. [bytes]
        value_bytes: One head's value row. [bytes]
        tensor_parallel_size: Ranks; heads are replicated when there are fewer. [unitless]

    Returns:
        Cache of one token on one rank. [bytes/token]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py FullAttentionSpec.real_page_size_bytes
    """
    heads = kv_heads(num_key_value_heads=num_key_value_heads, tensor_parallel_size=tensor_parallel_size)
    return heads * (key_bytes + value_bytes)


def mla(*, latent_bytes: int, index_key_bytes: int = 0) -> int:
    """
    Compressed latent and shared rotary key of one token; every rank holds the whole of it.

    Args:
        latent_bytes: Row of kv_lora_rank + qk_rope_head_dim elements. [bytes]
        index_key_bytes: Key of the sparse-attention indexer, 0 without one. [bytes]

    Returns:
        Cache of one token on each rank, whatever the tensor parallel size. [bytes/token]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py MLAAttentionSpec (num_kv_heads = 1);
        deepseek-ai DeepSeek-V2 paper (arXiv 2405.04434) table 1
    """
    return latent_bytes + index_key_bytes


def index_key(*, index_head_dim: int, quantization_block: int = 128) -> int:
    """
    Indexer key of one token: fp8 elements and one fp32 scale per block.

    Args:
        index_head_dim: Width of the indexer's key. [elements]
        quantization_block: Elements per scale. [elements]

    Returns:
        Size. [bytes/token]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/models/deepseek_v2.py Indexer (head_dim + head_dim // quant_block_size * 4)
    """
    return index_head_dim + ceil_div(index_head_dim, quantization_block) * 4


def compressed_tokens(*, tokens: int, compress_ratio: int) -> int:
    """
    Entries of a compressed cache: one per group of tokens (DeepSeek-V4).

    Args:
        tokens: Length of the sequence. [tokens]
        compress_ratio: Tokens per entry. [tokens]

    Returns:
        Entries, the last group counted whole. [tokens]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-kv-cache-dsv4.cpp dsv4_comp_size
    """
    return ceil_div(tokens, compress_ratio)


def compressor_state(*, width: int, compress_ratio: int, overlap: int) -> int:
    """
    What the compressor keeps of the group it is filling: values and scores in fp32, of one layer and sequence.

    Args:
        width: Width of a compressed entry. [elements]
        compress_ratio: Tokens per entry. [tokens]
        overlap: Neighbouring groups an entry reads, 1 where groups do not overlap. [unitless]

    Returns:
        State of one sequence. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-kv-cache-dsv4.cpp llama_dsv4_comp_state (2 tensors of F32)
    """
    return 2 * 4 * (overlap * compress_ratio) * (overlap * width)


def sliding_window_tokens(*, tokens: int, window: int) -> int:
    """
    Tokens a sliding-window layer keeps of one sequence, nothing in flight.

    Args:
        tokens: Length of the sequence. [tokens]
        window: Attention window. [tokens]

    Returns:
        Tokens kept; the whole sequence while it is shorter than the window. [tokens]

    Source:
        huggingface/transformers@5.0 src/transformers/cache_utils.py SlidingWindowLayer (keeps the last sliding_window tokens)
    """
    return min(tokens, window)


def chunked_local_tokens(*, tokens: int, chunk: int) -> int:
    """
    Tokens a chunked-local layer can still attend to: those of the current chunk.

    Args:
        tokens: Length of the sequence. [tokens]
        chunk: Length of a chunk. [tokens]

    Returns:
        Most tokens kept at any moment up to that length. [tokens]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py ChunkedLocalAttentionSpec.max_memory_usage_bytes
    """
    return min(tokens, chunk)


def cross_attention_tokens(*, encoder_tokens: int) -> int:
    """
    Tokens the cross-attention of an encoder-decoder keeps: the encoder's, whatever the decoder's length.

    Args:
        encoder_tokens: Length of the encoder's output. [tokens]

    Returns:
        Tokens kept per sequence. [tokens]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/kv_cache_interface.py CrossAttentionSpec.max_memory_usage_bytes
    """
    return encoder_tokens
