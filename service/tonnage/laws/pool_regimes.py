"""
How much the caching allocator's pool exceeds its tensors, by what comes and goes: the figures of `laws.reserved`.

Where no measured run is named, ratios come from replays of recorded allocations through a model of the allocator
(tests/oracles/caching_allocator.py, tests/oracles/training_runs.json).
"""

from typing import NamedTuple


class Ratio(NamedTuple):
    """Reserved over allocated of a regime, with its spread. [percent]"""

    expected: int
    low: int
    high: int
    whole: bool
    """Of everything that is allocated, not only of what comes and goes."""
    why: str
    gathered: int = 0
    """Gathered parameters that the pool holds once more, on a stream of their own. [percent]"""
    after: bool = False
    """Of what came and went before: the step finds those blocks cut too small for gradients and copies."""


FREED = 2 / 5
"""
Part of the last step's gradients that activations may have cut, at most. [fraction]

Source: replays of tests/oracles/training_runs.json: 95 % of them lie below
"""

FIXED = Ratio(115, 102, 148, False, "fixed length")
FIXED_RECOMPUTED = Ratio(123, 104, 165, False, "fixed length, checkpointed")
BUCKETED = Ratio(103, 95, 125, False, "batches of similar length: the longest stay below the cap")
LONGEST_FIRST = Ratio(125, 110, 165, False, "longest sample first")
ATTENTION_MATRICES = Ratio(125, 105, 180, False, "attention matrices: many blocks of one size")
VARYING = Ratio(165, 120, 230, False, "lengths vary")

_NEW_LONGEST = "lengths vary: every new longest sample asks for blocks no cached one serves"
RECOMPUTED = {
    1: Ratio(380, 140, 620, False, _NEW_LONGEST),
    2: Ratio(330, 110, 620, False, _NEW_LONGEST),
    3: Ratio(250, 110, 720, False, "lengths vary; few samples reach the cap"),
}
"""
Checkpointed batches of any length, by class of the cap: the higher it is, the fewer samples come near it.

Source: replays of recorded steps with drawn lengths in random order (1.7 to 6.2); measured: the swift rows of
tests/measured/training.json and heldout_training.json
"""

BEFORE_STEP = Ratio(130, 102, 160, False, "blocks of forward and backward remain beside the step's", after=True)
AFTER_UNITS = Ratio(220, 140, 300, False, "blocks of forward and backward remain beside the step's", after=True)
HOOKED = Ratio(125, 105, 150, False, "inputs of one size, units gathered on streams of their own", 50)
"""
What is left of forward and backward at the step, and of units under FSDP1.

Source: pytorch/pytorch@v2.2.0 c10/cuda/CUDACachingAllocator.cpp (a segment that was cut serves no larger request); measured:
tests/measured/heldout_training.json#fms-mistral-7b-full-2g-b2, #fms-llama-3-8b-lora-4g-b8-liger, #fms-powerlm-3b-full-1g-b4-t445
"""
STREAMS = Ratio(140, 100, 185, False, "units are gathered on streams of their own", 100)
"""
FSDP1 on few ranks or with offload: blocks of one stream serve no other.

Source: pytorch/pytorch@v2.2.0 c10/cuda/CUDACachingAllocator.cpp get_free_block (same stream only), torch/distributed/fsdp/
_runtime_utils.py (unshard stream); measured: tests/measured/heldout_training.json#fsdpqlora-llama-2-7b-lora-b4-s2048
"""
FEW_RANKS = Ratio(120, 103, 140, True, "few ranks, or the host")
ZERO3 = Ratio(190, 60, 300, False, "ZeRO-3 gathers and frees parameters")
"""Of what may be gathered: `laws.reserved.gathered_pool`."""
FLAT_BUFFERS = Ratio(108, 102, 125, True, "flat buffers stay, activations come and go")


def measured(*, ratio: float) -> Ratio:
    """
    FSDP of more than two ranks, by what a framework's sharded runs have shown.

    Args:
        ratio: Reserved over allocated; 0: no run is known. [unitless]

    Returns:
        The regime. [percent]

    Source:
        measured: tests/measured/training.json#titan-8b-8h100-0 (1.06), #tt-l31-70b-lora-8a100 (1.08)
    """
    percent = round(100 * ratio) or 110
    return Ratio(percent, max(100, percent - 5), percent + 8, True, "measured on this framework's sharded runs")
