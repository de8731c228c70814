"""
What one layer keeps for its backward pass, per token, where kernels are fused: compiled, selective, Transformer Engine.

Eager layers are not here: their code is run without data (estimate/training/eager.py). The published formulas disagree
by up to a factor of two, because they are for GPT with dropout (34h), count only fused kernels, or leave the fp32 copies
of RMSNorm out; each law below names the kernels it is for. h: hidden, q: heads x head size, kv: KV heads x head size,
f: one half of a gated MLP, a: heads.
"""


def eager_llama_layer(
    *, hidden_size: int, query_width: int, key_value_width: int, intermediate_size: int, num_attention_heads: int
) -> int:
    """
    The Llama layer of Transformers with a flash kernel, all weights training: 16h + 4q + 4kv + 8f + 4a.

    Args:
        hidden_size: h. [elements]
        query_width: q. [elements]
        key_value_width: kv. [elements]
        intermediate_size: f. [elements]
        num_attention_heads: a. [heads]

    Returns:
        Kept per token. [bytes]

    Source:
        measured: tests/oracles/training_runs.json; Lightning-AI/litgpt tutorials/resource-tables.md (Llama-2-7B: 45.46h)
    """
    return 16 * hidden_size + 4 * query_width + 4 * key_value_width + 8 * intermediate_size + 4 * num_attention_heads


def compiled_layer(
    *,
    hidden_size: int,
    query_width: int,
    key_value_width: int,
    intermediate_size: int,
    num_attention_heads: int,
    gated: bool = True,
) -> int:
    """
    A layer under torch.compile: norms keep their input and output, the gated MLP three of four products.

    Args:
        hidden_size: h. [elements]
        query_width: q. [elements]
        key_value_width: kv. [elements]
        intermediate_size: f. [elements]
        num_attention_heads: a. [heads]
        gated: Whether the MLP has a gate.

    Returns:
        8h + 4q + 4kv + 6f + 4a per token. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/_functorch/partitioners.py (min-cut recomputes pointwise chains); measured:
        tests/measured/training.json#tt-l32-3b-compile, #tt-l32-3b-chunkce
    """
    feed = (6 if gated else 4) * intermediate_size
    return 8 * hidden_size + 4 * query_width + 4 * key_value_width + feed + 4 * num_attention_heads


def selective_operators_layer(
    *,
    hidden_size: int,
    query_width: int,
    key_value_width: int,
    intermediate_size: int,
    num_attention_heads: int,
    every_second: bool,
) -> int:
    """
    Selective checkpointing by operator: attention outputs, every second matrix product, the block's input.

    Args:
        hidden_size: h. [elements]
        query_width: q. [elements]
        key_value_width: kv. [elements]
        intermediate_size: f. [elements]
        num_attention_heads: a. [heads]
        every_second: Products are counted over the block (before 2025-06); later the query projection is among the kept.

    Returns:
        4h + 4q + 2kv + 2f + 4a, later 2h + 4q + 2kv + 2f + 4a per token. [bytes]

    Source:
        pytorch/torchtitan@2024-12 torchtitan/parallelisms/parallelize_llama.py _save_list, _get_custom_policy; measured:
        tests/measured/training.json#titan-8b-8h100-0 to #titan-trainy-h200-64
    """
    stream = (4 if every_second else 2) * hidden_size
    return stream + 4 * query_width + 2 * key_value_width + 2 * intermediate_size + 4 * num_attention_heads


def transformer_engine_layer(
    *,
    hidden_size: int,
    query_width: int,
    key_value_width: int,
    intermediate_size: int,
    num_attention_heads: int,
    tensor_parallel_size: int,
    sequence_parallel: bool,
    fp8: bool = False,
) -> int:
    """
    Megatron's layer with Transformer Engine, fused attention and SwiGLU.

    Args:
        hidden_size: h. [elements]
        query_width: q. [elements]
        key_value_width: kv. [elements]
        intermediate_size: f. [elements]
        num_attention_heads: a. [heads]
        tensor_parallel_size: t, which divides everything but, without sequence parallelism, the stream. [unitless]
        sequence_parallel: Whether norms and residuals are cut along the sequence.
        fp8: Linear inputs are kept in one byte.

    Returns:
        (8h + 4q + 4kv + 6f + 4a) / t per token; fp8 (6h + 5q + 4kv + 5f + 4a) / t. [bytes]

    Source:
        NVIDIA/TransformerEngine@d0067d0da transformer_engine/pytorch/module/layernorm_linear.py (the sharded norm output is
        kept, gathered again in backward); NVIDIA/Megatron-LM@d98e8a64d megatron/core/fusions/fused_bias_swiglu.py.
        Megatron's own estimate (18h + 4f) undercounts gated MLPs
    """
    stream = (6 if fp8 else 8) * hidden_size
    inner = (
        (5 if fp8 else 4) * query_width
        + 4 * key_value_width
        + (5 if fp8 else 6) * intermediate_size
        + 4 * num_attention_heads
    )
    if sequence_parallel:
        return (stream + inner) // tensor_parallel_size
    return stream + inner // tensor_parallel_size


