"""
One function per requirement, each judged alone: met, needs confirmation, or excluded, with a reason.

Facts that establish a requirement make it `met`, facts that establish that it cannot be make it `excluded`,
and what is not known needs confirmation. Reasons are put into words only for candidates that are shown.
"""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import lru_cache

from msgspec import Struct

from tonnage.errors import Unsupported
from tonnage.estimate.backends import capability
from tonnage.estimate.support import attention_findings, format_findings, layout_findings
from tonnage.fit.links import fast_domain, links
from tonnage.fit.need import DEFAULT_MAX_PRICE_AGE_DAYS, Need
from tonnage.fit.packages import Order
from tonnage.fit.pricing import Bill, plain
from tonnage.fit.technical import Technical
from tonnage.spec.card import Placement
from tonnage.spec.facts import Gpu, WeightFormat
from tonnage.spec.fit import RequirementName
from tonnage.spec.report import Amount, Verdict
from tonnage.units import format_size

MET, CONFIRM, EXCLUDED = 0, 1, 2
VERDICTS: tuple[Verdict, ...] = ("met", "needs_confirmation", "excluded")
EVERYWHERE = {None, "global", "marketplace", "us", "eu", "europe-01", "it"}
"""Regions too wide to say where a host stands."""
_COMFORT = 0.95
"""Part of an unconfirmed capacity that is still taken as established. [fraction]"""


class Judged(Struct, frozen=True, gc=False):
    """One requirement, its status as a number (worst is largest), and how to say why."""

    name: RequirementName
    status: int
    say: Callable[[], str]
    evidence: str = ""


# ---- of a GPU under a layout and a format ----


def memory(technical: Technical, need: Need) -> Judged:
    """Required memory of the worst GPU against what that GPU holds, with the caller's headroom."""
    required, usable = technical.required, technical.gpu.memory_usable_bytes
    if technical.bound is not None:
        bound = technical.bound
        words = "{} of weights alone, of {} usable on each GPU"
        return Judged(
            "memory",
            EXCLUDED,
            lambda: words.format(format_size(bound), format_size(usable)),
            technical.gpu.memory_source,
        )
    if required is None:
        return Judged("memory", CONFIRM, lambda: "not judged: no layout runs on these GPUs")
    doubtful = technical.gpu.usable_confidence in {"estimated", "recalled"} and required.high > usable * _COMFORT
    if technical.verdict == MET and doubtful:
        return Judged(
            "memory", CONFIRM, lambda: f"{_band(required)} of {format_size(usable)}, a capacity nobody has confirmed"
        )
    return Judged(
        "memory",
        technical.verdict,
        lambda: _memory_words(technical, required, usable, need.spare),
        technical.gpu.memory_source,
    )


def _memory_words(technical: Technical, required: Amount, usable: int, spare: float) -> str:
    words = f"{_band(required)} required of {format_size(usable)} usable in phase {technical.phase}"
    if spare:
        words += f", {spare:.0%} to stay free"
    if technical.measured:
        words += "; the peak is measured, not estimated"
    return "; ".join([words, *(f.reason for f in technical.findings if f.status != "met")])


def placement(technical: Technical, need: Need) -> Judged:
    """Whether the engine runs the layout and the model divides; a stated layout may be one it is not known to run."""
    if technical.refusal is not None:
        reason = technical.refusal
        return Judged("placement", EXCLUDED, lambda: reason)
    if technical.layout_status == CONFIRM:
        return Judged("placement", CONFIRM, lambda: "only a parameter count is known: heads and layers may not divide")
    stated = None if need.fixed_layout is None else _stated_layout(need.fixed_layout, need)
    if stated is not None:
        return stated
    used, there = technical.used, technical.gpus
    idle = f", {there - used} of {there} GPUs idle" if used < there else ""
    return Judged("placement", MET, lambda: f"one GPU{idle}" if used == 1 else f"heads, layers and groups divide{idle}")


def _stated_layout(layout: Placement, need: Need) -> Judged | None:
    """What /estimate says of a layout that the engine or framework is not known to run."""
    try:
        doubts = layout_findings(layout, need.engine, need.framework)
    except Unsupported as error:
        detail = error.detail
        return Judged("placement", EXCLUDED, lambda: detail)
    return Judged("placement", CONFIRM, lambda: "; ".join(f.reason for f in doubts)) if doubts else None


def engine(gpu: Gpu, need: Need) -> Judged:
    """Whether the engine or framework runs on this accelerator."""
    where, who = need.hardware, need.engine or need.framework or "no engine is stated; PyTorch"
    have, least = capability(gpu.compute_capability), capability(where.minimum_compute_capability)
    if have is not None and least is not None and have < least:
        return Judged(
            "engine",
            EXCLUDED,
            lambda: (
                f"{who} needs compute capability {where.minimum_compute_capability}, {gpu.name} has {gpu.compute_capability}"
            ),
            where.source,
        )
    kernel = attention_findings(need.serving, need.training, gpu)
    if kernel:
        return Judged("engine", EXCLUDED, lambda: kernel[0].reason, "Dao-AILab/flash-attention README")
    if gpu.vendor in where.established:
        return Judged("engine", MET, lambda: f"{who} runs on {gpu.vendor}", where.source)
    if gpu.vendor in where.possible:
        return Judged("engine", CONFIRM, lambda: f"{who} on {gpu.vendor} depends on a plugin or branch", where.source)
    return Judged("engine", EXCLUDED, lambda: f"{who} does not run on {gpu.vendor}", where.source)


