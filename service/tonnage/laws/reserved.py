"""
How much more the caching allocator holds than the tensors in it.

Reserved memory is what is resident, and a multiple of what comes and goes: segments that were cut for one size serve no
larger one and are never merged. The multiples come from replays of recorded allocations through a model of the allocator
(tests/oracles/caching_allocator.py) and were then checked against measured runs.
"""

from tonnage.units import MiB

CUBLAS_SEGMENT = 20 * MiB
"""A cuBLAS workspace of 8.5 MB takes a segment of its own. [bytes]"""


def transient_share(*, transient: int, ratio_percent: int) -> int:
    """
    What the allocator holds beyond the tensors, when resident memory does not move.

    Args:
        transient: Allocated peak less what is resident between steps. [bytes]
        ratio_percent: Reserved over allocated of what comes and goes. [percent]

    Returns:
        Reserved less allocated. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 c10/cuda/CUDACachingAllocator.cpp; ratios: tests/oracles/training_runs.json, measured:
        tests/measured/training.json#swift-qwen-7b-lora-2048
    """
    return transient * (ratio_percent - 100) // 100 + CUBLAS_SEGMENT


def whole_share(*, allocated: int, ratio_percent: int) -> int:
    """
    The same where shards are gathered and freed all the time: a part of everything.

    Args:
        allocated: Allocated peak. [bytes]
        ratio_percent: Reserved over allocated. [percent]

    Returns:
        Reserved less allocated. [bytes]

    Source:
        measured: tests/measured/training.json#titan-8b-8h100-0 (1.06), #tt-l31-70b-lora-8a100 (1.08), two GPUs or offload
        1.2, FSDP1 with offload 1.4, ZeRO-3 1.2
    """
    return allocated * (ratio_percent - 100) // 100


LIVE_AND_REUSED = 2_000_000_000
"""DeepSpeed's stage3_max_live_parameters and stage3_max_reuse_distance together. [elements]"""


def gathered_pool(*, weights: int, activations: int, logits: int, ratio_percent: int) -> int:
    """
    What the allocator holds beyond the tensors where parameters are gathered one by one and freed again (ZeRO-3).

    Partitions, master weights and states are flat buffers that never move: only blocks that gathered parameters have left
    behind count, a multiple of what DeepSpeed may keep gathered, and little of what checkpoints and logits take.

    Args:
        weights: 16-bit (or packed) weights of the whole model on this rank before they are partitioned. [bytes]
        activations: Activations at the peak. [bytes]
        logits: Logits at the peak. [bytes]
        ratio_percent: Blocks left behind over what may be gathered. [percent]

    Returns:
        Reserved less allocated. [bytes]

    Source:
        deepspeedai/DeepSpeed@edaa72212 deepspeed/runtime/zero/config.py; measured: tests/measured/training.json
        #qwen-72b-lora-z3-256 to -8192, heldout_training.json#qwen-1.8b-full-256 to -8192, #stas-8b-z3-32k to -256k
    """
    gathered = min(weights, 2 * LIVE_AND_REUSED)
    return gathered * ratio_percent // 100 + activations * 3 // 100 + logits // 10


PINNED = 35
"""Of the tensors, most of what pinned segments hold over them. [percent]"""


def pinned(*, allocated: int) -> int:
    """
    Most that a full card cannot give back where parameters are gathered and freed (ZeRO-3): a live block keeps its segment.

    Args:
        allocated: Tensors. [bytes]

    Returns:
        Reserved less allocated when nothing more can be had. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 c10/cuda/CUDACachingAllocator.cpp release_cached_blocks (whole free segments only); measured:
        tests/measured/heldout_training_decisions.json#lf-6531 (ran out after a while, with lengths that vary)
    """
    return allocated * PINNED // 100


def capped(*, reserved: int, allocated: int, usable: int) -> int:
    """
    Pressure: a failing request empties the cache, so that the pool stays within the card.

    Args:
        reserved: Pool without pressure. [bytes]
        allocated: Tensors in it. [bytes]
        usable: What the card leaves to the allocator. [bytes]

    Returns:
        Pool, never less than its tensors. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 c10/cuda/CUDACachingAllocator.cpp (release_cached_blocks before it gives up); measured:
        tests/measured/training.json#swift-yi-34b-lora-4096
    """
    return max(allocated, min(reserved, usable))


def unavoidable(*, transient: int, percent: int) -> int:
    """
    Fragments that remain when the allocator has returned every whole segment.

    Args:
        transient: What comes and goes within a step. [bytes]
        percent: Part of it that is stuck. [percent]

    Returns:
        Size. [bytes]

    Source:
        reserved but unallocated in out-of-memory texts on full cards: 0.3 to 0.7 GiB (vllm-project/vllm issue 27508), 3.5
        GiB of 80 (modelscope/ms-swift issue 5943)
    """
    return transient * percent // 100