def checkpointed_layer(*, hidden_size: int, element_bytes: int = 2) -> int:
    """
    Full checkpointing keeps a layer's input alone.

    Args:
        hidden_size: h. [elements]
        element_bytes: Width of the residual stream. [bytes]

    Returns:
        Kept per token. [bytes]

    Source:
        arXiv:1604.06174; arXiv:2205.05198 section 5 (2sbh per layer)
    """
    return hidden_size * element_bytes


def recomputed_layer(*, kept: int, hidden_size: int, intermediate_size: int) -> int:
    """
    The highest point of one layer's backward pass: all it keeps, the gradient of its output, the two of its product.

    Args:
        kept: What the layer keeps per token. [bytes]
        hidden_size: h. [elements]
        intermediate_size: f. [elements]

    Returns:
        S + 2h + 4f per token. [bytes]

    Source:
        measured: tests/oracles/training_runs.json (backward of `gate * up`, when both factors are still needed)
    """
    return kept + 2 * hidden_size + 4 * intermediate_size


def routed_experts(
    *, hidden_size: int, moe_intermediate_size: int, num_experts: int, num_experts_per_tok: int, trains: bool
) -> int:
    """
    Routed experts through a grouped product: copies of the token for each expert, both halves, product, outputs.

    Args:
        hidden_size: h. [elements]
        moe_intermediate_size: Width of one half of an expert. [elements]
        num_experts: Experts. [unitless]
        num_experts_per_tok: Experts of one token. [unitless]
        trains: Whether experts and router train.

    Returns:
        k(4h + 8g) + 6E per token; frozen 6gk. [bytes]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/integrations/moe.py grouped_mm_experts_forward
    """
    if not trains:
        return 6 * moe_intermediate_size * num_experts_per_tok
    return num_experts_per_tok * (4 * hidden_size + 8 * moe_intermediate_size) + 6 * num_experts


def stale_inputs(
    *,
    hidden_size: int,
    query_width: int,
    intermediate_size: int,
    layers: int,
    vocab_size: int,
    tokens: int,
    percent: int,
) -> int:
    """
    What the previous micro-batch still holds where a loop keeps outputs and 4-bit linears their inputs.

    Inputs kept as attributes of a custom function live as long as the graph does, and the graph as long as its output.

    Args:
        hidden_size: h. [elements]
        query_width: q. [elements]
        intermediate_size: f. [elements]
        layers: Layers. [layers]
        vocab_size: V, of the fp32 logits that are held. [elements]
        tokens: Tokens of the current micro-batch. [tokens]
        percent: Tokens of the previous one against it. [percent]

    Returns:
        ((4h + 2q + 2f) L + 4V) x tokens. [bytes]

    Source:
        bitsandbytes-foundation/bitsandbytes@0.42.0 autograd/_functions.py MatMul4Bit (ctx.tensors); Lightning-AI/litgpt
        finetune/lora.py; measured: tests/measured/training.json#litgpt-hub-llama-3-8b-qlora
    """
    inputs = (4 * hidden_size + 2 * query_width + 2 * intermediate_size) * layers
    return (inputs + 4 * vocab_size) * tokens * percent // 100


def unvarying(*, before: int, here: int) -> int:
    """
    What lives at one point of a step whatever the batch: dequantized matrices, autocast copies of weights, scalars of the loss.

    Args:
        before: Held when the segment of the step begins. [bytes]
        here: Taken since. [bytes]

    Returns:
        Size. [bytes]

    Source:
        recorded: tests/oracles/training_runs.json
    """
    return max(0, before + here)


def causal_mask_buffer(*, positions: int) -> int:
    """
    Mask of all positions that a model keeps as a buffer: one byte per pair.

    Args:
        positions: max_position_embeddings. [tokens]

    Returns:
        Size. [bytes]

    Source:
        huggingface/transformers@v5.24.0 src/transformers/models/gpt_bigcode/modeling_gpt_bigcode.py (self.bias)
    """
    return positions * positions


def at_moment(
    *,
    bytes_per_token: int,
    tokens: int,
    bytes_per_pair: int,
    pairs: int,
    bytes_per_padded_token: int,
    padded_tokens: int,
) -> int:
    """
    What the layers passed so far hold at one point of a step: so much per token, and per pair where scores are stored.

    Args:
        bytes_per_token: Saved tensors and those in use, over all layers. [bytes/token]
        tokens: Tokens of the micro-batch. [tokens]
        bytes_per_pair: Stored attention scores and masks. [bytes/pair]
        pairs: Tokens times sequence length. [pairs]
        bytes_per_padded_token: Buffers of kernels that pad the sequence to their block. [bytes/token]
        padded_tokens: Tokens with the length rounded up to 128. [tokens]

    Returns:
        Size; never below nothing. [bytes]

    Source:
        measured: tests/oracles/training_runs.json (recorded allocations are linear in these three)
    """
    return max(0, bytes_per_token * tokens + bytes_per_pair * pairs + bytes_per_padded_token * padded_tokens)
