"""Price lists of others -> an overlay: a CSV of one's own, or gpuhunt's offers."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from msgspec import Struct

from tonnage.catalog.contents import Catalog
from tonnage.catalog.gpus import find_gpu
from tonnage.catalog.toml_text import tables
from tonnage.errors import CatalogError, SizingError
from tonnage.spec.facts import Gpu
from tonnage.units import GB, parse_size

Row = Mapping[str, str]

MEMORY_TOLERANCE = 0.1
"""How far a list's GPU memory may be from the nominal one of the GPU its name stands for. [fraction]"""


class Imported(Struct, frozen=True):
    """An overlay file, and the rows that are not in it."""

    toml: str
    packages: int
    offers: int
    skipped: tuple[str, ...]
    """Row number and reason."""


class _Line(NamedTuple):
    """One row understood: the package it belongs to and its price."""

    package: dict[str, Any]
    offer: dict[str, Any]


_REQUIRED = ("provider", "gpu", "price")
_TEXTS = ("region", "name", "interconnect", "notes")
_COUNTS = ("gpus_per_host", "max_hosts", "vcpus", "delivery_days")
_SIZES = {"host_memory": "host_memory_bytes", "disk": "disk_bytes"}
_OFFER_TEXTS = ("kind", "currency", "per", "as_of")
_OFFER_COUNTS = ("term_hours", "minimum_hours", "hours_per_month")
COLUMNS = ("id", *_REQUIRED, *_TEXTS, *_COUNTS, *_SIZES, *_OFFER_TEXTS, *_OFFER_COUNTS, "source")
"""Columns of a price list; all but provider, gpu and price may be missing."""


