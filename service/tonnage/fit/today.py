"""What the caller runs today, or ran and lost: judged like any candidate, diagnosed, with the changes that help it."""

from msgspec.structs import replace

from tonnage.catalog import Catalog, resolve
from tonnage.catalog.gpus import find_gpu
from tonnage.errors import UnknownName
from tonnage.estimate.assemble import account_of, assemble
from tonnage.estimate.changes import Reestimate
from tonnage.estimate.diagnosis import remedies
from tonnage.estimate.remedies import Scene
from tonnage.evidence import with_evidence
from tonnage.fit.alternatives import card_of, estimate_of
from tonnage.fit.candidates import candidate
from tonnage.fit.found import Found
from tonnage.fit.links import fast_domain
from tonnage.fit.packages import Order
from tonnage.fit.search import Search
from tonnage.fit.technical import estimated
from tonnage.spec.card import Placement, SizingCard
from tonnage.spec.facts import Gpu, Package
from tonnage.spec.fit import Current, CurrentReport
from tonnage.spec.report import Estimate
from tonnage.spec.workload import Workload


def current_report(search: Search, current: Current) -> CurrentReport:
    """
    Today's run as a candidate.

    Args:
        search: The request's search.
        current: SKU or GPU, and layout.

    Returns:
        Its requirements, and single changes in the order of the phase that fails or peaks.

    Raises:
        UnknownName: There is no such package or GPU.
    """
    found = _run_today(search, current)
    report = candidate(found, search.need, rank=0, follower=None)
    before = estimate_of(found)
    if before is None:
        return CurrentReport(candidate=report)
    failure = search.need.request.failure
    phase = before.peak.phase if failure is None or failure.phase is None else failure.phase
    scene = Scene(card_of(found, search.need.request), before, found.technical.variant.workload.model)
    changes = remedies(scene, phase, _memory_on(search.catalog, found.technical.gpu))
    return CurrentReport(candidate=report, remedies=changes)


def with_what_is_known(search: Search, base: Found | None) -> Estimate | None:
    """The run that the failure or the measurements are about, after them; None where nothing is known of any."""
    request = search.need.request
    if request.failure is None and not request.measurements:
        return None
    workload = _told_of(search, base)
    gpu = workload.gpu
    card = replace(
        workload.card,
        placement=replace(workload.placement, gpu=None if gpu is None else gpu.id),
        measurements=request.measurements,
        failure=request.failure,
    )
    workload = replace(workload, card=card, measurements=search.variants[0].workload.measurements)
    return with_evidence(assemble(workload, account_of(workload)), workload, _memory_on(search.catalog, gpu))


def _memory_on(catalog: Catalog, gpu: Gpu | None) -> Reestimate:
    """Estimates of changed cards on a GPU that is there already: memory decides, no price."""

    def reestimate(card: SizingCard) -> Estimate:
        workload = replace(resolve(catalog, card), gpu=gpu)
        return assemble(workload, account_of(workload))

    return reestimate


def _told_of(search: Search, base: Found | None) -> Workload:
    """On today's GPU, else the stated one, else the base candidate's."""
    request, bare = search.need.request, search.variants[0].workload
    today = None if request.current is None else _run_today(search, request.current).technical.workload
    if today is not None:
        return today
    if request.placement.gpu is not None:
        gpu = find_gpu(search.catalog, request.placement.gpu, "/placement/gpu")[0]
        return replace(bare, placement=request.placement, gpu=gpu)
    if base is not None and base.technical.workload is not None:
        return base.technical.workload
    return replace(bare, placement=Placement())


def _run_today(search: Search, current: Current) -> Found:
    package = _package(search, current)
    gpu = find_gpu(search.catalog, package.gpu, "/current/gpu")[0]
    placement = current.placement or search.need.fixed_layout
    if placement is None:
        order = Order(package, 1, gpu, package.gpus_per_host)
        return search.judge(order, search.best(order, fast_domain(package, gpu, 1), 0))
    hosts = -(-placement.gpus // package.gpus_per_host)
    order = Order(package, hosts, gpu, hosts * package.gpus_per_host)
    technical = estimated(search.variants[0], gpu, order.gpus, replace(placement, gpu=None), spare=search.need.spare)
    return search.judge(order, technical)


def _package(search: Search, current: Current) -> Package:
    if current.sku is not None:
        listed = {p.id: p for p in search.catalog.packages} | {p.id: p for p, _ in search.packages}
        if current.sku not in listed:
            raise UnknownName("sku", current.sku, listed, pointer="/current/sku")
        return listed[current.sku]
    layout = current.placement or search.need.fixed_layout or Placement()
    gpu = find_gpu(search.catalog, current.gpu or "", "/current/gpu")[0]
    return Package(
        id=f"current:{gpu.id}", provider="current", gpu=gpu.id, gpus_per_host=layout.gpus, source="request: /current"
    )
