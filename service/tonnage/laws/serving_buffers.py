"""Tensors an engine keeps beside the weights: rotary tables, absorbed projections, adapter slots."""

from tonnage.units import MiB


def rotary_cache(*, positions: int, rotary_dim: int, element_bytes: int) -> int:
    """
    Cosines and sines of every position.

    Args:
        positions: Longest position the table covers. [tokens]
        rotary_dim: Rotated part of a head. [elements]
        element_bytes: dtype of the table. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/rotary_embedding/base.py _compute_cos_sin_cache
    """
    return positions * rotary_dim * element_bytes


def absorbed_projections(
    *, kv_lora_rank: int, heads: int, qk_nope_head_dim: int, v_head_dim: int, element_bytes: int
) -> int:
    """
    Copies of MLA's up-projections that decoding multiplies into query and output.

    Args:
        kv_lora_rank: Width of the latent. [elements]
        heads: Attention heads of this rank. [heads]
        qk_nope_head_dim: Key width without the rotary part. [elements]
        v_head_dim: Value width. [elements]
        element_bytes: dtype of the copies. [bytes]

    Returns:
        Size in one layer. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/layers/attention/mla_attention.py process_weights_after_loading
        (W_UK_T, W_UV)
    """
    return kv_lora_rank * heads * (qk_nope_head_dim + v_head_dim) * element_bytes


def absorbed_matrices(*, query_size: int, hidden_size: int, kv_lora_rank: int, heads: int, element_bytes: int) -> int:
    """
    Products of MLA's projections that early releases formed once: query with key, value with output.

    Args:
        query_size: Input of the query's up-projection: its low rank, or the hidden size. [elements]
        hidden_size: Width of the model. [elements]
        kv_lora_rank: Width of the latent. [elements]
        heads: Attention heads of this rank. [heads]
        element_bytes: dtype of the products. [bytes]

    Returns:
        Size in one layer. [bytes]

    Source:
        vllm-project/vllm@0.7.3 vllm/attention/backends/mla/utils.py process_weights_after_loading (W_Q_UK, W_UV_O);
        measured: tests/measured/serving_vllm.json#vllm07-dscoder-v2-lite-tp8
    """
    return (query_size + hidden_size) * kv_lora_rank * heads * element_bytes


def lora_slots(*, max_loras: int, max_lora_rank: int, widths: int, element_bytes: int) -> int:
    """
    Slots for adapters, allocated when the model is loaded.

    Args:
        max_loras: Adapters at once. [unitless]
        max_lora_rank: Rank of a slot. [elements]
        widths: Inputs and outputs of every targeted matrix on this rank, added up. [elements]
        element_bytes: dtype of the adapters. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.10.2 vllm/lora/layers.py create_lora_weights (lora_a_stacked, lora_b_stacked);
        measured: tests/measured/serving_vllm.json#vllm-uns-llama31-8b-bnb-t4
    """
    return max_loras * max_lora_rank * widths * element_bytes


def deepstack_features(*, levels: int, tokens: int, hidden_size: int, element_bytes: int) -> int:
    """
    Buffer for image features of intermediate vision layers.

    Args:
        levels: Vision layers whose features are kept. [layers]
        tokens: Batch. [tokens]
        hidden_size: Width of the language model. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/model_executor/models/qwen3_vl.py Qwen3VLForConditionalGeneration.__init__
        (deepstack_input_embeds)
    """
    return levels * tokens * hidden_size * element_bytes


def top_k_indices(*, tokens: int, index_topk: int) -> int:
    """
    Token numbers a sparse-attention indexer selects, 32 bits each.

    Args:
        tokens: Batch. [tokens]
        index_topk: Tokens selected for each. [tokens]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.26.0 vllm/model_executor/models/deepseek_v2.py DeepseekV2Model.__init__
        (topk_indices_buffer)
    """
    return 4 * tokens * index_topk


def penalty_counts(*, max_num_seqs: int, vocab_size: int) -> int:
    """
    Output counts and prompt mask that the V2 runner keeps for penalties of every request.

    Args:
        max_num_seqs: Running requests. [requests]
        vocab_size: Vocabulary. [elements]

    Returns:
        Size: 32 bits and one bit per entry. [bytes]

    Source:
        vllm-project/vllm@0.24.0 vllm/v1/worker/gpu/sample/penalties.py PenaltiesState (output_bin_counts,
        prompt_bin_mask)
    """
    return 4 * max_num_seqs * (vocab_size + -(-vocab_size // 32))


def pinned_token_ids(*, max_num_seqs: int, max_model_len: int) -> int:
    """
    Tokens of every request, which the V2 runner keeps in pinned host memory.

    Args:
        max_num_seqs: Running requests. [requests]
        max_model_len: Longest request. [tokens]

    Returns:
        Size on the host. [bytes]

    Source:
        vllm-project/vllm@0.24.0 vllm/v1/worker/gpu/states.py RequestState (all_token_ids, uva_instead_of_gpu)
    """
    return 4 * max_num_seqs * max_model_len


def flashinfer_wrappers(*, graphs: int) -> int:
    """
    FlashInfer's attention: one float workspace, and an integer one for every wrapper, of which each captured batch has its own.

    Args:
        graphs: Captured decode batches. [unitless]

    Returns:
        Size on one rank. [bytes]

    Source:
        vllm-project/vllm@0.12.0 vllm/envs.py VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE, vllm/v1/attention/backends/flashinfer.py
        _get_decode_wrapper; flashinfer-ai/flashinfer flashinfer/decode.py (8 MiB of integers)
    """
    return 394 * MiB + (graphs + 2) * 8 * MiB
