"""One change at a time against a base candidate, each estimated anew: what it saves, the new verdict, what it risks."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from tonnage.catalog import resolve
from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.assemble import assemble
from tonnage.estimate.changes import Reestimate, Tried
from tonnage.estimate.diagnosis import remedies
from tonnage.estimate.placement import layouts
from tonnage.estimate.remedies import Rung, Scene
from tonnage.fit.found import Found
from tonnage.fit.judged import EXCLUDED, MET
from tonnage.fit.links import fast_domain
from tonnage.fit.need import Need
from tonnage.fit.pricing import candidate_price
from tonnage.fit.search import Search
from tonnage.fit.technical import Technical, Variant, estimated, shardings
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import Alternative
from tonnage.spec.report import Estimate, Remedy, Verdict

WORDS: tuple[Verdict, ...] = ("met", "needs_confirmation", "excluded")
MOST = 10
BIGGER = 1.1
"""How much more memory makes a GPU the next bigger one. [ratio]"""


def card_of(found: Found, need_card: SizingCard) -> SizingCard:
    """The sizing card as this candidate runs it."""
    technical = found.technical
    card = technical.variant.workload.card
    placed = replace(technical.placement, gpu=technical.gpu.id)
    training = card.training
    if training is not None and technical.sharding is not None:
        training = replace(training, sharding=technical.sharding)
    return replace(card, placement=placed, training=training, failure=None, measurements=[], reserve=need_card.reserve)


def reestimate_on(search: Search, base: Found) -> Reestimate:
    """Estimates of changed cards in the base's order; the verdict is that of the whole candidate, price and formats included."""
    technical = base.technical

    def reestimate(card: SizingCard) -> Estimate | Tried:
        variant = Variant.of(resolve(search.catalog, card), technical.variant.kv_cache_dtype)
        placement = replace(card.placement, gpu=None)
        tried = estimated(variant, technical.gpu, technical.gpus, placement, spare=search.need.spare)
        if tried.workload is None or tried.required is None:
            raise ContradictoryWorkload(tried.refusal or "the changed card does not run")
        verdict = WORDS[search.judge(base.order, tried).status]
        if tried.claims or tried.account is None:
            return Tried(tried.required, verdict)
        return replace(assemble(tried.workload, tried.account), verdict=verdict)

    return reestimate


def estimate_of(found: Found) -> Estimate | None:
    """The full estimate behind a candidate."""
    technical = found.technical
    if technical.workload is None or technical.account is None:
        return None
    return assemble(technical.workload, technical.account)


def alternatives(search: Search, base: Found, others: list[Found]) -> tuple[Alternative, ...]:
    """
    Single changes against a base.

    Args:
        search: The request over its catalogue.
        base: The candidate to change.
        others: All judged candidates, for the next GPU and one more.

    Returns:
        Changes of the card first, then of the layout, then of the hardware with its price. Where something else than memory
        excludes the base, only those after which it no longer does.
    """
    need = search.need
    found = [*_of_the_card(search, base), *_of_the_layout(search, base), *_of_the_hardware(base, others, need)]
    if any(j.status == EXCLUDED and j.name != "memory" for j in base.judged):
        found = [a for a in found if a.verdict != "excluded"]
    return tuple(found[: MOST + 4])


def _of_the_card(search: Search, base: Found) -> Iterator[Alternative]:
    before = estimate_of(base)
    if before is None:
        return
    before = replace(before, verdict=WORDS[base.status])
    scene = Scene(card_of(base, search.need.request), before, base.technical.variant.workload.model)
    skip = _searched if base.technical.verdict == MET else _nothing
    changes = remedies(scene, _phase_to_shrink(before), reestimate_on(search, base), most=MOST, skip=skip)
    yield from (_alternative(r) for r in changes if not r.field.startswith("/placement/"))


def _phase_to_shrink(before: Estimate) -> str:
    """The peak's; of an engine whose claimed pool is too small for the demand, the phase that fills the pool."""
    short = before.claimed_bytes is not None and before.required.expected > before.peak.device.expected
    return "prefill" if short else before.peak.phase


def _searched(rung: Rung) -> bool:
    """A shorter context or fewer requests answer another need: not offered where the need is already met."""
    return rung.search


