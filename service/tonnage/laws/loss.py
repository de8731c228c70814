"""
What logits cost on their way to a loss: bytes per logit at the end of forward, kept for backward, at its start.

Each code path gives four numbers: the highest point of forward, what stays, the highest point of backward, and the
width of the gradient that flows back into the head. Where published figures disagree (10 to 20 bytes per logit), the
code of the version decides: Liger's 20 bytes include a fp32 input that Hugging Face frees, and 4 to 6 count forward only.
"""

from typing import TypeAlias

LogitBytes: TypeAlias = tuple[float, float, float, int]
"""End of forward, kept, start of backward, gradient of one logit. [bytes]"""

FLOAT = 4
HALF = 2


def causal_upcast(*, logit_bytes: int) -> LogitBytes:
    """
    `logits.float()`, labels shifted, log-softmax and nll in fp32.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        10, 4, 12, 4 for 16-bit logits; 8, 4, 12, 4 for fp32 ones. [bytes]

    Source:
        huggingface/transformers@v4.49.0 src/transformers/loss/loss_utils.py ForCausalLMLoss (labels are padded, logits
        not copied); measured: tests/oracles/training_runs.json
    """
    copy = FLOAT if logit_bytes < FLOAT else 0
    return logit_bytes + copy + FLOAT, FLOAT, 3 * FLOAT, FLOAT


def causal_shifted(*, logit_bytes: int, sequences: int, caller_keeps: bool) -> LogitBytes:
    """
    `logits.float()`, then a contiguous copy without the last position.

    Args:
        logit_bytes: Width of what the head computes. [bytes]
        sequences: Sequences in the micro-batch; of a single one the slice is contiguous already. [unitless]
        caller_keeps: The 16-bit logits stay beside the fp32 ones (from 4.46, where the loss is a function).

    Returns:
        8 to 14, 4, 12, 4. [bytes]

    Source:
        huggingface/transformers@v4.44.2 src/transformers/models/llama/modeling_llama.py (shift_logits);
        @v4.46.3 src/transformers/loss/loss_utils.py
    """
    copy = FLOAT if sequences > 1 else 0
    wide = FLOAT + copy + FLOAT
    narrow = logit_bytes if logit_bytes < FLOAT else 0
    return max(wide + (narrow if caller_keeps else 0), narrow + FLOAT), FLOAT, 3 * FLOAT, FLOAT


def causal_held(*, logit_bytes: int) -> LogitBytes:
    """
    fp32 logits of the model, shifted into a copy that the training loop holds through backward.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        8 to 10, 8, 16, 4. [bytes]

    Source:
        pytorch/torchtune@v0.1.1 recipes/lora_finetune_single_device.py (logits[..., :-1, :].contiguous(), not deleted
        before backward); measured: tests/measured/training.json#tt-l2-7b-lora-4090
    """
    return max(2 * FLOAT, logit_bytes + FLOAT), 2 * FLOAT, 4 * FLOAT, FLOAT


def mixed_precision_outputs(*, path: LogitBytes) -> LogitBytes:
    """
    Accelerate returns fp32 outputs: 16-bit logits in the model's output are copied once more, while the loss is there.

    Args:
        path: The model's own loss path. [bytes]

    Returns:
        The path with 4 bytes per logit at the end of forward. [bytes]

    Source:
        huggingface/accelerate@16cb6eb8 src/accelerate/utils/operations.py convert_outputs_to_fp32; measured:
        tests/measured/training.json#qwen-7b-lora-4096
    """
    forward, kept, backward, flowing = path
    own = HALF if forward < kept + HALF else 0
    return max(forward, kept - own + HALF + FLOAT), kept, backward, flowing


def half_precision(*, logit_bytes: int) -> LogitBytes:
    """
    Everything in 16 bit: Qwen's own model code without autocast, losses written in place.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        Logits, a copy and their log-softmax; three of them in backward. [bytes]

    Source:
        Qwen/Qwen-7B@2023-12 modeling_qwen.py (shift_logits, CrossEntropyLoss in the model's dtype) under DeepSpeed bf16
    """
    return 3 * logit_bytes, logit_bytes, 3 * logit_bytes, logit_bytes


def in_place(*, logit_bytes: int) -> LogitBytes:
    """
    A fused kernel that overwrites the logits with their gradient.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        The logits alone, throughout. [bytes]

    Source:
        unslothai/unsloth@2024.4 unsloth/kernels/cross_entropy_loss.py; linkedin/Liger-Kernel
        src/liger_kernel/ops/cross_entropy.py (gradient stored in the input)
    """
    return logit_bytes, logit_bytes, logit_bytes, logit_bytes


