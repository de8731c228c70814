"""
What `torch.cuda.max_memory_reserved` would say of a sequence of allocations.

A model of CUDACachingAllocator with default settings, one stream, no expandable segments, no pressure:
pytorch/pytorch@v2.8.0 c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split,
get_free_block, free_block).
"""

import bisect
from dataclasses import dataclass

ROUND = 512
SMALL = 2**20
SMALL_SEGMENT = 2 * 2**20
LARGE_SEGMENT = 20 * 2**20
LARGE_FROM = 10 * 2**20
ROUND_LARGE = 2 * 2**20


def rounded(size):
    """Bytes a tensor really takes."""
    return max(-(-size // ROUND), 1) * ROUND


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment; neighbours are linked so that free ones merge."""

    address: int
    size: int
    small: bool
    before: "Block | None" = None
    after: "Block | None" = None
    free: bool = False

    @property
    def key(self):
        """Best fit: by size, then by address."""
        return self.size, self.address


class CachingAllocator:
    """Blocks come from segments, segments are never returned: the figure without memory pressure."""

    def __init__(self):
        self.reserved = self.allocated = self.peak_reserved = self.peak_allocated = 0
        self._free = {True: [], False: []}
        self._next_segment = 1

    def malloc(self, size):
        """Smallest free block that holds it, else a new segment; what is left over is split off."""
        size = rounded(size)
        small = size <= SMALL
        pool = self._free[small]
        position = bisect.bisect_left(pool, (size, -1), key=lambda block: block.key)
        block = pool.pop(position) if position < len(pool) else self._segment(size, small=small)
        block.free = False
        self._split(block, size)
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def release(self, block):
        """The block joins its free neighbours."""
        self.allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._take(neighbour)
                self._join(block, neighbour)
        block.free = True
        bisect.insort(self._free[block.small], block, key=lambda b: b.key)

    def _segment(self, size, *, small):
        if small:
            total = SMALL_SEGMENT
        elif size < LARGE_FROM:
            total = LARGE_SEGMENT
        else:
            total = -(-size // ROUND_LARGE) * ROUND_LARGE
        self.reserved += total
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self._next_segment += 1
        return Block(address=self._next_segment << 50, size=total, small=small)

    def _split(self, block, size):
        rest = block.size - size
        if rest < (ROUND if block.small else SMALL + 1):
            return
        tail = Block(block.address + size, rest, block.small, before=block, after=block.after, free=True)
        if block.after is not None:
            block.after.before = tail
        block.after, block.size = tail, size
        bisect.insort(self._free[block.small], tail, key=lambda b: b.key)

    def _take(self, block):
        pool = self._free[block.small]
        pool.pop(bisect.bisect_left(pool, block.key, key=lambda b: b.key))

    @staticmethod
    def _join(block, neighbour):
        block.size += neighbour.size
        if neighbour is block.before:
            block.address, block.before = neighbour.address, neighbour.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = neighbour.after
            if block.after is not None:
                block.after.before = block
