"""
Peak of a serving engine's profile run: one forward pass of the largest batch, by the tensors that live at its widest
moment.

`tokens` is the batch, `hidden` the model's width, `width` the MLP's width on this rank. Inputs, outputs and
the residual stream are counted in "streams": tokens x hidden x element_bytes.
"""


def stream(*, tokens: int, hidden_size: int, element_bytes: int) -> int:
    """
    One tensor of the batch as wide as the model.

    Args:
        tokens: Batch. [tokens]
        hidden_size: Width of the model. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Size. [bytes]

    Source:
        shape arithmetic: tokens x hidden_size
    """
    return tokens * hidden_size * element_bytes


def mlp_compiled(
    *, tokens: int, hidden_size: int, width: int, gated: bool, element_bytes: int, l2_cache_bytes: int
) -> int:
    """
    Widest moment of a compiled dense layer: activation of the gate, its inputs and three streams.

    Args:
        tokens: Batch. [tokens]
        hidden_size: Width of the model. [elements]
        width: Width of the MLP on this rank, one half when gated. [elements]
        gated: Gate and up projection side by side.
        element_bytes: dtype of the model. [bytes]
        l2_cache_bytes: L2 cache, flushed by one buffer of its size while the compiler times the kernel; 0 when
            nothing is compiled. [bytes]

    Returns:
        Transient peak. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/models/llama.py LlamaDecoderLayer.forward;
        pytorch/pytorch@2.9 torch/_inductor/runtime/benchmarking.py (L2 flush buffer);
        measured: tests/measured/serving_vllm.json#vllm019-codellama-7b
    """
    halves = 3 if gated else 2
    three_streams = 3 * stream(tokens=tokens, hidden_size=hidden_size, element_bytes=element_bytes)
    return halves * tokens * width * element_bytes + three_streams + l2_cache_bytes


def embedding_benchmark(
    *, vocab_rows: int, hidden_size: int, tokens: int, element_bytes: int, l2_cache_bytes: int
) -> int:
    """
    Arguments that Inductor makes to benchmark the fused kernel that looks tokens up: a second table among them.

    Args:
        vocab_rows: Rows of the table on the rank. [elements]
        hidden_size: Its columns. [elements]
        tokens: Tokens of the profile run. [tokens]
        element_bytes: dtype of the model. [bytes]
        l2_cache_bytes: Buffer that flushes the L2 cache between runs. [bytes]

    Returns:
        Transient size while nothing is cached yet. [bytes]

    Source:
        vllm-project/vllm@0.11.1 vllm/config/compilation.py (combo_kernels, benchmark_combo_kernel);
        pytorch torch/_inductor/codegen/triton.py codegen_kernel_benchmark (get_args); start-up logs of Qwen2.5-7B on RTX 4090
        (1.1 GiB, 0.33 from the cache) and L40S (1.15), Qwen3-8B on RTX 5090 (1.3), Llama-3.1-70B on two RTX 4090 (0.96)
    """
    return (vocab_rows + tokens) * hidden_size * element_bytes + l2_cache_bytes


def mlp_eager(
    *,
    tokens: int,
    hidden_size: int,
    width: int,
    gated: bool,
    element_bytes: int,
    keeps_gate_up: bool,
    reduced_copy: bool = False,
) -> int:
    """
    Widest moment of a dense layer run as written.

    Args:
        tokens: Batch. [tokens]
        hidden_size: Width of the model. [elements]
        width: Width of the MLP on this rank, one half when gated. [elements]
        gated: Gate and up projection side by side.
        element_bytes: dtype of the model. [bytes]
        keeps_gate_up: The model's code keeps gate_up alive during the down projection (Qwen2, Gemma, Granite); Llama,
            Mistral and
            Phi-3 rebind the variable.
        reduced_copy: Several ranks sum the down projection into a new tensor.

    Returns:
        Transient peak. [bytes]

    Source:
        vllm-project/vllm@0.6.4 vllm/model_executor/models/llama.py LlamaMLP.forward, qwen2.py Qwen2MLP.forward;
        measured: tests/measured/serving_vllm.json#vllm-10517-llama31-8b-20k, #vllm07-qwen25-15b-t4;
        vllm/distributed/device_communicators/pynccl.py all_reduce@0.6.6; vllm-project/vllm issue 15815 (1.26 GiB)
    """
    halves = 3 if gated else 2
    streams = (5 if reduced_copy else 4) if keeps_gate_up else 3
    return (halves * width + streams * hidden_size) * tokens * element_bytes


def quantized_input(*, tokens: int, width: int, element_bytes: int = 1) -> int:
    """
    Activations quantized on the fly before a matrix product.

    Args:
        tokens: Batch. [tokens]
        width: Width of the product's input on this rank. [elements]
        element_bytes: dtype of the copy: 1 for fp8 and int8. [bytes]

    Returns:
        Size of the copy. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/quantization/kernels/scaled_mm/cutlass.py apply_weights
        (scaled_int8_quant)
    """
    return tokens * width * element_bytes


