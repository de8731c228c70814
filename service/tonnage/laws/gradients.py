"""Gradients and what data parallelism keeps beside them."""

from tonnage.units import MiB

DDP_FIRST_BUCKET = MiB
DDP_BUCKET = 25 * MiB


def accumulated(*, parameters: int, element_bytes: int) -> int:
    """
    Gradients of all trainable parameters.

    Args:
        parameters: Trainable parameters on the rank. [unitless]
        element_bytes: Width of a gradient: that of the parameter, unless a buffer of its own is kept. [bytes]

    Returns:
        Size. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/csrc/autograd/functions/accumulate_grad.h
    """
    return parameters * element_bytes


def at_point(*, before: int, finished: int, here: int) -> int:
    """
    Gradients that are there at one point of backward.

    Args:
        before: Kept from earlier micro-batches. [bytes]
        finished: Of layers that backward has passed, as far as they stay. [bytes]
        here: Of the layer that is being differentiated. [bytes]

    Returns:
        Size. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/csrc/autograd/functions/accumulate_grad.h; recorded: tests/oracles/training_runs.json
    """
    return max(0, before + finished + here)


def ddp_buckets(*, gradient_bytes: int, view: bool = False) -> int:
    """
    Flat buckets that DDP reduces; `.grad` is a copy unless gradients are views of them.

    Args:
        gradient_bytes: Gradients of all trainable parameters. [bytes]
        view: gradient_as_bucket_view.

    Returns:
        Another copy of the gradients, or nothing. [bytes]

    Source:
        pytorch/pytorch@v2.8.0 torch/nn/parallel/distributed.py (bucket_cap_mb 25, first bucket 1 MiB,
        gradient_as_bucket_view False by default)
    """
    return 0 if view else gradient_bytes
