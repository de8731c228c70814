"""
Every package under its best layout, judged on every requirement.

One estimate per (GPU, layout, format), shared by the packages that carry the GPU. Of the layouts of an order
the best is kept: status, then idle GPUs, then headroom; a layout behind one that is met in full could not
stand before it and is not estimated. The result does not depend on the catalogue's order.
"""

from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tonnage.catalog import Catalog, resolve
from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.assemble import account_of
from tonnage.fit.found import Found, Judge, Ordered
from tonnage.fit.judged import EXCLUDED, MET
from tonnage.fit.links import fast_domain
from tonnage.fit.need import Need
from tonnage.fit.packages import Order, in_scope, orders
from tonnage.fit.technical import Technical, Variant, choices, estimated, shardings, why_refused
from tonnage.kept import Kept
from tonnage.spec.card import Placement, SizingCard
from tonnage.spec.facts import Gpu
from tonnage.spec.fit import FitRequest
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


_UNJUDGED = EXCLUDED + 1
"""Worse than any status: no order of the package was judged."""


class Layouts(NamedTuple):
    """Layouts of an order, best first, each with the GPUs that share one copy of the weights."""

    cuts: tuple[tuple[Placement, int], ...]
    widest: Placement
    most: int
    """GPUs of the widest cut. [unitless]"""

    @classmethod
    def of(cls, placements: Iterable[Placement]) -> "Layouts":
        """
        Layouts with their cuts.

        Args:
            placements: Best first.
        """
        cuts = tuple((p, p.tensor_parallel_size * p.pipeline_parallel_size) for p in placements)
        widest, most = max(cuts, key=itemgetter(1), default=(Placement(), 1))
        return cls(cuts, widest, most)


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
        self._layouts: dict[tuple[int, int, int], Layouts] = {}
        self._least = [least_weights(v) for v in variants]
        self._best: dict[tuple[Gpu, int, int, int], Technical] = {}
        self._judge = Judge(need)
        self.outdone = 0
        """Orders that cannot be better than the same package with fewer hosts. [unitless]"""
        self.packages, self.apart = in_scope(catalog, need)

    @property
    def estimates(self) -> int:
        """Estimates the answer rests on. [unitless]"""
        return len(self._touched)

    def all(self) -> list[Found]:
        """
        Every order under every variant, in order of package id, hosts and variant.

        Of one package, more hosts are worth more money only where the status is better: an order that what no layout changes
        (GPU and format, price, terms, the network between hosts) keeps from that is counted in `outdone` and not estimated.
        """
        found: list[Found] = []
        for package, gpu in self.packages:
            best = dict.fromkeys(range(len(self.variants)), _UNJUDGED)
            for order in orders(package, gpu, self.need):
                ordered, domain = Ordered(order, self.need), fast_domain(package, gpu, order.hosts)
                for number in tuple(best):
                    if best[number] < _UNJUDGED and self._at_least(ordered, number) >= best[number]:
                        self.outdone += 1
                        continue
                    technical = self.best(order, domain, number)
                    judged = self._judge.found(ordered, technical)
                    found.append(judged)
                    best[number] = min(best[number], judged.status)
                    if technical.fits and technical.layout_status == MET:
                        del best[number]
                if not best:
                    break
        return found

    def _at_least(self, ordered: Ordered, number: int) -> int:
        return self._judge.at_least(ordered, self.variants[number].weight_format)

    def judge(self, order: Order, technical: Technical) -> Found:
        """A given layout on an order."""
        return self._judge.found(Ordered(order, self.need), technical)

    def best(self, order: Order, domain: int, number: int) -> Technical:
        """Best layout of an order, shared by orders with the same GPUs and links."""
        key = (order.gpu, order.gpus, domain, number)
        held = self._best.get(key)
        if held is None:
            held = self._best[key] = self._search_layouts(order.gpu, order.gpus, domain, number)
        return held

    def _search_layouts(self, gpu: Gpu, gpus: int, domain: int, number: int) -> Technical:
        variant, layouts, least = self.variants[number], self._choices(gpus, domain, number), self._least[number]
        if not layouts.cuts:
            refused = Technical(variant, gpu, gpus, Placement(tensor_parallel_size=gpus))
            return refused.refuse(why_refused(variant, gpus, self.need))
        usable = gpu.memory_usable_bytes
        if least > usable * layouts.most:
            return Technical(variant, gpu, gpus, layouts.widest).too_large(-(-least // layouts.most))
        best: Technical | None = None
        for placement, cut in layouts.cuts:
            if least > usable * cut:
                continue
            for sharding in shardings(variant, placement):
                one = self.technical(gpu, gpus, placement, sharding, number)
                if best is None or one.preference < best.preference:
                    best = one
                if one.fits and one.layout_status == MET:
                    return best
        assert best is not None  # noqa: S101  (the widest holds the weights)
        return best

    def _choices(self, gpus: int, domain: int, number: int) -> Layouts:
        key = (gpus, domain, number)
        held = self._layouts.get(key)
        if held is None:
            found = islice(choices(self.variants[number], gpus, domain, self.need), MOST_LAYOUTS)
            held = self._layouts[key] = Layouts.of(found)
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
    return Variant.of(resolve(catalog, card, fetch=fetch), kv_dtype)
