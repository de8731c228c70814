"""
Live tensors of Hugging Face generate(): one batch, weights and caches resident, the widest moment of a layer.

Widths are bytes per token of the prompt and sequence of the batch, for activations of `element_bytes`.
The embedded input, the layer's input, the residual and the normed input live through a layer.
"""

from collections.abc import Sequence
from itertools import accumulate

F32 = 4
INDEX_BYTES = 40
"""Token ids, attention mask, positions and their temporaries, 64 bits each. [bytes/token]"""


def rotary_tables(*, rotary_dim: int, element_bytes: int) -> int:
    """
    Cosine and sine rows that every layer shares, and the ids and masks beside them.

    Args:
        rotary_dim: Rotated width of a head; 0 without rotary positions. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width. [bytes/token]

    Source:
        huggingface/transformers@4.51.3 models/llama/modeling_llama.py LlamaRotaryEmbedding.forward; traced with 5.24
    """
    return 2 * rotary_dim * element_bytes + INDEX_BYTES


def feed_forward(
    *, hidden_size: int, intermediate_size: int, products: int, element_bytes: int, hidden_rows: int = 4
) -> int:
    """
    Widest moment of a dense layer: the feed-forward's products beside the live hidden rows.

    Args:
        hidden_size: Width of the stream. [elements]
        intermediate_size: Width of one half. [elements]
        products: Live intermediate rows: 3 gated (activated gate, up, product), 4 when gate and up are one matrix or the
            activation is a Python expression, 2 without a gate. [unitless]
        element_bytes: Compute dtype. [bytes]
        hidden_rows: Embedded input, layer's input, residual, normed input; 3 where nothing is normed before. [unitless]

    Returns:
        Width. [bytes/token]

    Source:
        huggingface/transformers@5.24 models/llama LlamaMLP.forward, phi3 Phi3MLP, gpt_neox, starcoder2, gpt2: traced allocations;
        measured: tests/measured/serving_transformers.json (Qwen2.5 tables)
    """
    return element_bytes * (products * intermediate_size + hidden_rows * hidden_size)


def norm(*, hidden_size: int, element_bytes: int) -> int:
    """
    RMS norm: two fp32 copies beside the embedded input, the layer's input and its result.

    Args:
        hidden_size: Width of the stream. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width; leads where the feed-forward is narrower than the stream. [bytes/token]

    Source:
        huggingface/transformers@5.24 models/llama LlamaRMSNorm.forward: traced allocations
    """
    return (2 * F32 + 3 * element_bytes) * hidden_size


def query_norm(*, hidden_size: int, query_width: int, element_bytes: int) -> int:
    """
    Norm of every query head: two fp32 copies of the queries beside the three live hidden rows.

    Args:
        hidden_size: Width of the stream. [elements]
        query_width: Heads x head size. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width; leads where heads x head size exceeds the stream (Qwen3-0.6B). [bytes/token]

    Source:
        huggingface/transformers@5.24 models/qwen3 Qwen3Attention.forward: traced allocations
    """
    return 3 * element_bytes * hidden_size + (2 * F32 + element_bytes) * query_width


def attention(
    *, hidden_size: int, query_width: int, key_width: int, value_width: int, repeated: bool, element_bytes: int
) -> int:
    """
    Queries, output and (where heads are repeated before the kernel) full-width keys and values.

    Args:
        hidden_size: Width of the stream. [elements]
        query_width: Heads x head size. [elements]
        key_width: Heads x key head size of the repeated keys. [elements]
        value_width: Heads x value head size of the repeated values and the output. [elements]
        repeated: repeat_kv runs (grouped heads, before sdpa took enable_gqa). [flag]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width. [bytes/token]

    Source:
        huggingface/transformers@4.51.3 integrations/sdpa_attention.py repeat_kv; @4.57.1 use_gqa_in_sdpa
    """
    copies = key_width + value_width if repeated else 0
    return element_bytes * (3 * hidden_size + query_width + value_width + copies)


