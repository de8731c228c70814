"""The question the other way round: which models of the catalogue a GPU serves."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tonnage.catalog import Catalog, resolve
from tonnage.catalog.gpus import find_gpu
from tonnage.catalog.models import find_model
from tonnage.errors import SizingError, UnknownName
from tonnage.estimate.accounts import account_of, decisive
from tonnage.estimate.assemble import Screening, compare, screen, verdict
from tonnage.estimate.identity import fingerprint, versions
from tonnage.spec.facts import Gpu, ModelFacts
from tonnage.spec.fit_models import FittingModel, ModelsAnswer, ModelsConsidered, ModelsRequest, NotEstimated
from tonnage.spec.report import VERDICT_ORDER, Account, Amount, Assumption, Verdict
from tonnage.spec.workload import Workload
from tonnage.units import format_size


class _Judged(NamedTuple):
    """One model under the settings, before it is put into words."""

    workload: Workload
    account: Account
    screened: Screening
    verdict: Verdict


def models(catalog: Catalog, request: ModelsRequest) -> ModelsAnswer:
    """
    Models that a GPU serves under one set of settings.

    Args:
        catalog: The facts.
        request: Settings and placement, and which models to look at.

    Returns:
        Met ones first, then those to confirm, largest first; what does not fit is listed only when asked for.

    Raises:
        SizingError: A name is unknown, or the settings can be put to no model at all.
    """
    gpu, assumption = find_gpu(catalog, request.placement.gpu or "", "/placement/gpu")
    judged: list[_Judged] = []
    refused: list[tuple[str, SizingError]] = []
    for name in _names(catalog, request):
        try:
            judged.append(_judged(catalog, request, name))
        except SizingError as error:
            if isinstance(error, UnknownName) and not error.pointer.startswith("/model"):
                raise
            refused.append((name, error))
    if refused and not judged:
        raise refused[0][1]
    judged.sort(key=_order)
    listed = [j for j in judged if request.include_excluded or j.verdict != "excluded"]
    return ModelsAnswer(
        gpu=gpu.id,
        gpu_count=request.placement.gpus,
        usable_bytes=gpu.memory_usable_bytes,
        models=tuple(_said(j, gpu, rank=n) for n, j in enumerate(listed[: request.limit], 1)),
        not_estimated=_grouped(refused),
        considered=_considered(judged, refused),
        assumptions=_assumptions(listed, assumption),
        versions=versions(catalog.version),
        digest=fingerprint(request, catalog.version),
    )


def _names(catalog: Catalog, request: ModelsRequest) -> Iterable[str]:
    """Models to look at: those named, or all that the bounds let through."""
    if request.models is not None:
        for place, name in enumerate(request.models):
            find_model(catalog, name, pointer=f"/models/{place}")
        return request.models
    return [facts.id for facts in catalog.models if _wanted(facts, request)]


def _wanted(facts: ModelFacts, request: ModelsRequest) -> bool:
    if request.min_parameters is not None and facts.parameters_total < request.min_parameters:
        return False
    if request.max_parameters is not None and facts.parameters_total > request.max_parameters:
        return False
    if request.q is None:
        return True
    part = request.q.lower()
    return any(part in name.lower() for name in (facts.id, facts.family, *facts.aliases))


def _judged(catalog: Catalog, request: ModelsRequest, name: str) -> _Judged:
    workload = resolve(catalog, request.card(name))
    account = account_of(workload)
    screened = screen(workload, decisive(account))
    assert workload.gpu is not None  # noqa: S101  (the request names one)
    found = verdict(screened, workload.gpu.memory_usable_bytes, account.findings)
    return _Judged(workload, account, screened, found)


def _order(judged: _Judged) -> tuple[int, int, str]:
    model = judged.workload.model
    return VERDICT_ORDER[judged.verdict], -model.parameters_total, model.id or ""


def _said(judged: _Judged, gpu: Gpu, *, rank: int) -> FittingModel:
    model, cache = judged.workload.model, judged.account.kv_cache
    required, usable = judged.screened.required, gpu.memory_usable_bytes
    return FittingModel(
        rank=rank,
        model=model.id or model.family,
        parameters=model.parameters_total,
        parameters_active=model.parameters_active,
        weights_format=judged.workload.weight_format.id,
        required=required,
        headroom=Amount(usable - required.high, usable - required.expected, usable - required.low),
        verdict=judged.verdict,
        reason=_reason(judged, usable),
        max_concurrency=None if cache is None else cache.max_concurrency,
        max_model_len=None if cache is None else cache.max_model_len,
    )


def _reason(judged: _Judged, usable: int) -> str:
    """What decides: the amount, the claim, or the first of the findings as bad as the verdict."""
    required, claim, _ = judged.screened
    if compare(required, usable) == judged.verdict:
        relation = {"met": "fits", "excluded": "exceeds", "needs_confirmation": "may exceed"}[judged.verdict]
        words = f"{format_size(required.low)} to {format_size(required.high)}"
        return f"{words} {relation} {format_size(usable)} usable"
    if claim is not None and compare(claim, usable) == judged.verdict:
        return f"the engine takes {format_size(claim.low)} to {format_size(claim.high)} of {format_size(usable)} usable"
    return next((f.reason for f in judged.account.findings if f.status == judged.verdict), "")


def _grouped(refused: list[tuple[str, SizingError]]) -> tuple[NotEstimated, ...]:
    """Refusals by their words, most frequent first."""
    counts = Counter(error.detail for _, error in refused)
    examples = {error.detail: name for name, error in reversed(refused)}
    return tuple(
        NotEstimated(count=count, example=examples[detail], reason=detail)
        for detail, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def _considered(judged: list[_Judged], refused: list[tuple[str, SizingError]]) -> ModelsConsidered:
    verdicts = Counter(j.verdict for j in judged)
    return ModelsConsidered(
        models=len(judged) + len(refused),
        met=verdicts["met"],
        needs_confirmation=verdicts["needs_confirmation"],
        excluded=verdicts["excluded"],
        not_estimated=len(refused),
    )


def _assumptions(listed: list[_Judged], of_gpu: Assumption | None) -> tuple[Assumption, ...]:
    """What the first model listed had to assume; the settings are the same for all."""
    if not listed:
        return () if of_gpu is None else (of_gpu,)
    return listed[0].workload.assumptions + listed[0].account.assumptions
