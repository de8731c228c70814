"""Releases of mlx-lm."""

from tonnage.spec.engine import Release


class Mlx(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of mlx-lm."""

    prefill_step_size: int
    """Tokens of one prompt step. [tokens]"""
    fused_head_dims: tuple[int, ...]
    """Head sizes whose attention over a prompt has a fused kernel. [elements]"""
    warns_above: float
    """Part of the working set above which weights make it slow. [fraction]"""


RELEASE = Mlx
