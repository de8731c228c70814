"""Judged orders put into words: candidates with their requirements, and the excluded by what excludes them."""

from collections.abc import Iterable

from msgspec.structs import replace

from tonnage.fit import ranking
from tonnage.fit.found import Found
from tonnage.fit.judged import EXCLUDED, VERDICTS
from tonnage.fit.launch import launch
from tonnage.fit.maximize import maximum
from tonnage.fit.need import Need
from tonnage.fit.pricing import candidate_price
from tonnage.fit.technical import Technical
from tonnage.spec.fit import Candidate, CandidateMemory, ExcludedGroup, Requirement, RequirementName
from tonnage.spec.report import Amount

SHOWN_SKUS = 8
MAXIMIZED = 50
"""Candidates for which the largest value is looked for, by rank. [unitless]"""


def candidate(found: Found, need: Need, *, rank: int, follower: Found | None) -> Candidate:
    """
    One judged order as it is shown.

    Args:
        found: Order, layout and judgements.
        need: The request.
        rank: Place in the order, 0 for one that has none.
        follower: The next candidate, for `why`.

    Returns:
        The candidate, with launch material unless it is excluded.
    """
    order, technical, request = found.order, found.technical, need.request
    technical.complete(need.spare)
    runs = found.status != EXCLUDED
    made = Candidate(
        rank=rank,
        sku=order.package.id,
        provider=order.package.provider,
        gpu=order.gpu.id,
        gpu_count=order.gpus,
        hosts=order.hosts,
        gpus_per_host=order.package.gpus_per_host,
        placement=replace(technical.placement, gpu=order.gpu.id),
        weights_format=technical.variant.weight_format.id,
        kv_cache_dtype=technical.variant.kv_cache_dtype,
        status=VERDICTS[found.status],
        requirements=tuple(
            Requirement(name=j.name, status=VERDICTS[j.status], reason=j.say(), evidence=j.evidence)
            for j in found.judged
        ),
        memory=memory_of(technical),
        kv_cache=None if technical.account is None else technical.account.kv_cache,
        price=None
        if found.bill is None
        else candidate_price(found.bill, order.package, hosts=order.hosts, hours=need.hours),
        missing=tuple(dict.fromkeys(j.name for j in found.missing)),
        region=order.package.region,
        sharding=technical.sharding,
        why=ranking.explain(found, follower) if request.explain and follower is not None else None,
        maximum=maximum(technical, request.maximize)
        if request.maximize is not None and 0 < rank <= MAXIMIZED
        else None,
    )
    return replace(made, launch=launch(technical, order, technical.variant.workload.card)) if runs else made


def memory_of(technical: Technical) -> CandidateMemory | None:
    """The worst GPU of a layout against what that GPU holds."""
    judgement, required = technical.judgement, technical.required
    if judgement is None or required is None:
        return None
    usable, reserve = technical.gpu.memory_usable_bytes, judgement.reserve
    worst = judgement.gpus[judgement.worst]
    peak = next(p for p in worst.phases if p.phase == worst.peak.phase)
    components: dict[str, int] = {}
    for item in peak.items:
        components[item.component] = components.get(item.component, 0) + item.bytes.expected
    if reserve:
        components["user_reserve"] = reserve
    return CandidateMemory(
        required=required,
        usable_bytes=usable,
        headroom=Amount(usable - required.high, usable - required.expected, usable - required.low),
        per_gpu=tuple(Amount(a.low + reserve, a.expected + reserve, a.high + reserve) for a in judgement.needed),
        phase=worst.peak.phase,
        components=components,
        measured=technical.measured,
    )


def confirmations(found: Found) -> tuple[str, ...]:
    """What is still missing for a candidate, in words."""
    return tuple(f"{j.name}: {j.say()}" for j in found.missing)


def excluded_groups(fallen: Iterable[Found], need: Need) -> tuple[ExcludedGroup, ...]:
    """
    Excluded candidates by the first requirement that excludes them.

    Args:
        fallen: Excluded candidates.
        need: The request.

    Returns:
        Largest group first; the example is the candidate that lacks least.
    """
    groups: dict[RequirementName, list[Found]] = {}
    for found in fallen:
        judged = found.excluded_by
        if judged is not None:
            groups.setdefault(judged.name, []).append(found)
    return tuple(
        _group(name, groups[name], need) for name in sorted(groups, key=lambda name: (-len(groups[name]), name))
    )


def _group(name: RequirementName, members: list[Found], need: Need) -> ExcludedGroup:
    example = min(members, key=lambda f: (-f.technical.headroom, *ranking.rank_key(f, need)))
    judged = example.excluded_by
    skus = sorted({f.order.package.id for f in members})
    return ExcludedGroup(
        requirement=name,
        count=len(members),
        skus=tuple(skus[:SHOWN_SKUS]),
        example=candidate(example, need, rank=0, follower=None),
        reason="" if judged is None else judged.say(),
    )
