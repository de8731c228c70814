"""A fit request read once: texts as numbers, names resolved, the layouts it leaves open."""

from decimal import Decimal
from functools import cached_property

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.backends import runs
from tonnage.fit.pricing import duration_hours, money
from tonnage.spec.card import Placement, Size
from tonnage.spec.engine import Profile
from tonnage.spec.fit import Allow, FitRequest, Requirements
from tonnage.units import parse_size

DEFAULT_MAX_PRICE_AGE_DAYS = 365


class Need:
    """What stays fixed while packages are compared."""

    def __init__(self, request: FitRequest, *, newest_price: str | None, tool: Profile | None = None) -> None:
        """
        Need of one request.

        Args:
            request: As decoded.
            tool: The engine or framework; None: neither is stated.
            newest_price: Newest date among the catalogue's prices; stands for today where no order date is given.
        """
        self.request = request
        self.serving = request.serving
        self.training = request.training
        self.engine = None if request.serving is None else str(request.serving.__struct_config__.tag)
        self.framework = None if request.training is None else request.training.framework
        self.hardware = runs(tool)
        self.today = request.requirements.order_date or newest_price

    @property
    def wanted(self) -> Requirements:
        """The caller's requirements."""
        return self.request.requirements

    @property
    def allow(self) -> Allow:
        """What the search may change."""
        return self.request.offer.allow

    @property
    def spare(self) -> float:
        """Part of the usable memory that must stay free. [fraction]"""
        return self.wanted.min_headroom_fraction or 0.0

    @cached_property
    def kinds_apart(self) -> frozenset[str]:
        """Kinds of offers that are no order: interruptible, and of a marketplace nobody asked for."""
        offer, allow = self.request.offer, self.allow
        asked = allow.marketplace or offer.skus is not None or offer.providers is not None
        return frozenset(([] if allow.spot else ["spot"]) + ([] if asked else ["marketplace"]))

    @cached_property
    def hours(self) -> Decimal | None:
        """Asked duration. [hours]"""
        duration = self.wanted.duration
        return None if duration is None else duration_hours(duration)

    @cached_property
    def budget(self) -> tuple[Decimal, str] | None:
        """Highest total and its currency."""
        return None if self.wanted.max_price is None else money(self.wanted.max_price)

    @cached_property
    def currency(self) -> str:
        """Currency prices are compared in; others are shown, never converted."""
        if self.wanted.currency is not None and self.budget is not None and self.budget[1] != self.wanted.currency:
            raise ContradictoryWorkload("max_price and currency name two currencies", pointer="/requirements/currency")
        return self.wanted.currency or (self.budget[1] if self.budget is not None else "USD")

    @cached_property
    def bandwidth(self) -> int | None:
        """Lowest memory bandwidth. [bytes per second]"""
        rate = self.wanted.min_bandwidth
        return parse_size(rate.removesuffix("/s")) if isinstance(rate, str) else rate

    @cached_property
    def host_memory(self) -> int:
        """Host memory the caller asks for, 0 without. [bytes]"""
        return _size(self.wanted.min_host_memory)

    @cached_property
    def disk(self) -> int:
        """Disk the caller asks for, 0 without. [bytes]"""
        return _size(self.wanted.min_disk)

    @cached_property
    def fixed_layout(self) -> Placement | None:
        """The layout the caller fixes, None when the search is free."""
        p = self.request.placement
        sizes = (p.tensor_parallel_size, p.pipeline_parallel_size, p.data_parallel_size, p.context_parallel_size)
        return p if max(sizes) > 1 or p.expert_parallel_size > 1 else None

    @cached_property
    def expert_parallel(self) -> bool:
        """Whether the engine is told to deal whole experts out."""
        return bool(getattr(self.serving, "enable_expert_parallel", False))


def _size(size: Size | None) -> int:
    return 0 if size is None else parse_size(size)
