"""
Every package under its best layout, judged on every requirement.

One estimate per (GPU, layout, format), shared by the packages that carry the GPU. Of the layouts of an order
the best is kept: status, then idle GPUs, then headroom; a layout behind one that is met in full could not
stand before it and is not estimated. The result does not depend on the catalogue's order.
"""

from collections.abc import Iterable
from decimal import Decimal
from itertools import islice

import msgspec
from msgspec.structs import replace

from tonnage.catalog import Catalog, resolve
from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.assemble import account_of
from tonnage.fit import requirements
from tonnage.fit.links import fast_domain
from tonnage.fit.need import Need
from tonnage.fit.packages import Order, in_scope, orders
from tonnage.fit.pricing import Bill, cheapest
from tonnage.fit.requirements import CONFIRM, EXCLUDED, MET, Judged
from tonnage.fit.technical import Technical, Variant, choices, estimated, shardings, why_refused
from tonnage.kept import Kept
from tonnage.spec.card import Placement, SizingCard
from tonnage.spec.facts import Gpu
from tonnage.spec.fit import Evidence, FitRequest
from tonnage.spec.hub import Fetch

ON_THE_HOST = ("n_gpu_layers", "cpu_moe_layers", "cpu_offload_gb")
"""Engine settings that leave weights on the host."""

EstimateKey = tuple[str, int, Placement, str | None]
"""GPU, its memory, layout, sharding."""
Estimates = dict[EstimateKey, Technical]
MOST_ESTIMATES = 4000
"""Estimates of one request; the whole catalogue with three formats takes a few hundred. [unitless]"""
MOST_LAYOUTS = 24
"""Layouts of one order, best first; only orders of very many GPUs have more. [unitless]"""
MOST_VARIANTS = 24
"""Cards whose estimates are kept for the next request about the same card: another budget, duration or offer."""
_held: Kept[tuple[str, float, bytes], Estimates] = Kept(MOST_VARIANTS)


Parts = tuple[tuple[Judged, ...], ...]


class Found:
    """One order under its best layout of one variant, judged."""

    __slots__ = ("_parts", "bill", "order", "status", "technical")

    def __init__(self, order: Order, technical: Technical, bill: Bill | None, status: int, parts: Parts) -> None:
        """
        A judged order.

        Args:
            order: Package and hosts.
            technical: Layout.
            bill: Price, or None.
            status: Worst of all requirements.
            parts: What was judged of the layout, of both, and of the order.
        """
        self.order = order
        self.technical = technical
        self.bill = bill
        self.status = status
        self._parts = parts

    @property
    def judged(self) -> tuple[Judged, ...]:
        """Every requirement, those of the layout first."""
        return tuple(j for part in self._parts for j in part)

    @property
    def excluded_by(self) -> Judged | None:
        """First requirement that excludes it."""
        for part in self._parts:
            for judged in part:
                if judged.status == EXCLUDED:
                    return judged
        return None

    @property
    def missing(self) -> tuple[Judged, ...]:
        """Requirements that need confirmation."""
        return tuple(j for j in self.judged if j.status == CONFIRM)


