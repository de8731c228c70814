"""
What vLLM's dummy sampler run allocates beside the forward pass: buffers as wide as the vocabulary.

A "unit" is one fp32 logits matrix of the dummy batch: 4 x rows x vocabulary bytes. The dummy request
draws at temperature 0.5 with top-p 0.9 and top-k vocabulary - 1, without penalties or logprobs.
"""

SEGMENTED_SORT_ROWS = 128


def logits(*, rows: int, vocab_size: int, element_bytes: int) -> int:
    """
    Logits of the dummy batch in the model's dtype, held by the caller while the sampler runs.

    Args:
        rows: Requests of the dummy batch. [requests]
        vocab_size: Vocabulary as the head gives it. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/gpu_model_runner.py _dummy_sampler_run
    """
    return rows * vocab_size * element_bytes


def hidden_rows(*, rows: int, hidden_size: int, element_bytes: int) -> int:
    """
    Last hidden states of every request and the random copy the dummy run makes of them.

    Args:
        rows: Requests of the dummy batch. [requests]
        hidden_size: Width of the model. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/gpu_model_runner.py _dummy_sampler_run (torch.rand_like)
    """
    return 2 * rows * hidden_size * element_bytes


def torch_sort(*, rows: int, vocab_size: int) -> int:
    """
    Top-k and top-p by sorting the whole vocabulary, beside the model-dtype logits.

    Args:
        rows: Requests of the dummy batch. [requests]
        vocab_size: Vocabulary. [elements]

    Returns:
        fp32 copy, sorted values and int64 indices, and what the sort itself allocates: 9 units; 12 below 128 rows,
        where one sort over all rows replaces the segmented one. [bytes]

    Source:
        vllm-project/vllm@0.16.0 vllm/v1/sample/ops/topk_topp_sampler.py apply_top_k_top_p (logits.sort);
        pytorch/pytorch@2.9 aten/src/ATen/native/cuda/Sort.cpp, SortStable.cu (segmented above 128 rows);
        measured: tests/measured/serving_vllm.json#vllm011-llama31-8b
    """
    units = 9 if rows >= SEGMENTED_SORT_ROWS else 12
    return units * 4 * rows * vocab_size


def triton_top_k_top_p(*, rows: int, vocab_size: int, multiprocessors: int) -> int:
    """
    Top-k and top-p by the Triton kernel, beside the model-dtype logits.

    Args:
        rows: Requests of the dummy batch. [requests]
        vocab_size: Vocabulary. [elements]
        multiprocessors: Streaming multiprocessors of the card. [unitless]

    Returns:
        fp32 copy, softmax and exponential noise (3 units), and one row of scratch for each program. [bytes]

    Source:
        vllm-project/vllm@0.17.0 vllm/v1/sample/ops/topk_topp_triton.py apply_top_k_top_p_triton (buffer),
        topk_topp_sampler.py random_sample
    """
    programs = min(_power_of_two(min(rows, multiprocessors)), multiprocessors)
    return 3 * 4 * rows * vocab_size + programs * 4 * vocab_size


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def flashinfer_top_k_top_p(*, rows: int, vocab_size: int) -> int:
    """
    Top-k and top-p by FlashInfer, beside the model-dtype logits.

    Args:
        rows: Requests of the dummy batch. [requests]
        vocab_size: Vocabulary. [elements]

    Returns:
        fp32 copy, masked logits and softmax: 3 units. [bytes]

    Source:
        vllm-project/vllm@0.21.0 vllm/v1/sample/ops/topk_topp_sampler.py flashinfer_sample;
        flashinfer-ai/flashinfer@0.6.6 flashinfer/sampling.py top_k_top_p_sampling_from_logits
    """
    return 3 * 4 * rows * vocab_size


def gumbel(*, rows: int, vocab_size: int, block: int = 1024) -> int:
    """
    Gumbel-max over the model-dtype logits in place: one partial maximum and index per block of the vocabulary.

    Args:
        rows: Requests of the dummy batch. [requests]
        vocab_size: Vocabulary. [elements]
        block: Vocabulary entries of one program. [elements]

    Returns:
        Size of the partials. [bytes]

    Source:
        vllm-project/vllm@0.24.0 vllm/v1/worker/gpu/sample/gumbel.py gumbel_sample (local_argmax int64, local_max fp32)
    """
    return rows * -(-vocab_size // block) * 12


def rejection(*, rows: int, vocab_size: int, element_bytes: int, num_speculative_tokens: int) -> int:
    """
    Rejection sampler of speculative decoding, run after the ordinary one with two drafts a request.

    Args:
        rows: Requests of the dummy batch. [requests]
        vocab_size: Vocabulary. [elements]
        element_bytes: dtype of the model. [bytes]
        num_speculative_tokens: Draft tokens; none, no rejection sampler. [tokens]

    Returns:
        Random logits of drafts and bonus, their fp32 copy, clone and softmax. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/gpu_model_runner.py _dummy_sampler_run (num_reqs + 2 x drafts),
        v1/sample/rejection_sampler.py forward
    """
    if not num_speculative_tokens:
        return 0
    return 3 * rows * vocab_size * element_bytes + 4 * 4 * rows * vocab_size
