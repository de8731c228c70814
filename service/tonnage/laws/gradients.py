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
