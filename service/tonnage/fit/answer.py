"""The answer of /fit: candidates in order, what was excluded and why, and what one change would do."""

from msgspec.structs import replace

from tonnage.catalog import Catalog
from tonnage.catalog.resolve import tool_of
from tonnage.estimate.assemble import account_of, assemble
from tonnage.estimate.identity import digest, versions
from tonnage.fit import ranking
from tonnage.fit.alternatives import alternatives, estimate_of
from tonnage.fit.boards import assumptions
from tonnage.fit.candidates import candidate, confirmations, excluded_groups
from tonnage.fit.found import Found
from tonnage.fit.judged import CONFIRM, EXCLUDED, MET
from tonnage.fit.need import Need
from tonnage.fit.packages import newest_price
from tonnage.fit.search import Search, variants_of
from tonnage.fit.today import current_report, with_what_is_known
from tonnage.spec.card import Placement
from tonnage.spec.fit import Considered, FitAnswer, FitRequest
from tonnage.spec.hub import Fetch
from tonnage.spec.report import Estimate


def fit(catalog: Catalog, request: FitRequest, *, fetch: Fetch | None = None) -> FitAnswer:
    """
    Which package serves a card, which does not, why, and what one change would do.

    Args:
        catalog: The facts.
        request: The need, the offer and the requirements.
        fetch: Who to ask for models that the catalogue does not hold; None: nobody.

    Returns:
        Candidates by price; nothing that fits is a result, not an error.

    Raises:
        SizingError: A name is unknown, the request contradicts itself, or no law covers it.
    """
    need = Need(request, newest_price=newest_price(catalog), tool=tool_of(catalog, request))
    _ = need.currency
    search = Search(catalog, need, variants=variants_of(catalog, request, fetch))
    judged = search.all()
    left, dominated = ranking.without_dominated(judged)
    order = ranking.ranked(left, need)
    fallen = [f for f in left if f.status == EXCLUDED]
    chosen = ranking.selected(order)
    base = chosen or (order[0] if order else _closest(fallen, need))
    bare = _bare(search, base)
    told = with_what_is_known(search, base)
    return FitAnswer(
        model=bare.model,
        candidates=tuple(
            candidate(f, need, rank=n + 1, follower=_at(order, n + 1)) for n, f in enumerate(order[: request.limit])
        ),
        selected=None if chosen is None else candidate(chosen, need, rank=order.index(chosen) + 1, follower=None),
        confirmations=() if chosen is not None or not order else confirmations(order[0]),
        excluded=excluded_groups(fallen, need) if request.include_excluded else (),
        alternatives=() if base is None else alternatives(search, base, left),
        current=None if request.current is None else current_report(search, request.current),
        diagnosis=None if told is None else told.diagnosis,
        measured=() if told is None else told.measured,
        considered=_considered(search, judged, left, dominated),
        assumptions=(*assumptions(catalog, request), *bare.assumptions),
        unknowns=bare.unknowns,
        invalidated_by=bare.invalidated_by,
        versions=versions(catalog.version),
        digest=digest(replace(search.variants[0].workload, card=request)),
    )


def _at(order: list[Found], index: int) -> Found | None:
    return order[index] if index < len(order) else None


def _closest(fallen: list[Found], need: Need) -> Found | None:
    """The excluded candidate that lacks least."""
    judged = [f for f in fallen if f.technical.layout_status != EXCLUDED]
    closest = min(judged, key=lambda f: (-f.technical.headroom, *ranking.rank_key(f, need)), default=None)
    if closest is not None:
        closest.technical.complete(need.spare)
    return closest


def _bare(search: Search, base: Found | None) -> Estimate:
    """The estimate whose model, assumptions and unknowns stand in the answer."""
    found = None if base is None else estimate_of(base)
    if found is not None:
        return found
    workload = search.variants[0].workload
    one_gpu = replace(workload, placement=Placement(), gpu=None)
    return assemble(one_gpu, account_of(one_gpu))


def _considered(search: Search, judged: list[Found], left: list[Found], dominated: int) -> Considered:
    statuses = [f.status for f in left]
    return Considered(
        skus=len(search.packages),
        apart=search.apart,
        candidates=len(judged) + search.outdone,
        estimates=search.estimates,
        met=statuses.count(MET),
        needs_confirmation=statuses.count(CONFIRM),
        excluded=statuses.count(EXCLUDED),
        dominated=dominated + search.outdone,
    )
