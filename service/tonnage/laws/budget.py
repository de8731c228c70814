"""What part of a card an engine claims for its cache, by how it was told to."""

from tonnage.units import GiB


def fraction_of_total(*, fraction: float, total: int) -> int:
    """
    Budget of an engine that is given a part of the whole card.

    Args:
        fraction: gpu_memory_utilization. [fraction]
        total: Memory of the card as CUDA reports it. [bytes]

    Returns:
        Budget for everything the engine counts. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/utils.py request_memory (ceil(total x gpu_memory_utilization))
    """
    return int(total * fraction)


def asleep(*, claim: int) -> int:
    """
    What a colocated engine keeps while it sleeps: context, graphs and buffers that its pool does not own.

    Args:
        claim: What it takes awake. [bytes]

    Returns:
        1.5 GiB, at most what it took. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/device_allocator/cumem.py sleep (only what the pool allocated), docs/features/sleep_mode.md
    """
    return min(claim, GiB + GiB // 2)


def pool_of_budget(*, budget: int, weights: int, activation: int, non_torch: int, graphs: int = 0) -> int:
    """
    Cache pool that remains of a budget.

    Args:
        budget: Part of the card the engine may use. [bytes]
        weights: Weights, buffers and adapter slots. [bytes]
        activation: Peak of the profile run. [bytes]
        non_torch: Increase outside torch. [bytes]
        graphs: Graph memory the engine sets aside. [bytes]

    Returns:
        Pool; negative when the budget holds no cache at all. [bytes]

    Source:
        vllm-project/vllm@0.19.0 vllm/v1/worker/gpu_worker.py determine_available_memory
    """
    return budget - weights - activation - non_torch - graphs


def pool_of_static_fraction(*, fraction: float, free_before: int, free_after: int) -> int:
    """
    Cache pool of an engine whose fraction covers weights and cache and is measured on free memory.

    Args:
        fraction: mem_fraction_static. [fraction]
        free_before: Free before the weights are loaded. [bytes]
        free_after: Free once they are. [bytes]

    Returns:
        Pool; negative when the fraction is used up by the weights. [bytes]

    Source:
        sgl-project/sglang@0.5.8 python/sglang/srt/model_executor/model_runner.py profile_max_num_token (rest_memory)
    """
    return free_after - int(free_before * (1 - fraction))


def smallest_fraction(*, needed: int, total: int) -> float:
    """
    Smallest fraction of the card that holds a need, in steps of one hundredth.

    Args:
        needed: Everything the engine counts, the cache of the demand included. [bytes]
        total: Memory of the card as CUDA reports it. [bytes]

    Returns:
        Fraction; above 1 when the card itself is too small. [fraction]

    Source:
        inverse of fraction_of_total
    """
    return -(-100 * needed // total) / 100