def fabric_outputs(*, logit_bytes: int) -> LogitBytes:
    """
    Chunks of 16-bit logits that Fabric returns as fp32, which litgpt's loop holds, and their log-softmax.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        10, 8, 8, 0: gradients replace log-softmaxes chunk by chunk. [bytes]

    Source:
        Lightning-AI/pytorch-lightning src/lightning/fabric/plugins/precision convert_output; Lightning-AI/litgpt@4571b2f2
        litgpt/utils.py chunked_cross_entropy; measured: tests/measured/training.json#litgpt-hub-gemma-2b-lora (the 16-bit
        logits are still there: 10, not 8)
    """
    return logit_bytes + 2 * FLOAT, 2 * FLOAT, 2 * FLOAT, 0


def full_eager(*, logit_bytes: int) -> LogitBytes:
    """
    Torchtitan before its chunked loss, not compiled: `pred.flatten(0, 1).float()` and torch's cross entropy.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        14, 8, 14, 4. [bytes]

    Source:
        pytorch/torchtitan@2024-12 train.py loss_fn; measured: tests/measured/training.json#titan-8b-8h100-0
    """
    return logit_bytes + 3 * FLOAT, 2 * FLOAT, logit_bytes + 3 * FLOAT, FLOAT


def full_compiled(*, logit_bytes: int, online: bool) -> LogitBytes:
    """
    The same loss compiled: without and with inductor's online softmax.

    Args:
        logit_bytes: Width of what the head computes. [bytes]
        online: Online softmax fuses the fp32 copies away (torch 2.8).

    Returns:
        12 or 6 bytes at the start of backward. [bytes]

    Source:
        pytorch/pytorch issue 127011; measured: tests/measured/training.json#titan-8b-8h100-1, #titan-trainy-h200-32
    """
    if online:
        return logit_bytes + FLOAT, logit_bytes, logit_bytes + FLOAT, logit_bytes
    return 3 * FLOAT, FLOAT + logit_bytes, 3 * FLOAT, logit_bytes


def vocab_parallel(*, logit_bytes: int) -> LogitBytes:
    """
    Megatron's vocabulary-parallel loss: fp32 in place.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        6 to 8 bytes per logit of the rank. [bytes]

    Source:
        NVIDIA/Megatron-LM@d98e8a64d megatron/core/tensor_parallel/cross_entropy.py calculate_predicted_logits (in place),
        the softmax kept for backward
    """
    return logit_bytes + FLOAT, FLOAT, FLOAT + logit_bytes, logit_bytes


def loss_parallel(*, logit_bytes: int) -> LogitBytes:
    """
    DTensor's loss parallel, eager: result, gradient, exponential and sum in fp32.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        16 bytes per logit of the rank. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/distributed/tensor/parallel/loss.py _log_softmax_handler, _nll_loss_and_log_softmax_backward
    """
    return logit_bytes + 3 * FLOAT, 2 * FLOAT, 4 * FLOAT, FLOAT


def chunked(*, logit_bytes: int, chunks: int, code: str) -> LogitBytes:
    """
    Logits of all tokens in 16 bit, fp32 copies of one chunk.

    Args:
        logit_bytes: Width of what the head computes. [bytes]
        chunks: Chunks the tokens are cut into. [unitless]
        code: chunked_float (torchtune, eager), chunked_compiled (torchtune), chunked_titan.

    Returns:
        6.5 and 5 bytes per logit eager, 2.5 and 2.75 compiled, 2 and 3.5 in torchtitan (8 chunks). [bytes]

    Source:
        pytorch/torchtune@v0.3.1 torchtune/modules/loss/ce_chunked_output_loss.py compute_cross_entropy;
        pytorch/torchtitan@e23bb707d torchtitan/components/loss.py; measured: tests/measured/training.json#tt-l32-3b-chunkce,
        #titan-pr996-chunk
    """
    share = FLOAT / chunks
    if code == "chunked_float":
        return logit_bytes + FLOAT + share, FLOAT, FLOAT + 2 * share, logit_bytes
    if code == "chunked_compiled":
        return logit_bytes + share, logit_bytes, logit_bytes + 1.5 * share, logit_bytes
    return logit_bytes, logit_bytes, logit_bytes + 3 * share, logit_bytes


