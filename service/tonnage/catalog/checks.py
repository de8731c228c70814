"""What a schema cannot say: records that contradict each other or the world."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from tonnage.catalog.bind import check_arguments
from tonnage.catalog.contents import Catalog
from tonnage.catalog.lookup import gpu_fold
from tonnage.errors import CatalogError
from tonnage.spec.facts import Gpu, ModelFacts, Offer, Optimizer, Package


def problems_of(catalog: Catalog, today: date | None = None) -> list[str]:
    """
    Contradictions between records.

    Args:
        catalog: All facts.
        today: Last day a price may carry; tomorrow by default, for clocks ahead of UTC.

    Returns:
        One line per problem, naming the record.
    """
    latest = (today or datetime.now(UTC).date() + timedelta(days=1)).isoformat()
    return [
        *(f"gpu {gpu.id!r}: {p}" for gpu in catalog.gpus for p in _gpu(gpu)),
        *(f"package {package.id!r}: {p}" for package in catalog.packages for p in _package(catalog, package, latest)),
        *(f"optimizer {optimizer.id!r}: {p}" for optimizer in catalog.optimizers for p in _optimizer(optimizer)),
        *(f"model {model.id!r}: {p}" for model in catalog.models for p in _model(model)),
        *_loose_names(catalog),
        *_formats(catalog),
    ]


def _gpu(gpu: Gpu) -> Iterable[str]:
    if gpu.memory_usable_bytes <= 0 or gpu.memory_nominal_bytes <= 0:
        yield "memory must be above 0"
    if gpu.memory_device_bytes is not None and gpu.memory_usable_bytes > gpu.memory_device_bytes:
        yield "memory_usable_bytes is above what the driver reports (memory_device_bytes)"
    expected = gpu.memory_usable_expected_bytes
    if expected is not None and not gpu.memory_usable_bytes <= expected <= (gpu.memory_device_bytes or expected):
        yield "memory_usable_expected_bytes lies outside memory_usable_bytes and memory_device_bytes"
    for mig in gpu.mig_profiles:
        if not 0 < mig.memory_usable_bytes <= gpu.memory_usable_bytes:
            yield f"MIG profile {mig.profile} holds more than the GPU, or nothing"


def _loose_names(catalog: Catalog) -> Iterable[str]:
    holders: dict[str, str] = {}
    for gpu in catalog.gpus:
        for name in gpu.default_for:
            board = catalog.gpus.find(name)
            holder = board.id if board is not None else holders.setdefault(gpu_fold(name), gpu.id)
            if board is not None or holder != gpu.id:
                yield f"gpu {gpu.id!r}: the loose name {name!r} already belongs to {holder!r}"


def _package(catalog: Catalog, package: Package, latest: str) -> Iterable[str]:
    gpu = catalog.gpus.entries.get(package.gpu)
    if gpu is None:
        yield f"there is no gpu {package.gpu!r}"
    elif (package.gpu_memory_usable_bytes or 0) > gpu.memory_usable_bytes:
        yield "gpu_memory_usable_bytes is above that of its gpu"
    for offer in package.offers:
        yield from _offer(offer, latest)


def _offer(offer: Offer, latest: str) -> Iterable[str]:
    if not offer.price.is_finite() or offer.price <= 0:
        yield f"price {offer.price} is not above 0"
    if offer.as_of is not None and offer.as_of > latest:
        yield f"price date {offer.as_of} lies in the future"
    if (offer.per == "term") != (offer.term_hours is not None):
        yield "term_hours belongs to per = 'term', and per = 'term' needs it"


def _optimizer(optimizer: Optimizer) -> Iterable[str]:
    try:
        check_arguments(
            f"optimizer.{optimizer.law}", given=set(optimizer.arguments) - SETTINGS, needed=_needed(optimizer)
        )
    except CatalogError as error:
        yield str(error)


SETTINGS = frozenset({"projected", "layerwise"})
"""Arguments of an optimizer that steer the training account instead of its law."""


def _needed(optimizer: Optimizer) -> dict[str, bool]:
    """Inputs of a law that only data can give, and whether the record gives them."""
    return {"block_size": optimizer.block_size is not None}


def _model(model: ModelFacts) -> Iterable[str]:
    if model.parameters_by_component and sum(model.parameters_by_component.values()) != model.parameters_total:
        yield "parameters_by_component does not add up to parameters_total"
    if (model.parameters_active or 0) > model.parameters_total:
        yield "parameters_active is above parameters_total"


def _formats(catalog: Catalog) -> Iterable[str]:
    for model in catalog.models:
        if model.weight_format is not None and model.weight_format not in catalog.formats.entries:
            yield f"model {model.id!r}: there is no format {model.weight_format!r}"
    for weight_format in catalog.formats:
        if weight_format.block_elements < 1 or weight_format.block_bytes < 1:
            yield f"format {weight_format.id!r}: a block needs elements and bytes"
        for other in (weight_format.base_type, weight_format.as_gguf):
            if other is not None and other not in catalog.formats.entries:
                yield f"format {weight_format.id!r}: there is no format {other!r}"
