"""KV cells and recurrent slots as llama.cpp allocates them: the whole context at once, padded."""

from tonnage.units import round_up


def context_cells(*, context_tokens: int, padding: int = 256) -> int:
    """
    Cells of the whole context.

    Args:
        context_tokens: -c, the total over all slots. [tokens]
        padding: 256 (builds before 2025-11 without flash attention: 32). [cells]

    Returns:
        Context rounded up. [cells]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-context.cpp llama_context (GGML_PAD(n_ctx, 256))
    """
    return round_up(context_tokens, padding)


def stream_cells(*, context_cells: int, sequences: int, unified: bool, padding: int = 256) -> int:
    """
    Cells of one stream: slots share one stream when unified, else each has its own.

    Args:
        context_cells: Cells of the whole context. [cells]
        sequences: Slots (-np). [sequences]
        unified: One stream for all slots (-kvu). [flag]
        padding: Rounding of a stream. [cells]

    Returns:
        Cells of one stream; not unified, the streams may add up to more than the context. [cells]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-context.cpp llama_context (n_ctx_seq)
    """
    return context_cells if unified else round_up(context_cells // sequences, padding)


def sliding_cells(
    *, stream_cells: int, window: int, sequences: int, unified: bool, micro_batch_tokens: int, padding: int = 256
) -> int:
    """
    Cells of one stream of a sliding-window layer: the window of every slot it holds, and one micro-batch in flight.

    Args:
        stream_cells: Cells of a full-attention stream. [cells]
        window: Attention window. [tokens]
        sequences: Slots. [sequences]
        unified: One stream for all slots. [flag]
        micro_batch_tokens: -ub. [tokens]
        padding: Rounding. [cells]

    Returns:
        Cells, never more than a full layer's rounded up. [cells]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-kv-cache-iswa.cpp llama_kv_cache_iswa (size_swa)
    """
    kept = window * (sequences if unified else 1) + micro_batch_tokens
    return round_up(min(stream_cells, kept), padding)


def layer(*, cells: int, streams: int, key_row_bytes: int, value_row_bytes: int) -> int:
    """
    Keys and values of one layer over all streams.

    Args:
        cells: Cells of one stream. [cells]
        streams: One when unified, else the slots. [unitless]
        key_row_bytes: Keys of all KV heads of one token in the cache type. [bytes]
        value_row_bytes: Values of all KV heads of one token; 0 for MLA, which caches one latent row. [bytes]

    Returns:
        Cache of the layer. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-kv-cache.cpp llama_kv_cache (ggml_new_tensor_3d of k and v)
    """
    return streams * cells * (key_row_bytes + value_row_bytes)


def recurrent(*, state_bytes: int, sequences: int, draft_tokens: int = 0) -> int:
    """
    Recurrent state of one layer: fp32, by slot, independent of the context.

    Args:
        state_bytes: Convolution and matrix state of one sequence. [bytes]
        sequences: Slots. [sequences]
        draft_tokens: Draft tokens of a speculative head; each needs a snapshot to roll back to. [tokens]

    Returns:
        State of the layer. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-memory-recurrent.cpp llama_memory_recurrent; common/common.h need_n_rs_seq
    """
    return state_bytes * sequences * (1 + draft_tokens)


def dequantized_staging(*, cells: int, num_key_value_heads: int, key_head_dim: int, value_head_dim: int) -> int:
    """
    f16 copy of one layer's cache that CUDA flash attention makes when it reads a quantized cache.

    Args:
        cells: Cells in use. [cells]
        num_key_value_heads: KV heads. [heads]
        key_head_dim: Width of a key head. [elements]
        value_head_dim: Width of a value head. [elements]

    Returns:
        Growth of the CUDA pool at run time; no log line shows it. [bytes]

    Source:
        ggml-org/llama.cpp PR 23861 (idle 7981, peak 8275 MiB at 145041 tokens, q8_0: 294 against 293 by this form)
    """
    return cells * num_key_value_heads * (key_head_dim + value_head_dim) * 2