class Search:
    """One request over one catalogue."""

    def __init__(self, catalog: Catalog, need: Need, *, variants: tuple[Variant, ...]) -> None:
        """
        Search of a request.

        Args:
            catalog: The facts.
            need: What stays fixed.
            variants: Formats and cache types to try.
        """
        self.catalog = catalog
        self.need = need
        self.variants = variants
        self._estimates = [held_estimates(catalog.version, v, need.spare) for v in variants]
        self._touched: set[tuple[int, EstimateKey]] = set()
        self._layouts: dict[tuple[int, int, int], tuple[Placement, ...]] = {}
        self._least = [least_weights(v) for v in variants]
        self._best: dict[tuple[str, int, int, int, int], Technical] = {}
        self._technical_judged: dict[int, tuple[tuple[Judged, ...], int]] = {}
        self._given: list[Technical] = []
        """Kept alive: what is judged is remembered by identity."""
        self._gpu_judged: dict[tuple[str, str], tuple[Judged, ...]] = {}
        self.packages, self.apart = in_scope(catalog, need)
        self.evidence = _by_requirement(need.request.evidence)

    @property
    def estimates(self) -> int:
        """Estimates the answer rests on. [unitless]"""
        return len(self._touched)

    def all(self) -> list[Found]:
        """Every order under every variant, in order of package id, hosts and variant."""
        found: list[Found] = []
        numbers = range(len(self.variants))
        for package, gpu in self.packages:
            settled = [False] * len(self.variants)
            for order in orders(package, gpu, self.need):
                bill, ordered, status = self._ordered(order)
                domain = fast_domain(package, gpu, order.hosts)
                for number in numbers:
                    if settled[number]:
                        continue
                    technical = self.best(order, domain, number)
                    settled[number] = technical.fits and technical.layout_status == MET
                    found.append(self._judged(order, technical, bill, ordered, status))
        return found

    def judge(self, order: Order, technical: Technical) -> Found:
        """A given layout on an order."""
        self._given.append(technical)
        return self._judged(order, technical, *self._ordered(order))

    def _ordered(self, order: Order) -> tuple[Bill | None, tuple[Judged, ...], int]:
        bill = self._bill(order)
        judged = requirements.of_order(order, bill, self.need)
        return bill, judged, max(j.status for j in judged)

    def _judged(
        self, order: Order, technical: Technical, bill: Bill | None, ordered: tuple[Judged, ...], status: int
    ) -> Found:
        of_layout, layout_status = self._of_technical(technical)
        both = requirements.of_both(technical, order, self.need)
        parts: Parts = (of_layout, both, ordered)
        if self.evidence:
            parts = tuple(tuple(self._with_evidence(j, order, technical) for j in part) for part in parts)
            worst = max(j.status for part in parts for j in part)
        else:
            worst = max(status, layout_status, *(j.status for j in both))
        return Found(order, technical, bill, worst, parts)

    def best(self, order: Order, domain: int, number: int) -> Technical:
        """Best layout of an order, shared by orders with the same GPUs and links."""
        key = (order.gpu.id, order.gpu.memory_usable_bytes, order.gpus, domain, number)
        held = self._best.get(key)
        if held is None:
            held = self._best[key] = self._search_layouts(order.gpu, order.gpus, domain, number)
        return held

    def _search_layouts(self, gpu: Gpu, gpus: int, domain: int, number: int) -> Technical:
        best: Technical | None = None
        layouts, least = self._choices(gpus, domain, number), self._least[number]
        for placement in layouts:
            if least > gpu.memory_usable_bytes * _cut(placement):
                continue
            for sharding in shardings(self.variants[number], placement):
                one = self.technical(gpu, gpus, placement, sharding, number)
                if best is None or one.preference < best.preference:
                    best = one
                if one.fits and one.layout_status == MET:
                    return best
        if best is not None:
            return best
        variant = self.variants[number]
        if layouts:
            widest = max(layouts, key=_cut)
            return Technical(variant, gpu, gpus, widest).too_large(-(-least // _cut(widest)))
        refused = Technical(variant, gpu, gpus, Placement(tensor_parallel_size=gpus))
        return refused.refuse(why_refused(variant, gpus, self.need))

    def _choices(self, gpus: int, domain: int, number: int) -> tuple[Placement, ...]:
        key = (gpus, domain, number)
        held = self._layouts.get(key)
        if held is None:
            held = self._layouts[key] = tuple(
                islice(choices(self.variants[number], gpus, domain, self.need), MOST_LAYOUTS)
            )
        return held

    def technical(self, gpu: Gpu, gpus: int, placement: Placement, sharding: str | None, number: int) -> Technical:
        """The one estimate of a layout on a GPU."""
        estimates, key = self._estimates[number], (gpu.id, gpu.memory_usable_bytes, placement, sharding)
        self._touched.add((number, key))
        if len(self._touched) > MOST_ESTIMATES:
            words = f"this asks for more than {MOST_ESTIMATES} estimates: narrow the packages, GPUs, hosts or formats"
            raise ContradictoryWorkload(words, pointer="/offer")
        held = estimates.get(key)
        if held is None:
            held = estimates[key] = estimated(
                self.variants[number], gpu, gpus, placement, sharding=sharding, spare=self.need.spare
            )
        return held.on(gpus)

    def _bill(self, order: Order) -> Bill | None:
        need = self.need
        return cheapest(
            order.package.offers, hosts=order.hosts, hours=need.hours, currency=need.currency, apart=need.kinds_apart
        )

    def _of_technical(self, technical: Technical) -> tuple[tuple[Judged, ...], int]:
        held = self._technical_judged.get(id(technical))
        if held is None:
            weight_format = technical.variant.weight_format
            key = (technical.gpu.id, weight_format.id)
            of_gpu = self._gpu_judged.get(key)
            if of_gpu is None:
                of_gpu = self._gpu_judged[key] = requirements.of_gpu(technical.gpu, weight_format, self.need)
            judged = (*requirements.of_layout(technical, self.need), *of_gpu)
            held = self._technical_judged[id(technical)] = (judged, max(j.status for j in judged))
        return held

    def _with_evidence(self, judged: Judged, order: Order, technical: Technical) -> Judged:
        for one in self.evidence.get(judged.name, ()):
            if _speaks_of(one, order, technical):
                judged = _weighed(judged, one)
        return judged


def held_estimates(catalog_version: str, variant: Variant, spare: float) -> Estimates:
    """
    Estimates of a card that are known already, from whatever request asked first.

    Args:
        catalog_version: Facts they rest on.
        variant: Resolved card with its format.
        spare: Part of the usable memory that must stay free. [fraction]

    Returns:
        The shared table, filled as layouts are asked for; the oldest card is forgotten first.
    """
    key = (catalog_version, spare, msgspec.json.encode(replace(variant.workload.card, failure=None)))
    held = _held.pop(key, None)
    return _held.keep(key, {} if held is None else held)


def least_weights(variant: Variant) -> int:
    """
    Bytes of weights that the GPUs of an engine hold together at the very least.

    Nine tenths of the checkpoint, for what an engine may leave out; 0 where weights may stay on the host, or where
    training chooses their dtype.
    """
    workload = variant.workload
    if workload.training is not None or not workload.model.known:
        return 0
    if any(getattr(workload.serving, field, None) for field in ON_THE_HOST):
        return 0
    plain = replace(workload, serving=None, gpu=None, placement=Placement())
    whole = account_of(plain).loads[0].phases[0].items[0].bytes.expected
    return whole * 9 // 10


def _cut(placement: Placement) -> int:
    """GPUs that share one copy of the weights. [unitless]"""
    return placement.tensor_parallel_size * placement.pipeline_parallel_size


def variants_of(catalog: Catalog, request: FitRequest, fetch: Fetch | None = None) -> tuple[Variant, ...]:
    """
    The formats and cache types a request allows, each resolved once.

    Raises:
        SizingError: One of them names nothing, or the card contradicts itself.
    """
    formats: Iterable[str | None] = request.offer.allow.weight_formats or (None,)
    kv_dtypes: Iterable[str | None] = (request.offer.allow.kv_cache_dtypes or (None,)) if request.serving else (None,)
    return tuple(
        _variant(catalog, request, f, k, fetch) for f in dict.fromkeys(formats) for k in dict.fromkeys(kv_dtypes)
    )


def bare_card(request: FitRequest) -> SizingCard:
    """The sizing card inside a request, without a GPU."""
    return SizingCard(
        model=request.model,
        weights=request.weights,
        serving=request.serving,
        training=request.training,
        placement=replace(request.placement, gpu=None),
        reserve=request.reserve,
        measurements=request.measurements,
        failure=request.failure,
    )


def _variant(
    catalog: Catalog, request: FitRequest, weight_format: str | None, kv_dtype: str | None, fetch: Fetch | None
) -> Variant:
    card = bare_card(request)
    if weight_format is not None and weight_format != card.weights.format:
        known = catalog.formats.get(weight_format, "/offer/allow/weight_formats").id
        card = replace(card, weights=replace(card.weights, format=known, bytes=None))
    if kv_dtype is not None and card.serving is not None:
        if kv_dtype != "auto":
            catalog.kv_formats.get(kv_dtype, "/offer/allow/kv_cache_dtypes")
        card = replace(card, serving=replace(card.serving, kv_cache_dtype=kv_dtype))
    return Variant(resolve(catalog, card, fetch=fetch), kv_dtype)


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


def total_of(found: Found) -> Decimal | None:
    """Total price of an order, None without one."""
    return None if found.bill is None else found.bill.total
