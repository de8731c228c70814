"""What the hosts of an order have to be for a layout: links, host memory, disk, throughput."""

from collections.abc import Callable

from tonnage.fit.judged import CONFIRM, EXCLUDED, MET, Judged
from tonnage.fit.links import fast_domain, links
from tonnage.fit.need import Need
from tonnage.fit.packages import Order
from tonnage.fit.technical import Technical
from tonnage.spec.fit import RequirementName
from tonnage.units import format_size


def interconnect(technical: Technical, order: Order, need: Need) -> Judged | None:
    """Links for the parallelism: inside a tensor-parallel group, and between hosts."""
    if technical.used == 1:
        return None
    sizes, asked = technical.placement, need.wanted.interconnect
    have = links(order.package, order.gpu)
    if sizes.tensor_parallel_size > fast_domain(order.package, order.gpu, order.hosts):
        return _link(EXCLUDED, lambda: "a tensor-parallel group would span hosts", order)
    if unnamed_network(order):
        return _link(CONFIRM, lambda: "several hosts and no network between them is named", order)
    if asked in {"nvlink", "fabric"} and sizes.tensor_parallel_size > 1 and have.inside != "nvlink":
        status = CONFIRM if have.inside == "unknown" else EXCLUDED
        return _link(status, lambda: f"{asked} asked, {have.words}", order)
    return _link(MET, lambda: f"{have.words} inside a host", order)


def unnamed_network(order: Order) -> bool:
    """Several hosts of which nobody says what connects them."""
    return order.hosts > 1 and not links(order.package, order.gpu).fabric


def _link(status: int, say: Callable[[], str], order: Order) -> Judged:
    return Judged("interconnect", status, say, order.package.source)


def host_memory(technical: Technical, order: Order, need: Need) -> Judged | None:
    """Host memory the run and the caller need, per host."""
    low, high = _host_range(technical, order, need)
    return None if high == 0 else _room("host_memory", low, high, order.package.host_memory_bytes, order)


def _host_range(technical: Technical, order: Order, need: Need) -> tuple[int, int]:
    """What one host must have at least, and at most. [bytes]"""
    host, asked = technical.host, need.host_memory
    if host is None:
        return asked, asked
    low, high = host.low // order.hosts, -(-host.high // order.hosts)
    return (max(low, asked), max(high, asked)) if asked else (low, high)


def disk(technical: Technical, order: Order, need: Need) -> Judged | None:
    """Disk for the checkpoint, and what the caller asks for; more can usually be attached."""
    needed = max(technical.disk, need.disk)
    have = order.package.disk_bytes
    if needed == 0:
        return None
    return _room("disk", need.disk, needed, have, order)


def _room(name: RequirementName, low: int, high: int, have: int | None, order: Order) -> Judged:
    if have is None:
        return Judged(
            name, CONFIRM, lambda: f"{format_size(high)} needed; the provider states none", order.package.source
        )
    status = _enough(low, high, have)
    return Judged(
        name, status, lambda: f"{format_size(have)} per host, {format_size(high)} needed", order.package.source
    )


def _enough(low: int, high: int, have: int | None) -> int:
    if have is None:
        return CONFIRM
    return MET if have >= high else EXCLUDED if have < low else CONFIRM


def room(technical: Technical, order: Order, need: Need) -> int:
    """Worst status of host memory and disk, without their words."""
    package = order.package
    low, high = _host_range(technical, order, need)
    status = MET if high == 0 else _enough(low, high, package.host_memory_bytes)
    needed = max(technical.disk, need.disk)
    return status if needed == 0 else max(status, _enough(need.disk, needed, package.disk_bytes))


def throughput(technical: Technical, order: Order, need: Need) -> Judged | None:
    """Tokens per second, by the caller's evidence or as a stated bound."""
    bar = need.wanted.throughput
    if bar is None:
        return None
    least = bar.minimum_tokens_per_second
    given = bar.evidence.get(order.package.id, bar.evidence.get(order.gpu.id))
    if given is not None:
        status = MET if given >= least else EXCLUDED
        return Judged("throughput", status, lambda: f"{given:g} tokens/s measured, {least:g} asked", "request")
    bound = decode_bound(technical)
    if bound is None:
        return Judged("throughput", CONFIRM, lambda: "no measurement, and no bound can be stated", "request")
    words = f"no measurement; memory bandwidth bounds decoding at {bound:.0f} tokens/s"
    return Judged(
        "throughput", CONFIRM, lambda: words + (f", below the {least:g} asked" if bound < least else ""), "roofline"
    )


def decode_bound(technical: Technical) -> float | None:
    """
    Tokens per second that memory bandwidth allows at most: each step reads the active weights of a GPU once.

    Returns:
        Bound over all copies for the stated concurrency, None where a fact is missing. [tokens per second]
    """
    workload, bytes_per_second = technical.workload, technical.gpu.bandwidth_bytes_per_second
    concurrency = None if workload is None else getattr(workload.serving, "concurrency", None)
    if workload is None or concurrency is None or bytes_per_second is None or not technical.weights:
        return None
    model = workload.model
    active = (model.parameters_active or model.parameters_total) / model.parameters_total
    return float(concurrency) * bytes_per_second / (technical.weights * active)