def latent_attention(
    *,
    hidden_size: int,
    num_attention_heads: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    element_bytes: int,
) -> int:
    """
    Latent attention expanded to every head: queries before and after rotation, keys, the up-projection, the output.

    Args:
        hidden_size: Width of the stream. [elements]
        num_attention_heads: Heads. [heads]
        qk_nope_head_dim: Unrotated width of a query head. [elements]
        qk_rope_head_dim: Rotated width. [elements]
        v_head_dim: Width of a value head. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width. [bytes/token]

    Source:
        huggingface/transformers@5.24 models/deepseek_v3 DeepseekV3Attention.forward: four traced shapes, within 1 %
    """
    queries = 3 * (qk_nope_head_dim + qk_rope_head_dim) + qk_rope_head_dim
    values = qk_nope_head_dim + 2 * v_head_dim
    return element_bytes * (4 * hidden_size + num_attention_heads * (queries + values))


def rotary(*, hidden_size: int, query_width: int, element_bytes: int) -> int:
    """
    Rotation of the queries: themselves, both products and their sum, beside three hidden rows; keys and values are the cache's.

    Args:
        hidden_size: Width of the stream. [elements]
        query_width: Heads x head size. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width. [bytes/token]

    Source:
        huggingface/transformers@5.24 models/llama apply_rotary_pos_emb: traced allocations
    """
    return element_bytes * (3 * hidden_size + 4 * query_width)


def experts_loop(
    *,
    hidden_size: int,
    num_experts: int,
    experts_per_token: int,
    expert_intermediate_size: int,
    element_bytes: int,
) -> int:
    """
    Mixture of experts one expert after the other: the one-hot mask of all choices, and an even share of the tokens in flight.

    Args:
        hidden_size: Width of the stream. [elements]
        num_experts: Routed experts. [unitless]
        experts_per_token: Experts used per token. [unitless]
        expert_intermediate_size: Width of one expert. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width. [bytes/token]

    Source:
        huggingface/transformers@4.51.3 models/qwen3_moe Qwen3MoeSparseMoeBlock.forward (one_hot of int64, float softmax)
    """
    choices = 8 * num_experts * experts_per_token
    router = (element_bytes + F32) * num_experts
    in_flight = experts_per_token * (2 * hidden_size + 3 * expert_intermediate_size) * element_bytes // num_experts
    return 5 * element_bytes * hidden_size + choices + router + in_flight


def experts_grouped(
    *,
    hidden_size: int,
    experts_per_token: int,
    expert_intermediate_size: int,
    weight_bytes: int,
    element_bytes: int,
) -> int:
    """
    Mixture of experts as grouped products: every choice's row at once, weighted and put back in order.

    Args:
        hidden_size: Width of the stream. [elements]
        experts_per_token: Experts used per token. [unitless]
        expert_intermediate_size: Width of one expert. [elements]
        weight_bytes: dtype of the routing weights: 4 where the router answers in fp32. [bytes]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width. [bytes/token]

    Source:
        huggingface/transformers@5.24 integrations/moe.py grouped_mm_experts_forward: traced allocations
    """
    product = max(weight_bytes, element_bytes)
    combine = experts_per_token * hidden_size * 2 * (element_bytes + product)
    inside = experts_per_token * element_bytes * (hidden_size + 4 * expert_intermediate_size)
    return 4 * element_bytes * hidden_size + max(combine, inside)


def window_mask(*, batch_size: int, tokens: int, keys: int, element_bytes: int) -> int:
    """
    Mask that sdpa needs once a prompt is longer than the attention window (or caches are allocated in advance).

    Args:
        batch_size: Sequences. [sequences]
        tokens: Query positions. [tokens]
        keys: Key positions. [tokens]
        element_bytes: 1 as boolean (from 4.56), the compute dtype before. [bytes]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@5.24 masking_utils.py sdpa_mask: traced on gemma3 and mistral; @4.51.3 models/gemma3
        _prepare_4d_causal_attention_mask_with_cache_position
    """
    return batch_size * tokens * keys * element_bytes


