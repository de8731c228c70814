"""What a process holds on a GPU beside its tensors: communicators, their workspaces, tables of requests."""

from tonnage.units import GiB, MiB, round_up

MULTICAST_GRANULARITY = 512 * MiB


def custom_all_reduce(*, buffer: int = 8 * MiB, buffers: int = 2) -> int:
    """
    Registered buffers of the custom all-reduce kernel.

    Args:
        buffer: One buffer. [bytes]
        buffers: How many. [unitless]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/distributed/device_communicators/custom_all_reduce.py CustomAllreduce (max_size
        = 8192 x 1024)
    """
    return buffer * buffers


NCCL = GiB
"""Communicators of one training process; measured 0.5 to 1.9 GiB. [bytes]"""


def training_communicators(*, ranks: int, built_alone: bool) -> int:
    """
    NCCL's buffers and channels in a training process.

    Args:
        ranks: Ranks of the job. [unitless]
        built_alone: The framework initialises communication with one rank too (DeepSpeed).

    Returns:
        Size; half of it for a group of one. [bytes]

    Source:
        NVIDIA/nccl issues 964, 864; deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/engine.py (init_distributed)
    """
    if ranks > 1:
        return NCCL
    return NCCL // 2 if built_alone else 0


def growth_outside_torch(*, modules: int, runner_buffers: int = 0, host: int = 0) -> int:
    """
    What a GPU holds more after a profile run than before the model, torch's own pool apart ("non-torch").

    Args:
        modules: Kernels loaded on the way and their local memory; measured by release and card. [bytes]
        runner_buffers: Buffers of the runner, where free memory is what is compared. [bytes]
        host: Growth of the processes on the host, where it is the same memory. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.27.0 vllm/utils/mem_utils.py MemorySnapshot.measure (free memory; of the host on integrated
        GPUs); constants measured, see catalog/data/engines/vllm.toml
    """
    return modules + runner_buffers + host


SYMMETRIC_MEMORY_9 = {2: 64 * MiB, 4: 32 * MiB, 6: 64 * MiB, 8: 64 * MiB}


def symmetric_memory(*, tensor_parallel_size: int, major: int) -> int:
    """
    Buffer of torch's symmetric memory, which data-centre Hopper and Blackwell open for all-reduce.

    Args:
        tensor_parallel_size: Ranks. [unitless]
        major: Major number of the compute capability. [unitless]

    Returns:
        Size, 0 where it is not used. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/distributed/device_communicators/all_reduce_utils.py SYMM_MEM_ALL_REDUCE_MAX_SIZES
    """
    return SYMMETRIC_MEMORY_9.get(tensor_parallel_size, 0) if major in (9, 10) else 0


FUSION_LIMIT_MIB: dict[int, dict[int, float]] = {9: {2: 64, 4: 2, 8: 0.5}, 10: {2: 64, 4: 32, 8: 1}}


def fusion_workspace(*, tensor_parallel_size: int, major: int, granular: bool) -> int:
    """
    FlashInfer's workspace for all-reduce fused with the norm.

    Args:
        tensor_parallel_size: Ranks. [unitless]
        major: Major number of the compute capability. [unitless]
        granular: Each of its three buffers is rounded up to the multicast granularity (FlashInfer before 0.6.11).

    Returns:
        Size, 0 for ranks or cards without it. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/compilation/passes/fusion/allreduce_rms_fusion.py FI_ALLREDUCE_FUSION_MAX_SIZE_MB;
        flashinfer-ai/flashinfer@0.6.6 flashinfer/comm/trtllm_ar.py trtllm_create_ipc_workspace_for_all_reduce_fusion,
        mnnvl.py
    """
    limit = FUSION_LIMIT_MIB.get(major, {}).get(tensor_parallel_size)
    if limit is None:
        return 0
    exact = int(4 * tensor_parallel_size * limit * MiB)
    return 3 * round_up(exact // 4, MULTICAST_GRANULARITY) if granular else exact


def request_table(*, requests: int, max_model_len: int, extra_tokens: int = 4, element_bytes: int = 4) -> int:
    """
    Map from every running request's positions to cache slots.

    Args:
        requests: Rows of the table. [requests]
        max_model_len: Longest request. [tokens]
        extra_tokens: Columns beyond it. [tokens]
        element_bytes: Width of an index. [bytes]

    Returns:
        Size. [bytes]

    Source:
        sgl-project/sglang@0.5.8 python/sglang/srt/mem_cache/memory_pool.py ReqToTokenPool;
        measured: tests/measured/serving_sglang.json#sgl-r1distill-qwen7b-24g
    """
    return requests * (max_model_len + extra_tokens) * element_bytes


def block_tables(*, max_num_seqs: int, max_model_len: int, block_size: int, element_bytes: int = 4) -> int:
    """
    Block numbers of every running request.

    Args:
        max_num_seqs: Running requests. [requests]
        max_model_len: Longest request. [tokens]
        block_size: Cache block. [tokens]
        element_bytes: Width of a block number. [bytes]

    Returns:
        Size. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/block_table.py BlockTable (max_num_reqs x max_num_blocks_per_req, int32)
    """
    return max_num_seqs * -(-max_model_len // block_size) * element_bytes
