"""CUDA graphs an engine captures: which batch sizes, and what their nodes and pools take."""


def capture_sizes(*, largest: int, step_above_256: int) -> tuple[int, ...]:
    """
    Batch sizes captured by default.

    Args:
        largest: Largest captured batch. [requests]
        step_above_256: Distance between sizes from 256 on; 8 below. [requests]

    Returns:
        Sizes, ascending. [requests]

    Source:
        vllm-project/vllm@0.19.0 vllm/config/vllm.py _set_cudagraph_sizes; 0.11.0 same symbol (step 8 throughout)
    """
    fine = (size for size in (1, 2, 4) if size <= largest)
    eights = range(8, min(largest + 1, 256), 8)
    coarse = range(256, largest + 1, step_above_256)
    return (*fine, *eights, *coarse)


def largest_capture(*, max_num_seqs: int, tokens_per_request: int, limit: int, max_num_batched_tokens: int) -> int:
    """
    Largest batch captured by default.

    Args:
        max_num_seqs: Running requests. [requests]
        tokens_per_request: 1, and one more for every speculative token. [tokens]
        limit: The engine's cap. [requests]
        max_num_batched_tokens: Batch of a step. [tokens]

    Returns:
        Size. [requests]

    Source:
        vllm-project/vllm@0.19.0 vllm/config/vllm.py _set_cudagraph_sizes (min(max_num_seqs * 2, 512))
    """
    return min(2 * max_num_seqs * tokens_per_request, limit, max_num_batched_tokens)


def decode_capture_sizes(*, max_num_seqs: int) -> tuple[int, ...]:
    """
    Batch sizes that the V0 engine captures: 1, 2, 4 and steps of 8 up to the running requests rounded up.

    Args:
        max_num_seqs: Running requests. [requests]

    Returns:
        Sizes, ascending. [requests]

    Source:
        vllm-project/vllm@0.6.4 vllm/worker/model_runner.py _get_graph_batch_size, _BATCH_SIZES_TO_CAPTURE
    """
    last = max_num_seqs if max_num_seqs <= 2 else 4 if max_num_seqs <= 4 else -(-max_num_seqs // 8) * 8
    return tuple(size for size in (1, 2, 4) if size <= last) + tuple(range(8, last + 1, 8))


def captured(*, layers: int, sizes: int, base: int, per_size: int, per_node: int) -> int:
    """
    What capturing takes beside the buffers of the captured batches: a base, and nodes by size and layer.

    Args:
        layers: Decoder layers of this rank. [layers]
        sizes: Captured batch sizes. [unitless]
        base: Capture-stream workspaces and the first graph. [bytes]
        per_size: Of every captured size whatever the layers. [bytes]
        per_node: Nodes of one layer at one size. [bytes]

    Returns:
        Size. [bytes]

    Source:
        measured: tests/measured/serving_vllm.json (28 start-up logs of 0.19 on H100; constants in
        catalog/data/engines/vllm.toml)
    """
    return base + sizes * (per_size + layers * per_node)


def captured_buffers(*, rows: int, width: int, buffers: float, element_bytes: int = 2) -> int:
    """
    Buffers of the largest captured batch that the graphs' common pool keeps.

    Args:
        rows: Largest captured batch, times the experts of a token for experts' outputs. [requests]
        width: Width of the buffers. [elements]
        buffers: How many stay. [unitless]
        element_bytes: dtype. [bytes]

    Returns:
        Size. [bytes]

    Source:
        as `captured`
    """
    return int(buffers * rows * width * element_bytes)


def captured_adapters(*, layers: int, sizes: int, per_node: int) -> int:
    """
    More memory of graphs in which adapters may be active: two kernels for every adapted matrix.

    Args:
        layers: Decoder layers of this rank. [layers]
        sizes: Captured batch sizes. [unitless]
        per_node: Adapters' nodes of one layer and one size, and the same size without adapters where both are
            captured. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.11.1 vllm/v1/cudagraph_dispatcher.py initialize_cudagraph_keys (has_lora: both cases);
        constants measured, see catalog/data/engines/vllm.toml
    """
    return layers * sizes * per_node


def captured_reductions(*, layers: int, sizes: int, per_reduction: int) -> int:
    """
    Memory of all-reduces that NCCL captures: two per layer and size, where no custom kernel takes their place.

    Args:
        layers: Decoder layers of this rank. [layers]
        sizes: Captured batch sizes. [unitless]
        per_reduction: One captured all-reduce. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm issue 7553 (Yi-34B on 4 x RTX 4090, 2,464 MiB); measured:
        tests/measured/serving_sglang.json#sgl-qwq32b-l4x4
    """
    return 2 * layers * sizes * per_reduction


def indexer_logits(*, rows: int, max_model_len: int) -> int:
    """
    Scores of a sparse-attention indexer over the longest request, which a full decode graph keeps in its pool.

    Args:
        rows: Largest captured decode batch. [tokens]
        max_model_len: Longest request. [tokens]

    Returns:
        One fp32 score for every row and position. [bytes]

    Source:
        vllm-project/vllm@0.26.0 vllm/model_executor/layers/sparse_attn_indexer.py (decode), vllm/utils/deep_gemm.py
        fp8_fp4_paged_mqa_logits ("[B * next_n, max_model_len], dtype torch.float32");
        measured: tests/measured/serving_vllm.json#vllm026-glm52-nvfp4-b200
    """
    return 4 * rows * max_model_len


def dequantized_gate_up(*, hidden_size: int, width: int, element_bytes: int) -> int:
    """
    One gate and up projection in 16 bit, which a bitsandbytes graph keeps in its pool.

    Args:
        hidden_size: Width of the model. [elements]
        width: Width of the MLP on this rank, one half. [elements]
        element_bytes: dtype of the model. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.7.3 vllm/model_executor/layers/quantization/bitsandbytes.py _apply_4bit_weight;
        measured: tests/measured/serving_vllm.json#vllm-uns-llama31-8b-bnb-t4
    """
    return 2 * width * hidden_size * element_bytes


def allowance_by_batch(*, largest: int, bytes_per_request: int) -> int:
    """
    Graph memory as an engine allows for it when it chooses its memory fraction.

    Args:
        largest: Largest captured batch. [requests]
        bytes_per_request: The engine's own figure. [bytes]

    Returns:
        Size. [bytes]

    Source:
        sgl-project/sglang@0.5.8 python/sglang/srt/server_args.py _handle_gpu_memory_settings (2 MiB x
        cuda_graph_max_bs)
    """
    return largest * bytes_per_request
