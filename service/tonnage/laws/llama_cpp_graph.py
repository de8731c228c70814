"""
Compute buffer of a llama.cpp device: the widest moment of the graph for one micro-batch.

The buffer holds either the inputs and the widest layer or the output rows, whichever is larger. Widths are
fp32 elements per token; the forms are the live tensors of the graph at that moment, ggml's allocator
reusing what is free.
"""

F32 = 4


def feed_forward(
    *, hidden_size: int, intermediate_size: int, attention_width: int, gated: bool = True, hidden_rows: int = 2
) -> int:
    """
    Live elements of a dense feed-forward: gate, up and their product beside the residual, the input and the attention output.

    Args:
        hidden_size: n_embd. [elements]
        intermediate_size: n_ff. [elements]
        attention_width: Heads x value head size; 0 where the allocator reuses that block. [elements]
        gated: Gate and up are multiplied; else one product, activated in place. [flag]
        hidden_rows: Residual and input; 1 where gated attention leaves its input's block to the residual. [unitless]

    Returns:
        Width of the stage. [elements/token]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-graph.cpp build_ffn; dry runs in tests/measured/llama_cpp_buffers.json
    """
    return (3 if gated else 1) * intermediate_size + hidden_rows * hidden_size + attention_width


def experts(
    *,
    hidden_size: int,
    experts_per_token: int,
    expert_intermediate_size: int,
    attention_width: int,
    hidden_rows: int = 2,
) -> int:
    """
    Live elements of a mixture of experts: gate, up and product of every expert a token uses.

    The gate's rows take the freed attention output where they are narrower; the experts' outputs take the
    freed gate and up where these are wide enough, else they come on top.

    Args:
        hidden_size: n_embd. [elements]
        experts_per_token: Experts used per token. [unitless]
        expert_intermediate_size: Width of one expert. [elements]
        attention_width: Heads x value head size; 0 where the allocator reuses that block. [elements]
        hidden_rows: Residual and input; 1 with gated attention. [unitless]

    Returns:
        Width of the stage. [elements/token]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-graph.cpp build_moe_ffn; dry runs in tests/measured/llama_cpp_buffers.json
    """
    used = experts_per_token * expert_intermediate_size
    outputs = experts_per_token * hidden_size
    rows = 2 if used < attention_width else 3
    return rows * used + hidden_rows * hidden_size + attention_width + (outputs if 2 * used < outputs else 0)


def raw_input(*, hidden_size: int) -> int:
    """
    Embedded tokens and raw embeddings: newer graphs hold both as inputs, whichever a batch brings.

    Args:
        hidden_size: n_embd. [elements]

    Returns:
        Two rows of the stream. [bytes/token]

    Source:
        ggml-org/llama.cpp b11434 src/llama-graph.cpp build_inp_embd; dry runs in tests/measured/llama_cpp_buffers_b11434.json
    """
    return 2 * F32 * hidden_size


def attention(
    *,
    hidden_size: int,
    attention_width: int,
    score_cells: int,
    num_attention_heads: int,
    gated: bool = False,
    reused: bool = False,
    copied: bool = False,
) -> int:
    """
    Live elements of attention; without flash attention the scores of every head over all cells.

    Args:
        hidden_size: n_embd. [elements]
        attention_width: Heads x value head size. [elements]
        score_cells: Cells the scores span; 0 with flash attention. [cells]
        num_attention_heads: Query heads. [heads]
        gated: A gate as wide as the output waits beside the scores, and beside copies of the cache its interleaved query and
            gate too (Qwen3-Next, Qwen3.5). [flag]
        reused: Newer builds put the output into the block of a residual that it fits exactly. [flag]
        copied: Flash attention reads f16 copies of a quantized cache, which stand in the buffer. [flag]

    Returns:
        Width of the stage. [elements/token]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-graph.cpp build_attn_mha; dry runs in tests/measured/llama_cpp_buffers_b11434.json
    """
    rows = (3 if score_cells else 5 if copied else 2) if gated else 2
    if reused and attention_width == hidden_size:
        rows -= 1
    return 2 * hidden_size + rows * attention_width + num_attention_heads * score_cells


def latent_attention(
    *,
    hidden_size: int,
    num_attention_heads: int,
    query_head_dim: int,
    latent_dim: int,
    score_cells: int,
    hidden_rows: int = 3,
) -> int:
    """
    Live elements of multi-head latent attention: queries before and after absorption, and the latent output.

    Args:
        hidden_size: n_embd. [elements]
        num_attention_heads: Query heads. [heads]
        query_head_dim: nope + rope. [elements]
        latent_dim: kv_lora_rank + rope. [elements]
        score_cells: Cells the scores span; 0 with flash attention. [cells]
        hidden_rows: Rows of the stream; 2 where the input has blocks of its own. [unitless]

    Returns:
        Width of the stage. [elements/token]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/models/deepseek2.cpp build_arch_graph
    """
    return hidden_rows * hidden_size + num_attention_heads * (query_head_dim + 2 * latent_dim + score_cells)


def selective_scan(*, projected_width: int, conv_channels: int, inner_size: int) -> int:
    """
    Live elements of a Mamba mixer: the projection, the convolution's input and output, and three inner rows.

    Args:
        projected_width: Rows of the input projection. [elements]
        conv_channels: Channels of the convolution. [elements]
        inner_size: Inner stream. [elements]

    Returns:
        Width of the stage. [elements/token]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/models/mamba-base.cpp; dry runs in tests/measured/llama_cpp_buffers.json
    """
    return projected_width + 2 * conv_channels + 3 * inner_size