def price_list(catalog: Catalog, text: str, *, source: str, as_of: str) -> Imported:
    """
    A price list as an overlay.

    Args:
        catalog: To resolve GPU names against.
        text: CSV with a header of `COLUMNS`; sizes with their unit ("512 GiB"), one row per price.
        source: Where the list comes from, for rows without their own.
        as_of: Date of the prices, for rows without their own. [ISO date]

    Returns:
        The overlay; rows with the same id make one package with several offers.

    Raises:
        CatalogError: The header lacks a required column or has an unknown one.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""))
    header = [name.strip() for name in rows.fieldnames or ()]
    _check_header(header)
    rows.fieldnames = header
    return _overlay(catalog, rows, lambda row: _listed(catalog, row, source, as_of), "price list", source)


def gpuhunt_offers(catalog: Catalog, rows: Iterable[Row], *, provider: str, source: str, as_of: str) -> Imported:
    """
    Offers as gpuhunt collects them, as an overlay.

    Args:
        catalog: To resolve GPU names against.
        rows: Rows of gpuhunt's `<provider>.csv`, by column name.
        provider: Whose offers they are.
        source: Where the rows come from.
        as_of: Date they were collected. [ISO date]

    Returns:
        The overlay; on-demand and spot prices of one instance in one location make one package.
    """
    return _overlay(catalog, rows, lambda row: _hunted(catalog, row, provider, source, as_of), "gpuhunt offers", source)


def _check_header(header: list[str]) -> None:
    missing = [name for name in _REQUIRED if name not in header]
    unknown = [name for name in header if name not in COLUMNS]
    if missing or unknown:
        complaint = f"lacks {', '.join(missing)}" if missing else f"has unknown columns {', '.join(unknown)}"
        raise CatalogError(f"the price list {complaint}; known columns: {', '.join(COLUMNS)}")


def _overlay(
    catalog: Catalog, rows: Iterable[Row], understand: Callable[[Row], _Line], what: str, source: str
) -> Imported:
    packages: dict[str, dict[str, Any]] = {}
    skipped: list[str] = []
    for number, row in enumerate(rows, 2):
        try:
            package, offer = understand({key: (value or "").strip() for key, value in row.items() if key})
        except (SizingError, ValueError, InvalidOperation) as error:
            skipped.append(f"row {number}: {error}")
            continue
        kept = packages.setdefault(package["id"], {**package, "offers": []})
        kept["offers"].append(offer)
    records = [_record(catalog, package, source) for package in packages.values()]
    head = f"# Made from {what}: {source}\n\n"
    return Imported(
        head + tables("package", records), len(records), sum(len(r["offers"]) for r in records), tuple(skipped)
    )


def _record(catalog: Catalog, package: dict[str, Any], source: str) -> dict[str, Any]:
    """A package that is already known keeps what the list does not say."""
    if package["id"] in catalog.packages.entries:
        return {key: value for key, value in package.items() if value is not None}
    offers = package.pop("offers")
    return {**package, "source": source, "offers": offers}


def _listed(catalog: Catalog, row: Row, source: str, as_of: str) -> _Line:
    gpu = find_gpu(catalog, row["gpu"])[0]
    package: dict[str, Any] = {"id": row.get("id") or "", "provider": row["provider"], "gpu": gpu.id}
    package |= {name: row[name] for name in _TEXTS if row.get(name)}
    package |= {name: _count(row[name]) for name in _COUNTS if row.get(name)}
    package |= {field: parse_size(row[name]) for name, field in _SIZES.items() if row.get(name)}
    package.setdefault("gpus_per_host", 1)
    package["id"] = package["id"] or _id(package)
    offer: dict[str, Any] = {"kind": "on-demand", "price": _price(row["price"]), "as_of": as_of}
    offer |= {"source": row.get("source") or source}
    offer |= {name: row[name] for name in _OFFER_TEXTS if row.get(name)}
    offer |= {name: _count(row[name]) for name in _OFFER_COUNTS if row.get(name)}
    return _Line(package, offer)


def _hunted(catalog: Catalog, row: Row, provider: str, source: str, as_of: str) -> _Line:
    count = _count(row.get("gpu_count") or "0")
    if not count or not row.get("gpu_name"):
        raise ValueError("no GPU")
    gpu = _gpu_by_memory(catalog, row["gpu_name"].removeprefix("tpu-"), float(row.get("gpu_memory") or 0))
    package: dict[str, Any] = {
        "id": "", "provider": provider, "gpu": gpu.id, "gpus_per_host": count, "name": row["instance_name"],
        "region": row.get("location") or None, "vcpus": _count(row["cpu"]) if row.get("cpu") else None,
        "host_memory_bytes": int(float(row["memory"]) * GB) if row.get("memory") else None,
        "disk_bytes": int(float(row["disk_size"]) * GB) if row.get("disk_size") else None,
    }  # fmt: skip
    package["id"] = _id(package)
    spot = row.get("spot", "").lower() == "true"
    offer = {"kind": "spot" if spot else "on-demand", "price": _price(row["price"]), "as_of": as_of, "source": source}
    return _Line(package, offer)


def _gpu_by_memory(catalog: Catalog, name: str, memory: float) -> Gpu:
    """Boards of one name are told apart by their memory in GB: A100 is 40 or 80. [unitless]"""
    for spelling in (f"{name} {memory:g}GB", name, f"Quadro {name}"):
        try:
            gpu = find_gpu(catalog, spelling)[0]
        except SizingError:
            continue
        if not memory or abs(gpu.memory_nominal_bytes - memory * GB) <= MEMORY_TOLERANCE * memory * GB:
            return gpu
    raise ValueError(f"no GPU {name!r} of {memory:g} GB in the catalogue")


def _id(package: Mapping[str, Any]) -> str:
    name = package.get("name") or f"{package['gpus_per_host']}x-{package['gpu']}"
    parts = (package["provider"], name, package.get("region") or "global")
    return ":".join(str(part).strip().lower().replace(" ", "-") for part in parts)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _price(text: str) -> str:
    price = Decimal(text)
    if not price.is_finite() or price <= 0:
        raise ValueError(f"price {text} is not above 0")
    return f"{price:f}"
