"""How the GPUs of a package talk to one another, read from what the provider says."""

from functools import lru_cache
from typing import Literal, NamedTuple

from tonnage.spec.facts import Gpu, Package

Link = Literal["unknown", "pcie", "nvlink"]
RACK_SCALE = 32
"""An NVLink domain at least this large spans hosts (GH200, GB200, GB300 racks). [GPUs]"""
_FAST = ("nvswitch", "nvlink", "infinity fabric", "xgmi", "ici", "neuronlink")
_FABRIC = ("efa", "ib", "rdma", "infiniband", "roce", "gb/s")


class Links(NamedTuple):
    """Inside a host, and between hosts."""

    inside: Link
    fabric: bool
    """A network between hosts is named."""
    words: str


@lru_cache(maxsize=4096)
def _read(interconnect: str | None, form: str | None, domain: int | None) -> Links:
    text = (interconnect or "").lower()
    fabric = "no ib" not in text and any(
        word in text.replace("+", " ").split() or f" {word}" in text for word in _FABRIC
    )
    if any(word in text for word in _FAST) and "no nvlink" not in text:
        return Links("nvlink", fabric, interconnect or "")
    if "pcie" in text:
        return Links("pcie", fabric, interconnect or "")
    if domain is not None and domain >= 4 and form is not None and form.upper().startswith(("SXM", "OAM")):
        return Links("nvlink", fabric, f"{form} board: all GPUs of a host are linked")
    return Links("unknown", fabric, interconnect or "not stated")


def links(package: Package, gpu: Gpu) -> Links:
    """Links of a package's GPUs."""
    return _read(package.interconnect, gpu.form, gpu.nvlink_domain_max)


def fast_domain(package: Package, gpu: Gpu, hosts: int) -> int:
    """GPUs that one tensor-parallel group may span: a host, or a rack whose NVLink domain holds several. [unitless]"""
    domain = gpu.nvlink_domain_max or 0
    if hosts > 1 and domain >= RACK_SCALE and links(package, gpu).inside == "nvlink":
        return min(domain, package.gpus_per_host * hosts)
    return package.gpus_per_host