def eager_scores(*, num_attention_heads: int, tokens: int, keys: int, batch_size: int, per_score_bytes: int) -> int:
    """
    Score matrices of eager attention.

    Args:
        num_attention_heads: Query heads. [heads]
        tokens: Query positions. [tokens]
        keys: Key positions. [tokens]
        batch_size: Sequences. [sequences]
        per_score_bytes: Scores, their fp32 softmax and its cast alive together: 6 to 10, 8 as expected. [bytes]

    Returns:
        Size with the additive mask. [bytes]

    Source:
        huggingface/transformers@4.51.3 models/llama eager_attention_forward
    """
    return batch_size * tokens * keys * (num_attention_heads * per_score_bytes + 2)


def prompt_logits(*, rows: int, vocab_size: int, element_bytes: int, upcast: bool) -> int:
    """
    Logits of the prefill.

    Args:
        rows: Positions whose logits are made: the whole prompt before 4.45, else one per sequence. [tokens]
        vocab_size: Vocabulary. [elements]
        element_bytes: Compute dtype. [bytes]
        upcast: The model casts them to fp32 as well (before 4.45). [flag]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@4.44.2 models/llama LlamaForCausalLM.forward (logits.float()); @4.45.0 num_logits_to_keep
    """
    return rows * vocab_size * (element_bytes + (F32 if upcast else 0))


def next_token_logits(*, batch_size: int, vocab_size: int, element_bytes: int) -> int:
    """
    Last step's logits and their fp32 copy, which generate() still holds when it returns.

    Args:
        batch_size: Sequences. [sequences]
        vocab_size: Vocabulary. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@4.51.3 generation/utils.py _sample (next_token_logits = ... .to(copy=True, dtype=float32))
    """
    return batch_size * vocab_size * (element_bytes + F32)


def decode_step(*, key_bytes: int, value_bytes: int, heads_per_kv_head: int, repeated: bool) -> int:
    """
    Transient of one decode step in one layer: the grown keys beside the old, or keys and values repeated to every head.

    Args:
        key_bytes: One layer's keys at the last step. [bytes]
        value_bytes: One layer's values. [bytes]
        heads_per_kv_head: Query heads that share a KV head. [unitless]
        repeated: repeat_kv runs. [flag]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@4.51.3 cache_utils.py DynamicCache.update (torch.cat); integrations/sdpa_attention.py repeat_kv;
        measured: Qwen2.5 tables at input 1 (14B: 40 MiB by this form, 38 to 45 printed)
    """
    repeats = heads_per_kv_head * (key_bytes + value_bytes) if repeated and heads_per_kv_head > 1 else 0
    return max(key_bytes, repeats)


def tuple_cache_step(*, cache_bytes: int) -> int:
    """
    Transient of one decode step where caches are tuples: every layer's old keys and values until all new ones are made.

    Args:
        cache_bytes: Caches of all layers at the last step. [bytes]

    Returns:
        A second set of caches. [bytes]

    Source:
        huggingface/transformers@v4.35.2 models/llama/modeling_llama.py LlamaModel.forward (next_decoder_cache);
        measured: Qwen-7B README 2023 (batch 32: 48.7 GB = weights + 2 x 17.2 GB; batch 64 runs out of 80 GB)
    """
    return cache_bytes


def exllama_workspace(*, largest_matrix_elements: int) -> int:
    """
    Dequantization buffer that the 4-bit GPTQ kernel keeps from load on.

    Args:
        largest_matrix_elements: Largest quantized matrix. [elements]

    Returns:
        fp16 copy of that matrix. [bytes]

    Source:
        AutoGPTQ@0.7.1 auto_gptq/modeling/_utils.py autogptq_post_init (temp_dq); measured: Qwen2.5 GPTQ-Int4 tables
    """
    return 2 * largest_matrix_elements


def torch_dequantization(*, largest_matrix_elements: int) -> int:
    """
    Transient of the GPTQ fallback for 8 bits: integers, their fp16 product and the matrix.

    Args:
        largest_matrix_elements: Largest quantized matrix. [elements]

    Returns:
        Size, alive beside the layer's input and output rows when a call has 128 tokens or more. [bytes]

    Source:
        AutoGPTQ@0.7.1 auto_gptq/nn_modules/qlinear/qlinear_cuda.py forward (kernel_switch_threshold = 128);
        measured: Qwen2.5 GPTQ-Int8 tables
    """
    return 6 * largest_matrix_elements