def _nothing(_: Rung) -> bool:
    return False


def _alternative(remedy: Remedy) -> Alternative:
    return Alternative(
        field=remedy.field,
        from_=remedy.from_,
        to=remedy.to,
        saves_bytes=remedy.saves_bytes,
        required=remedy.required,
        verdict=remedy.verdict,
        risk=remedy.cost,
    )


def _of_the_layout(search: Search, base: Found) -> Iterator[Alternative]:
    """Tensor parallelism against stages against replicas, on the same GPUs."""
    technical, order, need = base.technical, base.order, search.need
    if order.gpus == 1 or technical.required is None or need.fixed_layout is not None:
        return
    variant = technical.variant
    found = layouts(
        model=variant.workload.model,
        gpus=order.gpus,
        fast_domain=fast_domain(order.package, order.gpu, order.hosts),
        engine=need.engine,
        framework=need.framework,
        weight_format=variant.weight_format,
    )
    risk = "speed: other communication"
    for placement in [p for p in found if p != technical.placement][:2]:
        tried = (
            estimated(variant, technical.gpu, order.gpus, placement, sharding=s, spare=need.spare)
            for s in shardings(variant, placement)
        )
        best = min(tried, key=lambda t: t.preference)
        if best.required is not None and best.verdict != EXCLUDED:
            change = _change("/placement", _sizes(technical), _sizes(best), technical, best, risk)
            yield replace(change, verdict=WORDS[search.judge(order, best).status])


def _of_the_hardware(base: Found, others: list[Found], need: Need) -> Iterator[Alternative]:
    """One more step of the same GPU, and the next bigger GPU at the same count: the cheapest order of each that may be."""
    order = base.order
    others = [f for f in others if f.status != EXCLUDED]
    more = [f for f in others if f.order.gpu.id == order.gpu.id and f.order.gpus > order.gpus]
    fewest = min((f.order.gpus for f in more), default=0)
    bigger = [
        f
        for f in others
        if f.order.gpus == order.gpus and f.order.gpu.memory_usable_bytes > order.gpu.memory_usable_bytes * BIGGER
    ]
    smallest = min((f.order.gpu.memory_usable_bytes for f in bigger), default=0)
    groups = (
        ("/placement/gpus", [f for f in more if f.order.gpus == fewest]),
        ("/placement/gpu", [f for f in bigger if f.order.gpu.memory_usable_bytes == smallest]),
    )
    for field, group in groups:
        best = _cheapest(group, base)
        if best is not None:
            yield _hardware(field, base, best, need)


def _cheapest(group: Iterable[Found], base: Found) -> Found | None:
    name = base.technical.variant.name
    same = [f for f in group if f.technical.variant.name == name and f.technical.required is not None]
    return min(
        same,
        key=lambda f: (f.bill is None, f.bill.total if f.bill else 0, f.order.package.id, f.order.hosts),
        default=None,
    )


def _hardware(field: str, base: Found, best: Found, need: Need) -> Alternative:
    before, after = f"{base.order.gpus} x {base.order.gpu.id}", f"{best.order.gpus} x {best.order.gpu.id}"
    change = _change(field, before, after, base.technical, best.technical, "price")
    cost = (
        None
        if best.bill is None
        else candidate_price(best.bill, best.order.package, hosts=best.order.hosts, hours=need.hours)
    )
    return replace(change, sku=best.order.package.id, price=cost, verdict=WORDS[best.status])


def _change(field: str, before: str, after: str, base: Technical, other: Technical, risk: str) -> Alternative:  # noqa: PLR0917 (one row)
    if base.required is None or other.required is None:
        raise ValueError("only estimated layouts are compared")
    return Alternative(
        field=field,
        from_=before,
        to=after,
        saves_bytes=base.required.expected - other.required.expected,
        required=other.required,
        verdict=WORDS[other.verdict],
        risk=risk,
    )


def _sizes(technical: Technical) -> str:
    p = technical.placement
    sharding = "" if technical.sharding is None else f" {technical.sharding}"
    return f"tp{p.tensor_parallel_size} pp{p.pipeline_parallel_size} dp{p.data_parallel_size}{sharding}"
