"""Releases of mlx-lm."""

from tonnage.spec.engine import Release


class Mlx(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of mlx-lm."""

    prefill_step_size: int
    """Tokens of one prompt step. [tokens]"""
    warns_above: float
    """Part of the working set above which weights make it slow. [fraction]"""


RELEASE = Mlx