def native_dtypes(gpu: Gpu, weight_format: WeightFormat, need: Need) -> Judged:
    """Compute capability for the format, dtypes the caller wants in hardware."""
    have = capability(gpu.compute_capability)
    wanted = capability(need.wanted.min_compute_capability)
    if wanted is not None and have is not None and have < wanted:
        return _dtypes(
            EXCLUDED, lambda: f"compute capability {gpu.compute_capability}, {need.wanted.min_compute_capability} asked"
        )
    missing = [d for d in need.wanted.native_dtypes or () if d not in gpu.native_dtypes]
    if missing:
        return _dtypes(EXCLUDED, lambda: f"{gpu.name} has no native {', '.join(missing)}")
    found = format_findings(need.engine or need.framework, need.engine, gpu, weight_format)
    if wanted is not None and have is None and all(f.status != "excluded" for f in found):
        return _dtypes(CONFIRM, lambda: f"{gpu.name} has no NVIDIA compute capability to compare")
    if found:
        worst = max(VERDICTS.index(f.status) for f in found)
        return _dtypes(worst, lambda: "; ".join(f.reason for f in found))
    native = weight_format.native_dtype
    stored = "" if native is None or native in gpu.native_dtypes else f", {native} only as storage"
    return _dtypes(MET, lambda: f"{weight_format.id} runs on {gpu.name}{stored}")


def _dtypes(status: int, say: Callable[[], str]) -> Judged:
    return Judged("native_dtypes", status, say, "catalogue: gpus, formats")


def bandwidth(gpu: Gpu, need: Need) -> Judged | None:
    """Memory bandwidth the caller asks for."""
    least = need.bandwidth
    if least is None:
        return None
    have = gpu.bandwidth_bytes_per_second
    if have is None:
        return Judged("bandwidth", CONFIRM, lambda: f"bandwidth of {gpu.name} is not known")
    status = MET if have >= least else EXCLUDED
    return Judged("bandwidth", status, lambda: f"{format_size(have)}/s, {format_size(least)}/s asked", gpu.source)


def workload(need: Need) -> Judged | None:
    """Whether the card says what is to run."""
    if need.serving is not None or need.training is not None:
        return None
    words = "neither serving nor training stated: context, concurrency and compatibility are open, a reserve stands for them"
    return Judged("workload", CONFIRM, lambda: words, "request")


def quality(weight_format: WeightFormat, need: Need) -> Judged | None:
    """The caller's metric, by the caller's evidence only."""
    bar = need.wanted.quality
    if bar is None:
        return None
    value = bar.evidence.get(weight_format.id)
    if value is None:
        return Judged("quality", CONFIRM, lambda: f"no {bar.metric} was given for {weight_format.id}", "request")
    status = MET if value >= bar.minimum else EXCLUDED
    return Judged(
        "quality", status, lambda: f"{bar.metric} {value:g}, {bar.minimum:g} asked", "request: /requirements/quality"
    )


# ---- of an order ----


def price(bill: Bill | None, order: Order, need: Need) -> Judged:
    """Total against the budget."""
    budget = need.budget
    if bill is None:
        spot = bool(order.package.offers)
        words = "only interruptible or marketplace prices, which are not allowed" if spot else "no price is known"
        return Judged("price", EXCLUDED if spot else CONFIRM, lambda: words, order.package.source)
    offer = bill.offer
    if budget is not None and offer.currency != budget[1]:
        return Judged(
            "price",
            CONFIRM,
            lambda: f"priced in {offer.currency}, budget in {budget[1]}: nothing is converted",
            offer.source,
        )
    if budget is not None and bill.total > budget[0]:
        return Judged("price", EXCLUDED, lambda: f"{_money(bill)} is above {budget[0]} {budget[1]}", offer.source)
    if not offer.confirmed or offer.kind == "marketplace":
        why = "a marketplace price moves" if offer.kind == "marketplace" else "the source of the price is doubtful"
        return Judged("price", CONFIRM, lambda: f"{_money(bill)}: {why}", offer.source)
    limit = "" if budget is None else f", {budget[0]} {budget[1]} allowed"
    return Judged("price", MET, lambda: f"{_money(bill)}{limit}", offer.source)


