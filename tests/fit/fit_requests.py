"""Requests and packages for the tests of /fit."""

from functools import lru_cache

import msgspec

from tonnage.catalog import load_catalog
from tonnage.spec.fit import FitRequest


@lru_cache(maxsize=1)
def catalog():
    return load_catalog()


def request(**fields):
    base = {"model": {"parameters": 7_000_000_000}, "weights": {"format": "bf16"}, "reserve": "6 GiB"}
    return msgspec.convert(base | fields, FitRequest)


def sku(name="one", gpu="rtx-4090", price="1", **more):
    """A package with everything stated, so that only what a test changes is open."""
    offer = {"price": price, "as_of": "2026-09-01"} | more.pop("offer", {})
    return {
        "id": name,
        "gpu": gpu,
        "host_memory_bytes": "512 GiB",
        "disk_bytes": "4 TB",
        "interconnect": "NVSwitch + 3200 Gb/s IB",
        "delivery_days": 2,
        "region": "north",
        "offers": [offer],
    } | more


def offered(*skus, **more):
    return {"inline": list(skus), "catalog": False} | more


def statuses(candidate):
    return {r.name: r.status for r in candidate.requirements}


def reasons(candidate):
    return {r.name: r.reason for r in candidate.requirements}
