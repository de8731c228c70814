"""Which device of llama.cpp holds which layer (-sm layer)."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def first_offloaded(*, num_layers: int, n_gpu_layers: int) -> int:
    """
    First unit that goes to a GPU: the last units do, the output matrix being the very last.

    Args:
        num_layers: Repeating layers. [layers]
        n_gpu_layers: -ngl; num_layers + 1 offloads everything. [layers]

    Returns:
        Index of the first offloaded unit; num_layers is the output alone, num_layers + 1 nothing. [layers]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-model.cpp load_tensors (i_gpu_start)
    """
    return max(num_layers + 1 - n_gpu_layers, 0)


def device_of_unit(*, unit: int, first: int, offloaded: int, shares: Sequence[float]) -> int:
    """
    Device of one offloaded unit: the first whose cumulative share exceeds the unit's position.

    Args:
        unit: Layer, or num_layers for the output. [layers]
        first: First offloaded unit. [layers]
        offloaded: Offloaded units. [layers]
        shares: -ts, or the free memory of each device at load. [unitless]

    Returns:
        Index of the device. [unitless]

    Source:
        ggml-org/llama.cpp@0c1e57098 src/llama-model.cpp load_tensors (splits, std::upper_bound)
    """
    total = sum(shares)
    bounds = [part / total for part in accumulate(shares)]
    return min(bisect_right(bounds, (unit - first) / offloaded), len(shares) - 1)