def term(bill: Bill | None, need: Need) -> Judged | None:
    """Fixed terms and minimum billing against the asked duration."""
    if bill is None:
        return None
    offer = bill.offer
    if need.hours is None:
        if offer.per == "hour" and not offer.minimum_hours:
            return None
        return Judged("term", CONFIRM, lambda: "sold by fixed or minimum terms and no duration is stated", offer.source)
    hours = need.hours
    if offer.kind in {"reserved", "capacity-block"}:
        return Judged("term", CONFIRM, lambda: f"{offer.kind}: has to be free on the asked dates", offer.source)
    return Judged("term", MET, lambda: _hours_billed(hours, bill), offer.source)


def _hours_billed(hours: Decimal, bill: Bill) -> str:
    words = f"{hours.normalize():f} h asked, {bill.billed_hours.normalize():f} h billed"
    return words if bill.billed_hours <= hours else f"{words}: whole periods"


def region(order: Order, need: Need) -> Judged | None:
    """Regions the caller allows."""
    allowed = need.request.offer.regions
    if allowed is None:
        return None
    have = order.package.region
    if have is not None and have.lower() in {r.lower() for r in allowed}:
        return Judged("region", MET, lambda: have, order.package.source)
    if have is None or have.lower() in EVERYWHERE:
        return Judged(
            "region", CONFIRM, lambda: "the provider does not say where the host stands", order.package.source
        )
    return Judged("region", EXCLUDED, lambda: f"{have} is not among {', '.join(allowed)}", order.package.source)


def provider(order: Order, need: Need) -> Judged | None:
    """Providers the caller allows."""
    allowed = need.request.offer.providers
    if allowed is None:
        return None
    have = order.package.provider
    status = MET if have.lower() in {p.lower() for p in allowed} else EXCLUDED
    return Judged("provider", status, lambda: have if status == MET else f"{have} is not among {', '.join(allowed)}")


def delivery(order: Order, need: Need) -> Judged | None:
    """Delivery until the asked day."""
    by = need.wanted.delivery_by
    if by is None:
        return None
    days, ordered = order.package.delivery_days, need.wanted.order_date
    if days is None:
        return Judged("delivery", CONFIRM, lambda: "the provider states no delivery time", order.package.source)
    if ordered is None:
        return Judged(
            "delivery", CONFIRM, lambda: f"{days} days after an order date that is not stated", order.package.source
        )
    left = (date.fromisoformat(by) - date.fromisoformat(ordered)).days
    status = MET if days <= left else EXCLUDED
    return Judged(
        "delivery", status, lambda: f"{days} days to deliver, {left} days left until {by}", order.package.source
    )


def data_age(bill: Bill | None, need: Need) -> Judged | None:
    """Date of the price; an undated price needs confirmation."""
    if bill is None:
        return None
    offer = bill.offer
    if offer.as_of is None:
        return Judged("data_age", CONFIRM, lambda: "the price is undated", offer.source)
    most = need.wanted.max_price_age_days
    limit = DEFAULT_MAX_PRICE_AGE_DAYS if most is None else most
    age = _days_between(offer.as_of, need.today) if need.today is not None else 0
    status = MET if age <= limit else CONFIRM
    return Judged(
        "data_age",
        status,
        lambda: f"price of {offer.as_of}, {age} days before {need.today}, {limit} allowed",
        offer.source,
    )


# ---- of both ----


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


def of_layout(technical: Technical, need: Need) -> tuple[Judged, ...]:
    """Requirements of a layout on a GPU."""
    return memory(technical, need), placement(technical, need)


def of_gpu(gpu: Gpu, weight_format: WeightFormat, need: Need) -> tuple[Judged, ...]:
    """Requirements of a GPU and a format, whatever the layout and the order."""
    found = (
        engine(gpu, need),
        native_dtypes(gpu, weight_format, need),
        bandwidth(gpu, need),
        workload(need),
        quality(weight_format, need),
    )
    return tuple(j for j in found if j is not None)


def of_order(order: Order, bill: Bill | None, need: Need) -> tuple[Judged, ...]:
    """Requirements that depend on the order alone."""
    found = (
        price(bill, order, need),
        term(bill, need),
        region(order, need),
        provider(order, need),
        delivery(order, need),
        data_age(bill, need),
    )
    return tuple([j for j in found if j is not None])


def of_both(technical: Technical, order: Order, need: Need) -> tuple[Judged, ...]:
    """Requirements of a layout on an order."""
    found = (
        interconnect(technical, order, need),
        host_memory(technical, order, need),
        disk(technical, order, need),
        throughput(technical, order, need),
    )
    return tuple([j for j in found if j is not None])


def _band(amount: Amount) -> str:
    return f"{format_size(amount.low)} to {format_size(amount.high)}"


def _money(bill: Bill) -> str:
    total: Decimal = plain(bill.total)
    return f"{total:f} {bill.offer.currency}"


@lru_cache(maxsize=1024)
def _days_between(earlier: str, later: str) -> int:
    first, second = (date.fromisoformat(f"{text}-01" if len(text) == 7 else text) for text in (earlier, later))
    return max(0, (second - first).days)
