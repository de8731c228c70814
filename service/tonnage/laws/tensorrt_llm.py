"""What TensorRT-LLM keeps beside weights and cache, and how its cache takes what is left."""

from tonnage.units import MiB


def pool(*, fraction: float, total: int, peak: int, estimation_cache: int = 0) -> int:
    """
    Cache pool: a part of what a largest context run left, not of the card.

    Args:
        fraction: free_gpu_memory_fraction. [fraction]
        total: Memory of the card as CUDA reports it. [bytes]
        peak: Weights, activations of the run, context, communicators and graphs. [bytes]
        estimation_cache: Small cache the run used, counted in the peak. [bytes]

    Returns:
        Pool, 0 when nothing is left. [bytes]

    Source:
        NVIDIA/TensorRT-LLM@7ff5302 tensorrt_llm/_torch/pyexecutor/_util.py KvCacheCreator; the engine backend takes the same part
        of free memory: docs/source/reference/memory.md (0.9 x 70.48 = 63.43 GiB, 63.44 printed)
    """
    return max(0, int(fraction * (total - peak + estimation_cache)))


def execution_context(*, max_num_tokens: int, intermediate_size: int, tensor_parallel_size: int = 1) -> int:
    """
    Activations of a built engine, fixed at build for the largest batch.

    Args:
        max_num_tokens: Tokens of one step. [tokens]
        intermediate_size: Feed-forward width, of all experts a token uses. [elements]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        About ten half-precision rows of the feed-forward; 6.5 to 11 were seen. [bytes]

    Source:
        measured: 0.5B at 8192 tokens 760 MiB (773.5 by this form), 8B at 128k tokens 35.0 GiB (37.8), 7B fp8 6.6 rows
    """
    return 10 * 2 * max_num_tokens * intermediate_size // tensor_parallel_size


def context_run(*, max_num_tokens: int, hidden_size: int, intermediate_size: int, element_bytes: int) -> int:
    """
    Activations of the PyTorch backend's largest context run.

    Args:
        max_num_tokens: Tokens of one step. [tokens]
        hidden_size: Width of the stream. [elements]
        intermediate_size: Feed-forward width on the rank, of all experts a token uses. [elements]
        element_bytes: Compute dtype. [bytes]

    Returns:
        Gate and up in one product, the activated row, and four rows of the stream. [bytes]

    Source:
        NVIDIA/TensorRT-LLM@7ff5302 tensorrt_llm/_torch/modules/gated_mlp.py (fused gate_up_proj); not measured
    """
    return max_num_tokens * element_bytes * (3 * intermediate_size + 4 * hidden_size)


def decoder_buffers(*, max_batch_size: int, vocab_size: int) -> int:
    """
    Sampling state of the C++ decoder: logits, probabilities and their workspaces for every slot.

    Args:
        max_batch_size: Slots. [requests]
        vocab_size: Vocabulary. [elements]

    Returns:
        5.4 fp32 rows per slot; 5.0 to 5.8 were seen. [bytes]

    Source:
        measured: TensorRT-LLM logs of a 0.5B model (max_batch_size 2048: 5.76 GiB) and of an 8B model
    """
    return max_batch_size * vocab_size * 4 * 54 // 10


def runtime_buffers(*, max_batch_size: int, vocab_size: int) -> int:
    """
    Input and output tensors of the C++ runtime.

    Args:
        max_batch_size: Slots. [requests]
        vocab_size: Vocabulary. [elements]

    Returns:
        1.9 fp32 rows per slot; 1.4 to 2.3 were seen. [bytes]

    Source:
        measured: the same logs (2.66 GiB at max_batch_size 2048)
    """
    return max_batch_size * vocab_size * 4 * 19 // 10


def communicator(*, tensor_parallel_size: int) -> int:
    """
    NCCL buffers of one tensor-parallel group.

    Args:
        tensor_parallel_size: Ranks; one needs none. [unitless]

    Returns:
        342 MiB for two ranks, 392 for more. [bytes]

    Source:
        ai-dynamo/aiconfigurator@095f58a systems/*.yaml (nccl_mem)
    """
    if tensor_parallel_size == 1:
        return 0
    return (342 if tensor_parallel_size == 2 else 392) * MiB


def captured() -> int:
    """
    Graphs of decode batches.

    Returns:
        Typical size; no log states one. [bytes]

    Source:
        assumed; NVIDIA/TensorRT-LLM@7ff5302 tensorrt_llm/_torch/pyexecutor/cuda_graph_runner.py
    """
    return 500 * MiB
