"""
How the CUDA caching allocator of PyTorch counts tensors and takes memory from the driver.

Requests are rounded to 512 bytes. Up to 1 MiB they share 2 MiB segments and are counted exactly. Larger
ones come from 20 MiB segments (below 10 MiB) or from segments of their own (rounded to 2 MiB), and a
remainder of at most 1 MiB is not split off: it counts as allocated.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tonnage.units import MiB, ceil_div, round_up

GRANULE = 512
SMALL = MiB
SMALL_SEGMENT = 2 * MiB
OWN_SEGMENT = 10 * MiB
SHARED_SEGMENT = 20 * MiB
ROUNDING = 2 * MiB


def block(*, request: int) -> int:
    """
    One request rounded to the allocator's granularity.

    Args:
        request: Size of the tensor. [bytes]

    Returns:
        Multiple of 512. [bytes]

    Source:
        pytorch/pytorch@2.6 c10/cuda/CUDACachingAllocator.cpp round_size (kMinBlockSize)
    """
    return round_up(request, GRANULE)


def segment(*, request: int) -> int:
    """
    What the driver is asked for when no free block fits.

    Args:
        request: Size of the tensor. [bytes]

    Returns:
        2 MiB up to 1 MiB, 20 MiB below 10 MiB, else the request rounded to 2 MiB. [bytes]

    Source:
        pytorch/pytorch@2.6 c10/cuda/CUDACachingAllocator.cpp get_allocation_size
    """
    if request <= SMALL:
        return SMALL_SEGMENT
    return SHARED_SEGMENT if request < OWN_SEGMENT else round_up(request, ROUNDING)


class Placement(NamedTuple):
    """Resident tensors in the segments they lie in."""

    tensors: int
    """[bytes]"""
    remainders: int
    """Counted with them because they are not split off. [bytes]"""
    unused: int
    """Of the segments taken from the driver. [bytes]"""
    gaps: tuple[int, ...]
    """Free blocks above 1 MiB, smallest first. [bytes]"""

    @property
    def allocated(self) -> int:
        """As memory_allocated() counts. [bytes]"""
        return self.tensors + self.remainders

    @property
    def reserved(self) -> int:
        """As memory_reserved() counts. [bytes]"""
        return self.tensors + self.remainders + self.unused


def placed(*, tensors: Iterable[tuple[int, int]], warm: int = 0) -> Placement:
    """
    Resident tensors placed one by one: best fit among free blocks, else a new segment.

    Args:
        tensors: Size and count of equal tensors, in the order they are made. [bytes]
        warm: One block taken and freed before the first tensor (transformers' allocator warm-up). [bytes]

    Returns:
        Tensors, what is counted with them, the rest of the segments taken from the driver, and free blocks. [bytes]

    Source:
        pytorch/pytorch@2.6 c10/cuda/CUDACachingAllocator.cpp get_free_block, should_split, alloc_found_block
    """
    free = [segment(request=warm)] if warm > SMALL else []
    tensor_bytes, remainders, held, small = 0, 0, sum(free), 0
    for request, count in tensors:
        size, left = block(request=request), count
        tensor_bytes += size * count
        if size <= SMALL:
            small += size * count
            continue
        while left > 0:
            position = bisect_left(free, size)
            reused = position < len(free)
            space = free.pop(position) if reused else segment(request=size)
            fitting = min(left, space // size)
            equal = 1 if reused else left // fitting
            remainder = space - fitting * size
            left -= equal * fitting
            held += 0 if reused else equal * space
            remainders += equal * _kept(remainder)
            if remainder > SMALL:
                at = bisect_left(free, remainder)
                free[at:at] = [remainder] * equal
    held += ceil_div(small, SMALL_SEGMENT) * SMALL_SEGMENT
    return Placement(tensor_bytes, remainders, held - tensor_bytes - remainders, tuple(free))


def allocated(*, tensors: Iterable[tuple[int, int]], warm: int = 0) -> int:
    """
    Resident tensors as memory_allocated() counts them, remainders that are not split off included.

    Args:
        tensors: Size and count of equal tensors, in the order they are made. [bytes]
        warm: One block taken and freed before the first tensor (transformers' allocator warm-up). [bytes]

    Returns:
        Counted size, at least the sum of the tensors. [bytes]

    Source:
        pytorch/pytorch@2.6 c10/cuda/CUDACachingAllocator.cpp should_split (remaining > kSmallSize), alloc_found_block
    """
    return placed(tensors=tensors, warm=warm).allocated


def reserved(*, tensors: Iterable[tuple[int, int]], warm: int = 0) -> int:
    """
    Segments that hold the resident tensors, as memory_reserved() counts them.

    Args:
        tensors: Size and count of equal tensors, in the order they are made. [bytes]
        warm: One block taken and freed before the first tensor. [bytes]

    Returns:
        Segments taken from the driver. [bytes]

    Source:
        pytorch/pytorch@2.6 c10/cuda/CUDACachingAllocator.cpp get_allocation_size, alloc_block
    """
    return placed(tensors=tensors, warm=warm).reserved


def unsplit_remainders(*, free: Sequence[int], request: int, count: int) -> int:
    """
    What later tensors count beyond their own size when they land in the gaps, then in shared segments.

    Args:
        free: Gaps, smallest first. [bytes]
        request: Size of each tensor. [bytes]
        count: How many. [unitless]

    Returns:
        Remainders of at most 1 MiB that are not split off; 0 for tensors with segments of their own. [bytes]

    Source:
        pytorch/pytorch@2.6 c10/cuda/CUDACachingAllocator.cpp should_split; measured: Qwen2.5-0.5B tables at 6144 tokens
    """
    request = block(request=request)
    if not SMALL < request < OWN_SEGMENT:
        return 0
    counted = 0
    for gap in free[bisect_left(free, request) :]:
        if count <= 0:
            return counted
        fitting = min(count, gap // request)
        count -= fitting
        counted += _kept(gap - fitting * request)
    per_segment = SHARED_SEGMENT // request
    return counted + count // per_segment * _kept(SHARED_SEGMENT - per_segment * request)


def _kept(remainder: int) -> int:
    return remainder if remainder <= SMALL else 0


WARM_UP_PIECES = 62
"""Percent of a profiled peak that came back in pieces. [percent]"""


def warm_up_slack(*, profiled: int) -> int:
    """
    Most of what the allocator holds in pieces when a serving engine runs its sampler again after graphs and cache exist.

    Args:
        profiled: Peak of the profile run, which the budget has set aside. [bytes]

    Returns:
        Reserved and of no use to the sampler's tensors. [bytes]

    Source:
        measured: llm-d-incubation/llm-d-planner gpt-oss-20b at 0.95 of an H100 (vLLM 0.19.0): 1.78 GiB reserved but
        unallocated after a peak of 2.87, 552 MiB free where 786 MiB were asked for; vllm-project/vllm issue 30521
    """
    return profiled * WARM_UP_PIECES // 100
