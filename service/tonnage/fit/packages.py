"""Orders: packages of the catalogue and of the request, by how many hosts, with the GPU as that package exposes it."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tonnage.catalog import Catalog
from tonnage.catalog.gpus import find_gpu
from tonnage.errors import UnknownName
from tonnage.estimate.identity_cache import remembered
from tonnage.fit.boards import boards
from tonnage.fit.need import Need
from tonnage.spec.facts import Gpu, Offer, Package
from tonnage.spec.fit import InlineSku, OfferScope
from tonnage.units import parse_size

MOST_GPUS = 1024
"""GPUs of the largest order that is searched where the request sets no bound. [unitless]"""


class Order(Struct, frozen=True, gc=False):
    """One package, so many hosts of it."""

    package: Package
    hosts: int
    gpu: Gpu
    """As the package exposes it: a part of a GPU has a part of its memory."""
    gpus: int
    """GPUs of all hosts. [unitless]"""


def in_scope(catalog: Catalog, need: Need) -> tuple[list[tuple[Package, Gpu]], int]:
    """
    Packages that take part, by id.

    Args:
        catalog: The facts.
        need: The request.

    Returns:
        Packages and their GPUs, in order of id whatever the catalogue's order; and how many were left aside because
        they are only offered in ways that are no order (spot, marketplace).

    Raises:
        UnknownName: An offer names a package, provider or GPU that does not exist.
    """
    offer = need.request.offer
    inline = [_inline(catalog, sku, n) for n, sku in enumerate(offer.inline)]
    replaced = {p.id for p in inline}
    listed = [one for one in _listed(catalog) if one.package.id not in replaced] if offer.catalog else []
    _known([one.package for one in listed], inline, offer)
    gpus = _wanted_gpus(catalog, need)
    skus = None if offer.skus is None else set(offer.skus)
    named = [*listed, *(_Listed.of(p, find_gpu(catalog, p.gpu)[0]) for p in inline)]
    wanted = [one for one in named if (skus is None or one.package.id in skus) and (gpus is None or one.gpu.id in gpus)]
    apart = need.kinds_apart
    orderable = [(one.package, one.gpu) for one in wanted if not one.kinds or not one.kinds <= apart]
    return (sorted(orderable, key=lambda pair: pair[0].id) if inline else orderable), len(wanted) - len(orderable)


class _Listed(NamedTuple):
    """A package, its GPU as it exposes it, and the kinds of its offers."""

    package: Package
    gpu: Gpu
    kinds: frozenset[str]

    @classmethod
    def of(cls, package: Package, gpu: Gpu) -> "_Listed":
        return cls(package, gpu, frozenset(o.kind for o in package.offers))


def _listed(catalog: Catalog) -> tuple[_Listed, ...]:
    """The catalogue's packages in order of id; looked up once in a catalogue."""
    kept: tuple[_Listed, ...] | None = catalog.resolved.get("packages")
    if kept is None:
        found = (_Listed.of(p, exposed(p, find_gpu(catalog, p.gpu)[0])) for p in catalog.packages)
        kept = catalog.remember("packages", tuple(sorted(found, key=lambda one: one.package.id)))
    return kept


def orders(package: Package, gpu: Gpu, need: Need) -> Iterator[Order]:
    """Orders of one package from one host up to what the scope allows: one, two, four and so on."""
    offer = need.request.offer
    if offer.max_gpus_per_host is not None and package.gpus_per_host > offer.max_gpus_per_host:
        return
    most = min(package.max_hosts, offer.max_hosts or package.max_hosts) if offer.allow.several_hosts else 1
    hosts = 1
    while hosts <= most:
        if package.gpus_per_host * hosts <= (offer.max_gpus or MOST_GPUS):
            yield Order(package, hosts, gpu, package.gpus_per_host * hosts)
        hosts = hosts * 2 if hosts * 2 <= most or hosts == most else most


def exposed(package: Package, gpu: Gpu) -> Gpu:
    """The GPU as the package exposes it."""
    usable, share = package.gpu_memory_usable_bytes, package.gpu_share
    return gpu if usable is None and share is None else _exposed(gpu, usable, share)


@remembered(1024)
def _exposed(gpu: Gpu, usable: int | None, share: float | None) -> Gpu:
    """One object for all packages that expose it so: what is remembered of a GPU is found by identity."""
    if usable is not None:
        return replace(gpu, memory_usable_bytes=usable, memory_usable_expected_bytes=None)
    part = int(gpu.memory_usable_bytes * (share or 1))
    return replace(gpu, memory_usable_bytes=part, memory_usable_expected_bytes=None, usable_confidence="estimated")


def newest_price(catalog: Catalog) -> str | None:
    """Newest date of a price, looked for once in a catalogue."""
    kept: str | None = catalog.resolved.get("newest price")
    if kept is None:
        dates = (o.as_of for p in catalog.packages for o in p.offers if o.as_of is not None)
        kept = catalog.remember("newest price", max(dates, default=None))
    return kept


def _wanted_gpus(catalog: Catalog, need: Need) -> set[str] | None:
    names = need.request.offer.gpus
    named = None if names is None else _boards(catalog, [(n, f"/offer/gpus/{i}") for i, n in enumerate(names)])
    if need.request.placement.gpu is None:
        return named
    wish = _boards(catalog, [(need.request.placement.gpu, "/placement/gpu")])
    return wish if named is None else named & wish


def _boards(catalog: Catalog, names: list[tuple[str, str]]) -> set[str]:
    return {gpu.id for name, pointer in names for gpu in boards(catalog, name, pointer)}


def _known(listed: list[Package], inline: list[Package], offer: OfferScope) -> None:
    if offer.skus is None and offer.providers is None:
        return
    ids = {p.id for p in (*listed, *inline)}
    for n, name in enumerate(offer.skus or []):
        if name not in ids:
            raise UnknownName("sku", name, ids, pointer=f"/offer/skus/{n}")
    providers = {p.provider for p in (*listed, *inline)}
    for n, name in enumerate(offer.providers or []):
        if name not in providers:
            raise UnknownName("provider", name, providers, pointer=f"/offer/providers/{n}")


def _inline(catalog: Catalog, sku: InlineSku, number: int) -> Package:
    find_gpu(catalog, sku.gpu, f"/offer/inline/{number}/gpu")
    return Package(
        id=sku.id,
        provider=sku.provider,
        gpu=sku.gpu,
        gpus_per_host=sku.gpus_per_host,
        max_hosts=sku.max_hosts,
        region=sku.region,
        name=sku.name,
        host_memory_bytes=None if sku.host_memory_bytes is None else parse_size(sku.host_memory_bytes),
        disk_bytes=None if sku.disk_bytes is None else parse_size(sku.disk_bytes),
        interconnect=sku.interconnect,
        delivery_days=sku.delivery_days,
        offers=tuple(
            Offer(
                kind=o.kind,
                price=o.price,
                currency=o.currency,
                per=o.per,
                term_hours=o.term_hours,
                minimum_hours=o.minimum_hours,
                hours_per_month=o.hours_per_month,
                as_of=o.as_of,
                source=o.source,
            )
            for o in sku.offers
        ),
        source="request: /offer/inline",
    )
