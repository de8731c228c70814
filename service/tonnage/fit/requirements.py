"""
The requirements of a candidate, each judged alone: met, needs confirmation, or excluded, with a reason.

Facts that establish a requirement make it `met`, facts that establish that it cannot be make it `excluded`,
and what is not known needs confirmation. One function each, by what it asks: `hardware`, `hosts`, `terms`.
"""

from tonnage.fit import hardware, hosts, terms
from tonnage.fit.judged import Judged
from tonnage.fit.need import Need
from tonnage.fit.packages import Order
from tonnage.fit.pricing import Bill
from tonnage.fit.technical import Technical
from tonnage.spec.facts import Gpu, WeightFormat


def of_layout(technical: Technical, need: Need) -> tuple[Judged, ...]:
    """Requirements of a layout on a GPU."""
    return hardware.memory(technical, need), hardware.placement(technical, need)


def layout_status(technical: Technical, need: Need) -> int:
    """Worst of `of_layout`, without its words."""
    return max(hardware.memory_status(technical), hardware.placement_status(technical, need))


def of_gpu(gpu: Gpu, weight_format: WeightFormat, need: Need) -> tuple[Judged, ...]:
    """Requirements of a GPU and a format, whatever the layout and the order."""
    found = (
        hardware.engine(gpu, need),
        hardware.native_dtypes(gpu, weight_format, need),
        hardware.bandwidth(gpu, need),
        hardware.workload(need),
        hardware.quality(weight_format, need),
    )
    return tuple(j for j in found if j is not None)


def of_order(order: Order, bill: Bill | None, need: Need) -> tuple[Judged, ...]:
    """Requirements that depend on the order alone."""
    found = (
        terms.price(bill, order, need),
        terms.term(bill, need),
        terms.region(order, need),
        terms.provider(order, need),
        terms.delivery(order, need),
        terms.data_age(bill, need),
    )
    return tuple([j for j in found if j is not None])


def of_both(technical: Technical, order: Order, need: Need) -> tuple[Judged, ...]:
    """Requirements of a layout on an order."""
    found = (
        hosts.interconnect(technical, order, need),
        hosts.host_memory(technical, order, need),
        hosts.disk(technical, order, need),
        hosts.throughput(technical, order, need),
    )
    return tuple([j for j in found if j is not None])