def frozen_chunks(*, logit_bytes: int) -> LogitBytes:
    """
    Chunked and compiled over a frozen head: no gradient of the head's weight, nothing in fp32 that is as large.

    Args:
        logit_bytes: Width of what the head computes. [bytes]

    Returns:
        The logits alone, throughout. [bytes]

    Source:
        pytorch/torchtune@v0.3.1 torchtune/modules/loss/ce_chunked_output_loss.py; measured:
        tests/measured/heldout_training.json#tt-l32-3b-lora, #tt-l32-3b-qlora (2.0 bytes per logit beside the states)
    """
    return logit_bytes, logit_bytes, logit_bytes, logit_bytes


def chunk_tokens(*, tokens: int, chunks: int, most: int = 0) -> int:
    """
    Tokens whose logits exist at once in a chunked loss.

    Args:
        tokens: Tokens of the micro-batch. [tokens]
        chunks: Chunks it is cut into; 0: by size. [unitless]
        most: Tokens of one chunk when cut by size. [tokens]

    Returns:
        Tokens of the largest chunk. [tokens]

    Source:
        pytorch/torchtune@v0.3.1 torchtune/modules/loss/ce_chunked_output_loss.py (8 chunks); huggingface/trl@f2cd57710
        trl/trainer/sft_trainer.py (256 tokens); Lightning-AI/litgpt@4571b2f2 litgpt/utils.py (128 tokens)
    """
    return min(tokens, most) if chunks == 0 else -(-tokens // chunks)


def chunks_by_free_memory(*, tokens: int, vocab_size: int, free: int | None) -> int:
    """
    Chunks of a fused loss that fills the card: fp32 logits of a chunk take half of what is free, as the first loss finds it.

    Args:
        tokens: Tokens of the micro-batch. [tokens]
        vocab_size: Rows of the head. [elements]
        free: What the card has left; None: no card stated. [bytes]

    Returns:
        One while all logits in fp32 are less than what is free, then a multiple of four. [unitless]

    Source:
        unslothai/unsloth_zoo 2025.12.7 unsloth_zoo/fused_losses/cross_entropy_loss.py get_chunk_size, _get_chunk_multiplier
    """
    if free is None:
        return 1
    quarters = tokens * vocab_size * FLOAT * 2 / max(1, free) / 4
    return max(1, 4 * round(quarters))


def fused_head(*, vocab_size: int, hidden_size: int, tokens: int, head_trains: bool, element_bytes: int) -> int:
    """
    Head and loss in one kernel: logits exist in small chunks, the gradients of input and head at once.

    Args:
        vocab_size: Rows of the head. [elements]
        hidden_size: Columns. [elements]
        tokens: Tokens of the micro-batch. [tokens]
        head_trains: Whether the head's gradient is made too.
        element_bytes: Width of weights and activations. [bytes]

    Returns:
        Size at the loss, beside what the model keeps. [bytes]

    Source:
        linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py (chunks of hidden/vocab of the tokens);
        apple/ml-cross-entropy cut_cross_entropy; measured: tests/laws/test_loss.py (Liger's own CSV)
    """
    chunks = max(1, -(-vocab_size // hidden_size))
    chunk = -(-tokens // chunks)
    logits = chunk * vocab_size * (element_bytes + FLOAT)
    gradients = tokens * hidden_size * element_bytes
    return logits + gradients + (vocab_size * hidden_size * element_bytes if head_trains else 0)


def generated_scores(*, vocab_size: int, rows: int) -> int:
    """
    fp32 scores that generation between steps holds: of the newest token of every sample, or (PPO) of every token.

    Args:
        vocab_size: Vocabulary. [elements]
        rows: Tokens whose scores are held. [tokens]

    Returns:
        Size. [bytes]

    Source:
        huggingface/trl@f2cd57710 trl/trainer/utils.py generate (output_scores)
    """
    return FLOAT * vocab_size * rows


def at_moment(*, bytes_per_scored_token: int, scored_tokens: int) -> int:
    """
    Logits, their copies and gradients that exist at one point of a step.

    Args:
        bytes_per_scored_token: Vocabulary times the bytes of every copy alive. [bytes/token]
        scored_tokens: Tokens whose logits exist at once. [tokens]

    Returns:
        Size; never below nothing. [bytes]

    Source:
        measured: tests/oracles/training_runs.json
    """
    return max(0, bytes_per_scored_token * scored_tokens)
