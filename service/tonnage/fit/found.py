"""
One order under its best layout, judged on every requirement.

What an estimate or a GPU already excludes stays excluded whatever the rest says: the rest is judged when it is shown, or when
the caller's evidence may open the question again.
"""

from collections.abc import Iterable

from msgspec import Struct

from tonnage.fit import hosts, requirements
from tonnage.fit.judged import CONFIRM, EXCLUDED, MET, Judged
from tonnage.fit.need import Need
from tonnage.fit.packages import Order
from tonnage.fit.pricing import Bill, cheapest
from tonnage.fit.technical import Technical
from tonnage.spec.facts import Gpu, WeightFormat
from tonnage.spec.fit import Evidence

Parts = tuple[tuple[Judged, ...], ...]
"""What was judged of the layout, of both, and of the order."""
_NOT_YET: tuple[Judged, ...] = ()


class Ordered:
    """One order with what is judged of it alone, worked out when first asked for."""

    __slots__ = ("_bill", "_judged", "_links", "_priced", "_status", "need", "order")

    def __init__(self, order: Order, need: Need) -> None:
        """
        An order nobody has asked about.

        Args:
            order: Package and hosts.
            need: What the order is for.
        """
        self.order = order
        self.need = need
        self._bill: Bill | None = None
        self._priced = False
        self._judged = _NOT_YET
        self._status = MET
        self._links: dict[int, int] = {}

    @property
    def bill(self) -> Bill | None:
        """The offer it would use and its total; None without one."""
        if not self._priced:
            need, order = self.need, self.order
            self._bill = cheapest(
                order.package.offers,
                hosts=order.hosts,
                hours=need.hours,
                currency=need.currency,
                apart=need.kinds_apart,
            )
            self._priced = True
        return self._bill

    @property
    def judged(self) -> tuple[Judged, ...]:
        """Price, term, region, provider, delivery, age of the price."""
        if self._judged is _NOT_YET:
            self._judged = requirements.of_order(self.order, self.bill, self.need)
            self._status = max([j.status for j in self._judged])
        return self._judged

    @property
    def status(self) -> int:
        """Worst of them."""
        if self._judged is _NOT_YET:
            _ = self.judged
        return self._status

    def both(self, technical: Technical) -> int:
        """Worst of what depends on the layout and the order, without its words."""
        need, status = self.need, hosts.room(technical, self.order, self.need)
        if technical.used > 1:
            width = technical.placement.tensor_parallel_size  # all that links are asked for
            linked = self._links.get(width)
            if linked is None:
                judged = hosts.interconnect(technical, self.order, need)
                linked = self._links[width] = MET if judged is None else judged.status
            status = max(status, linked)
        if need.request.requirements.throughput is not None:
            judged = hosts.throughput(technical, self.order, need)
            status = status if judged is None else max(status, judged.status)
        return status


class Found(Struct, eq=False, gc=False):
    """One order under its best layout of one variant, judged."""

    order: Order
    ordered: Ordered
    technical: Technical
    judge: "Judge"
    status: int
    """Worst of all requirements."""
    _parts: Parts = ()

    @property
    def bill(self) -> Bill | None:
        """Price, or None."""
        return self.ordered.bill

    @property
    def parts(self) -> Parts:
        """Every requirement, judged by now."""
        if not self._parts:
            self._parts = self.judge.parts(self.ordered, self.technical)
        return self._parts

    @property
    def judged(self) -> tuple[Judged, ...]:
        """Every requirement, those of the layout first."""
        return tuple(j for part in self.parts for j in part)

    @property
    def excluded_by(self) -> Judged | None:
        """First requirement that excludes it; the layout's come first."""
        if not self._parts:
            judged = self.judge.of_layout(self.technical)
            first = next((j for j in judged if j.status == EXCLUDED), None)
            if first is not None:
                return first
        return next((j for j in self.judged if j.status == EXCLUDED), None)

    @property
    def missing(self) -> tuple[Judged, ...]:
        """Requirements that need confirmation."""
        return tuple(j for j in self.judged if j.status == CONFIRM)