def dequantized_matrix(*, largest_matrix_elements: int, element_bytes: int) -> int:
    """
    Matrix that a 4-bit bitsandbytes product of more than one row dequantizes first.

    Args:
        largest_matrix_elements: Largest quantized matrix. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Size, alive during one product. [bytes]

    Source:
        bitsandbytes-foundation/bitsandbytes@0.49 autograd/_functions.py MatMul4Bit.forward (F.dequantize_4bit), matmul_4bit
    """
    return element_bytes * largest_matrix_elements


def balanced_budget(*, total: int, devices: int, largest_block: int) -> int:
    """
    What device_map="auto" lets each GPU but the last hold.

    Args:
        total: Weights. [bytes]
        devices: GPUs. [unitless]
        largest_block: Largest layer (from 5.0 also the embedding). [bytes]

    Returns:
        Even share and a quarter more than one block. [bytes]

    Source:
        huggingface/accelerate@1.15 utils/modeling.py get_balanced_memory
    """
    return total // devices + largest_block * 5 // 4


def balanced_split(*, blocks: Sequence[int], budget: int, devices: int, kept_free: int) -> tuple[int, ...]:
    """
    First block of every GPU: blocks in order, the next GPU once one does not fit, the last takes the rest.

    Args:
        blocks: Embedding, layers, final norm, head. [bytes]
        budget: What a GPU but the last may hold. [bytes]
        devices: GPUs. [unitless]
        kept_free: Room the first GPU keeps for a block brought back from the host. [bytes]

    Returns:
        Index of the first block of each GPU. [unitless]

    Source:
        huggingface/accelerate@1.15 utils/modeling.py infer_auto_device_map (main_devices)
    """
    starts = [0]
    ends = list(accumulate(blocks))
    for position in range(len(blocks)):
        device = len(starts) - 1
        before = ends[starts[device] - 1] if starts[device] else 0
        room = budget - (kept_free if device == 0 else 0)
        if ends[position] - before > room and device < devices - 1:
            starts.append(position)
    return (*starts, *([len(blocks)] * (devices - len(starts))))


def delta_rule(
    *, hidden_size: int, num_value_heads: int, value_head_dim: int, num_key_heads: int, key_head_dim: int, chunk: int
) -> int:
    """
    Chunked gated delta rule in plain PyTorch: seven fp32 copies of keys and values per value head, two chunk matrices.

    Args:
        hidden_size: Width of the stream. [elements]
        num_value_heads: Value heads. [heads]
        value_head_dim: Width of a value head. [elements]
        num_key_heads: Key heads. [heads]
        key_head_dim: Width of a key head. [elements]
        chunk: Tokens of a chunk. [tokens]

    Returns:
        Width without the flash-linear-attention kernels, which need much less. [bytes/token]

    Source:
        huggingface/transformers@5.24 models/qwen3_next torch_chunk_gated_delta_rule: traced allocations of six shapes, within 4 %
    """
    heads = num_value_heads * (7 * F32 * (key_head_dim + value_head_dim) + 2 * F32 * chunk)
    return heads + F32 * num_key_heads * key_head_dim + 6 * hidden_size


def selective_scan(*, hidden_size: int, projected_width: int, inner_size: int, element_bytes: int) -> int:
    """
    Mamba mixer with its kernels: the projection, the convolved inner stream and the gated result.

    Args:
        hidden_size: Width of the stream. [elements]
        projected_width: Rows of the input projection. [elements]
        inner_size: Inner stream. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Width; the plain PyTorch path needs far more. [bytes/token]

    Source:
        huggingface/transformers@5.24 models/mamba2 Mamba2Mixer.cuda_kernels_forward (not measured)
    """
    return element_bytes * (3 * hidden_size + 2 * projected_width + 2 * inner_size)
