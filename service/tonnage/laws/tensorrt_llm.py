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


def packed_tokens(
    *, stated: int | None, default: int | None, max_batch_size: int, max_seq_len: int, max_input_len: int
) -> int:
    """
    Tokens of one step that an engine is built for.

    Args:
        stated: max_num_tokens as asked for, if at all. [tokens]
        default: The release's own; None where it packs as many prompts as the batch has. [tokens]
        max_batch_size: Requests. [requests]
        max_seq_len: Longest request. [tokens]
        max_input_len: Longest prompt the release builds for when nothing is said. [tokens]

    Returns:
        Never more than a batch of longest requests. [tokens]

    Source:
        NVIDIA/TensorRT-LLM@0fccc5b tensorrt_llm/_common.py check_max_num_tokens; @027cd51 examples/llama/build.py (max_input_len
        2048, max_num_tokens None)
    """
    longest = max_batch_size * max_seq_len
    if stated is not None:
        return min(stated, longest)
    return min(default, longest) if default is not None else max_batch_size * min(max_seq_len, max_input_len)


def execution_context(
    *,
    max_num_tokens: int,
    hidden_size: int,
    intermediate_size: int,
    feed_forward_rows: float,
    stream_rows: float,
    tensor_parallel_size: int = 1,
) -> int:
    """
    Activations of a built engine, fixed at build for the largest batch: half-precision rows.

    Args:
        max_num_tokens: Tokens of one step. [tokens]
        hidden_size: Width of the stream. [elements]
        intermediate_size: Feed-forward width, of all experts a token uses. [elements]
        feed_forward_rows: Rows of the feed-forward that live at once in this release. [rows]
        stream_rows: Rows of the stream beside them. [rows]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        Size. [bytes]

    Source:
        measured: 0.5B at 8192 tokens 773.5 MiB and 8B at 128k tokens 37.8 GiB (10 rows of the feed-forward, builds of 2024-11
        on); GPT-J FP8 at 8192 tokens 929 MiB (0.12: three and two, 896 by this form); 7B fp8 6.6 rows
    """
    rows = feed_forward_rows * intermediate_size / tensor_parallel_size + stream_rows * hidden_size
    return int(2 * max_num_tokens * rows)


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


def slot_rows(*, rows: float, max_batch_size: int, vocab_size: int) -> int:
    """
    Buffers of the C++ decoder or runtime: fp32 rows over the vocabulary for every slot.

    Args:
        rows: Rows a slot, by release. [rows]
        max_batch_size: Slots. [requests]
        vocab_size: Vocabulary. [elements]

    Returns:
        Size. [bytes]

    Source:
        measured: decoder 5.0 to 5.8 and runtime 1.4 to 2.3 rows in logs of a 0.5B model at 2048 slots (5.76 and 2.66 GiB), of an
        8B model, and of GPT-J at 4096 slots (4.05 and 1.06 GiB), where 3.8 rows more stand in no line; 4.9 rows in all at 2048
        slots of 0.19 (RTX 5090)
    """
    return int(rows * max_batch_size * vocab_size * 4)


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