def mask(*, cells: int, flash_attention: bool, separate_f32: bool) -> int:
    """
    Attention mask of one cache for one token.

    Args:
        cells: Cells of the cache. [cells]
        flash_attention: Flash attention reads f16, plain attention f32. [flag]
        separate_f32: Builds before 2026-05-28 keep the f32 input beside its f16 copy. [flag]

    Returns:
        Size. [bytes/token]

    Source:
        ggml-org/llama.cpp PR 23764 (f16 mask as input); llama-cpp-python 0.3.16 src/llama-graph.cpp build_attn_inp_kv_unified
    """
    if not flash_attention:
        return 4 * cells
    return (6 if separate_f32 else 2) * cells


def transposed_value_indices(*, num_key_value_heads: int, value_head_dim: int) -> int:
    """
    Row numbers that scatter a token's values into the transposed V cache (no flash attention).

    Args:
        num_key_value_heads: KV heads. [heads]
        value_head_dim: Width of a value head. [elements]

    Returns:
        One 64-bit index per value element and cache. [bytes/token]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-kv-cache.cpp build_input_v_idxs
    """
    return 8 * num_key_value_heads * value_head_dim


def layer_stage(*, tokens: int, input_bytes: int, elements: int, state_bytes: int = 0) -> int:
    """
    Buffer while the widest layer runs.

    Args:
        tokens: Micro-batch, at most the context. [tokens]
        input_bytes: Masks and indices of one token. [bytes/token]
        elements: Widest stage of the layer. [elements/token]
        state_bytes: Recurrent states of all slots gathered for the layer. [bytes]

    Returns:
        Size. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-context.cpp sched_reserve (worst-case graph of one micro-batch)
    """
    return tokens * (input_bytes + F32 * elements) + state_bytes


def output_rows(*, tokens: int, slots: int, draft_tokens: int, every_token: bool) -> int:
    """
    Rows the output matrix is reserved for.

    Args:
        tokens: Micro-batch, at most the context. [tokens]
        slots: Parallel sequences. [sequences]
        draft_tokens: Draft tokens verified per slot. [tokens]
        every_token: Embeddings, llama-cli, and every build before 2026-06. [flag]

    Returns:
        Rows. [tokens]

    Source:
        ggml-org/llama.cpp PR 23861 (n_outputs_max); @0c1e57098 tools/server/server-context.cpp output_limits
    """
    return tokens if every_token else min(tokens, slots * (1 + draft_tokens))


def output_stage(*, rows: int, vocab_size: int, hidden_size: int) -> int:
    """
    Buffer while the logits are made: the normed rows and their logits.

    Args:
        rows: Output rows. [tokens]
        vocab_size: n_vocab. [elements]
        hidden_size: n_embd. [elements]

    Returns:
        Size. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/models/llama.cpp (result_norm, result_output); CUDA log 300.75 MiB of LLamaSharp 1099
    """
    return F32 * rows * (vocab_size + hidden_size)


def host_buffer(*, tokens: int, hidden_size: int, mask_bytes: int, index_bytes: int, copies: int = 2) -> int:
    """
    Pinned host buffer beside a fully offloaded model: embedded tokens and masks on their way to the device.

    Args:
        tokens: Micro-batch. [tokens]
        hidden_size: n_embd. [elements]
        mask_bytes: Masks of one token. [bytes/token]
        index_bytes: Indices of one token. [bytes/token]
        copies: Embedded rows held (1 in builds before 2026-05). [unitless]

    Returns:
        Size. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 ggml/src/ggml-backend.cpp ggml_backend_sched; CUDA logs 12.01 and 2408 MiB
    """
    return tokens * (copies * F32 * hidden_size + mask_bytes + index_bytes + 4)


def output_buffer(*, slots: int, vocab_size: int, hidden_size: int = 0) -> int:
    """
    Host rows the caller reads logits (or embeddings) from.

    Args:
        slots: Parallel sequences. [sequences]
        vocab_size: n_vocab. [elements]
        hidden_size: n_embd when embeddings are returned, else 0. [elements]

    Returns:
        Size. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-context.cpp output_reserve
    """
    return F32 * slots * (vocab_size + hidden_size)


def pipeline_copies(
    *, tokens: int, input_bytes: int, hidden_size: int, first: bool, raw_input: bool = False, copies: int = 4
) -> int:
    """
    Copies that the scheduler keeps to overlap devices: of masks and indices, and of what arrives from elsewhere.

    Args:
        tokens: Micro-batch. [tokens]
        input_bytes: Masks and indices of one token, one copy being in the buffer already. [bytes/token]
        hidden_size: n_embd. [elements]
        first: The first device receives embedded tokens; later ones the residual and the layer's input. [flag]
        raw_input: Newer graphs bring two rows of raw input to the first device, copied likewise, and keep one more. [flag]
        copies: GGML_SCHED_MAX_COPIES. [unitless]

    Returns:
        Growth of the device's buffer. [bytes]

    Source:
        ggml-org/llama.cpp@0c1e57098 ggml/src/ggml-backend.cpp ggml_backend_sched_split_graph; dry runs on three devices in
        tests/measured/llama_cpp_buffers.json
    """
    rows = copies * (1 if first else 2)
    if first and raw_input:
        rows += 2 * copies + 1
    return tokens * ((copies - 1) * input_bytes + rows * F32 * hidden_size)