class Judge:
    """Judges orders for one need; what is said of a layout, a GPU or an order is said once."""

    def __init__(self, need: Need) -> None:
        """
        A judge of one request.

        Args:
            need: What stays fixed, with the caller's evidence.
        """
        self.need = need
        self.evidence = _by_requirement(need.request.evidence)
        self._of_layout: dict[int, tuple[Technical, int]] = {}
        """By identity of the layout, which is kept alive beside it."""
        self._of_gpu: dict[tuple[Gpu, WeightFormat], tuple[tuple[Judged, ...], int]] = {}

    def found(self, ordered: Ordered, technical: Technical) -> Found:
        """
        A layout on an order.

        Args:
            ordered: The order.
            technical: Its layout, estimated or refused.

        Returns:
            The worst of all requirements; which they are is worked out where it is asked for.
        """
        if self.evidence:
            parts = self.parts(ordered, technical)
            return Found(ordered.order, ordered, technical, self, max(j.status for part in parts for j in part), parts)
        if technical.excluded:
            return Found(ordered.order, ordered, technical, self, EXCLUDED)
        status = self.layout_status(technical)
        if status != EXCLUDED:
            status = max(status, ordered.status, ordered.both(technical))
        return Found(ordered.order, ordered, technical, self, status)

    def at_least(self, ordered: Ordered, weight_format: WeightFormat) -> int:
        """
        Status that an order has under any layout.

        Args:
            ordered: The order.
            weight_format: Format of the weights.

        Returns:
            Worst of what no layout changes; met where the caller's evidence may open anything again.
        """
        if self.evidence:
            return MET
        of_gpu = self._gpu(ordered.order.gpu, weight_format)[1]
        alone = ordered.status
        network = CONFIRM if self.need.fixed_layout is None and hosts.unnamed_network(ordered.order) else MET
        return max(of_gpu, alone, network)

    def parts(self, ordered: Ordered, technical: Technical) -> Parts:
        """Every requirement of a layout on an order, with what the caller knows."""
        order = ordered.order
        parts = (
            self.of_layout(technical),
            requirements.of_both(technical, order, self.need),
            ordered.judged,
        )
        if not self.evidence:
            return parts
        return tuple(tuple(self._with_evidence(j, order, technical) for j in part) for part in parts)

    def of_layout(self, technical: Technical) -> tuple[Judged, ...]:
        """Requirements of a layout on a GPU, and of the GPU."""
        of_gpu = self._gpu(technical.gpu, technical.variant.weight_format)[0]
        return (*requirements.of_layout(technical, self.need), *of_gpu)

    def layout_status(self, technical: Technical) -> int:
        """Worst of `of_layout`, worked out once for a layout."""
        held = self._of_layout.get(id(technical))
        if held is None:
            of_gpu = self._gpu(technical.gpu, technical.variant.weight_format)[1]
            status = max(requirements.layout_status(technical, self.need), of_gpu)
            held = self._of_layout[id(technical)] = (technical, status)
        return held[1]

    def _gpu(self, gpu: Gpu, weight_format: WeightFormat) -> tuple[tuple[Judged, ...], int]:
        key = (gpu, weight_format)
        held = self._of_gpu.get(key)
        if held is None:
            judged = requirements.of_gpu(gpu, weight_format, self.need)
            held = self._of_gpu[key] = (judged, max([j.status for j in judged]))
        return held

    def _with_evidence(self, judged: Judged, order: Order, technical: Technical) -> Judged:
        for one in self.evidence.get(judged.name, ()):
            if _speaks_of(one, order, technical):
                judged = _weighed(judged, one)
        return judged


def _by_requirement(evidence: Iterable[Evidence]) -> dict[str, tuple[Evidence, ...]]:
    found: dict[str, tuple[Evidence, ...]] = {}
    for one in evidence:
        found[one.requirement] = (*found.get(one.requirement, ()), one)
    return found


def _speaks_of(one: Evidence, order: Order, technical: Technical) -> bool:
    return (
        (one.sku is None or one.sku == order.package.id)
        and (one.gpu is None or one.gpu == order.gpu.id)
        and (one.weights_format is None or one.weights_format == technical.variant.weight_format.id)
    )


def _weighed(judged: Judged, one: Evidence) -> Judged:
    """The caller's record decides what facts leave open; against established facts it opens the question again."""
    source = f"{one.source}{f', {one.date}' if one.date else ''}"
    if one.status == "excluded":
        return Judged(judged.name, EXCLUDED, lambda: "excluded by the caller's record", source)
    if judged.status == EXCLUDED:
        say = judged.say
        return Judged(judged.name, CONFIRM, lambda: f"the caller's record says met, the facts say: {say()}", source)
    return Judged(judged.name, MET, lambda: "met by the caller's record", source)