def dequantized_matrix(*, rows: int, columns: int, element_bytes: int) -> int:
    """
    A packed matrix written out before it is multiplied with more than one token (bitsandbytes), or with 256 (AWQ).

    Args:
        rows: Output features of the widest matrix that is quantized on its own. [elements]
        columns: Its input features. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Transient size. [bytes]

    Source:
        bitsandbytes-foundation/bitsandbytes bitsandbytes/autograd/_functions.py MatMul4Bit.forward;
        vllm-project/vllm@0.8.5 vllm/model_executor/layers/quantization/bitsandbytes.py apply_bnb_4bit (shards apart),
        layers/quantization/awq.py apply (FP16_MATMUL_HEURISTIC_CONDITION)
    """
    return rows * columns * element_bytes


def split_matmul(*, tokens: int, columns: int, element_bytes: int) -> int:
    """
    A product of AWQ weights that is computed in eight parts of its inner side, and their sum.

    Args:
        tokens: Tokens of the pass. [tokens]
        columns: Output features of the matrix. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Transient size. [bytes]

    Source:
        vllm-project/vllm@0.2.7 vllm/model_executor/layers/quantization/awq.py apply_weights (pack_factor is split_k_iters),
        csrc/quantization/awq/gemm_kernels.cu awq_gemm; issue 2382: Mixtral on two A100, 20 GiB beside the weights
    """
    return (_SPLITS + 1) * tokens * columns * element_bytes


_SPLITS = 8
"""Partial products of an AWQ matrix, as many as values are packed in 32 bits. [unitless]"""


def pipeline_handover(*, tokens: int, hidden_size: int, element_bytes: int) -> int:
    """
    Hidden states and residual that a stage holds for the next one.

    Args:
        tokens: Batch. [tokens]
        hidden_size: Width of the model. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Two streams. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/gpu_model_runner.py intermediate_tensors;
        measured: tests/measured/serving_vllm.json#vllm019-llama31-8b-pp4
    """
    return 2 * stream(tokens=tokens, hidden_size=hidden_size, element_bytes=element_bytes)


def mla_context_projection(
    *, context_tokens: int, heads: int, qk_nope_head_dim: int, v_head_dim: int, element_bytes: int
) -> int:
    """
    Latents of a chunk of context projected up to keys and values, which the profile run allocates once.

    Args:
        context_tokens: Length of the chunk. [tokens]
        heads: Attention heads of this rank. [heads]
        qk_nope_head_dim: Key width without the rotary part. [elements]
        v_head_dim: Value width. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Transient peak of one layer. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/attention/mla_attention.py (profile run: kv_b_proj output
        of chunked_prefill_workspace_size)
    """
    return context_tokens * heads * (qk_nope_head_dim + v_head_dim) * element_bytes


def mla_context_tokens(*, max_model_len: int, max_num_seqs: int, block_size: int, limit: int = 65_536) -> int:
    """
    Context tokens that MLA's chunked prefill works on at once.

    Args:
        max_model_len: Longest request. [tokens]
        max_num_seqs: Running requests. [requests]
        block_size: Cache block. [tokens]
        limit: Cap of the workspace. [tokens]

    Returns:
        Length of a chunk over all requests. [tokens]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/attention/mla_attention.py
        determine_chunked_prefill_workspace_size
    """
    return max(min(8 * max_model_len, 4 * max_num_seqs * block_size, limit), max_num_seqs * block_size)


def indexer_gather(*, max_model_len: int, row_bytes: int, prefills: int = 40) -> int:
    """
    Buffer in which a sparse-attention indexer gathers the keys of a prefill, kept for good.

    Args:
        max_model_len: Longest request. [tokens]
        row_bytes: Indexer key of one token. [bytes]
        prefills: Longest requests it can hold. [requests]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.26.0 vllm/v1/attention/backends/mla/indexer.py get_max_prefill_buffer_size;
        measured: tests/measured/serving_vllm.json#vllm026-glm52-nvfp4-b200
    """
    return prefills * max_model_len * row_bytes


def eager_attention_scores(*, heads: int, tokens: int, element_bytes: int = 4, copies: int = 1) -> int:
    """
    Score matrix of attention without a fused kernel: quadratic in the length.

    Args:
        heads: Attention heads of this rank. [heads]
        tokens: Length of the one request. [tokens]
        element_bytes: dtype of the scores. [bytes]
        copies: Matrices alive at once. [unitless]

    Returns:
        Size. [bytes]

    Source:
        shape arithmetic; measured: tests/measured/serving_vllm.json#gfx906-10-gemma3-27b-awq-8k
    """
    return copies * heads * tokens * tokens * element_bytes


def lora_intermediate(*, tokens: int, max_lora_rank: int, slices: int = 3, element_bytes: int = 4) -> int:
    """
    Shrunk activations of the widest packed adapter (q, k and v).

    Args:
        tokens: Batch. [tokens]
        max_lora_rank: Rank of the slots. [elements]
        slices: Projections packed together. [unitless]
        element_bytes: dtype of the buffer: fp32. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.10.2 vllm/lora/punica_wrapper/punica_gpu.py add_lora_linear (buffer, float32)
    """
    return slices * tokens * max_lora_rank * element_bytes


def normed_stream(*, rows: int, hidden_size: int, element_bytes: int) -> int:
    """
    Hidden rows of a prompt and their normalised copy, before the head takes them.

    Args:
        rows: Tokens of the batch. [tokens]
        hidden_size: Width of the residual stream. [elements]
        element_bytes: Width of its elements. [bytes]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/models/llama/modeling_llama.py LlamaModel.forward (self.norm)
    """
    return rows * 2 * element_bytes * hidden_size
