"""A GPU by id, alias, loose name or MIG profile ("h100-sxm:1g.10gb")."""

import re

from msgspec.structs import replace

from tonnage.catalog.contents import Catalog
from tonnage.catalog.lookup import gpu_fold
from tonnage.errors import UnknownName
from tonnage.spec.facts import Gpu, MigProfile, Package
from tonnage.spec.report import Assumption
from tonnage.units import GB

Found = tuple[Gpu, Assumption | None]

_SLICE = re.compile(r"(.+)[-/ ](\d{1,2}g\.\d{1,4}gb(?:\+\w{1,8})?)", re.ASCII | re.IGNORECASE)
"""A profile written behind its board without a colon."""


def find_gpu(catalog: Catalog, name: str, pointer: str = "") -> Found:
    """
    Record of a GPU, or of a slice of one.

    Args:
        catalog: The facts.
        name: Id, alias, loose name of several boards, instance type of a provider, or
            `<gpu>:<MIG profile>`; the colon may be a hyphen, slash or space.
        pointer: JSON pointer of the field it stands in.

    Returns:
        The record; an assumption where the name fits several boards or is that of an instance.

    Raises:
        UnknownName: Neither a GPU nor one of its profiles.
    """
    gpu = catalog.gpus.find(name)
    if gpu is not None:
        return gpu, None
    board, colon, profile = name.partition(":")
    slice_of = None if colon else _SLICE.fullmatch(name)
    if slice_of is not None:
        board, profile = slice_of.groups()
    if colon or slice_of is not None:
        whole, assumption = find_gpu(catalog, board.strip(), pointer)
        return mig_slice(whole, profile.strip(), pointer), assumption
    taken = catalog.gpu_defaults.get(gpu_fold(name))
    package = catalog.instances.get(gpu_fold(name)) if taken is None else None
    if package is not None:
        return _of_instance(catalog.gpus.get(package.gpu), package, name)
    if taken is None:
        raise UnknownName("gpu", name, [*catalog.gpus.near(name), *catalog.gpu_defaults], pointer=pointer)
    return taken, Assumption("placement.gpu", taken.id, f"{name!r} names several boards; {taken.name} is taken")


def _of_instance(gpu: Gpu, package: Package, name: str) -> Found:
    count = package.gpus_per_host
    several = f"{count} of them: state sizes in placement for more than one" if count > 1 else "one of them"
    return gpu, Assumption("placement.gpu", gpu.id, f"{name!r} is an instance of {package.provider} with {several}")


def mig_slice(gpu: Gpu, profile: str, pointer: str = "") -> Gpu:
    """
    One MIG slice as a GPU of its own.

    Args:
        gpu: The whole GPU.
        profile: NVIDIA's name of the slice, such as "1g.10gb".
        pointer: JSON pointer for errors.

    Returns:
        Memory of the slice, multiprocessors and bandwidth in proportion to its slices.

    Raises:
        UnknownName: The GPU has no such profile.
    """
    wanted = profile.lower()
    found = next((m for m in gpu.mig_profiles if m.profile == wanted), None)
    if found is None:
        raise UnknownName(f"MIG profile of {gpu.id}", profile, [m.profile for m in gpu.mig_profiles], pointer=pointer)
    slices = max(m.compute_slices for m in gpu.mig_profiles)
    return replace(
        gpu,
        id=f"{gpu.id}:{found.profile}",
        name=f"{gpu.name} MIG {found.profile}",
        memory_nominal_bytes=_named_size(found),
        memory_device_bytes=None,
        memory_usable_bytes=found.memory_usable_bytes,
        memory_usable_expected_bytes=None,
        usable_confidence=found.usable_confidence,
        multiprocessors=gpu.multiprocessors and gpu.multiprocessors * found.compute_slices // slices,
        bandwidth_bytes_per_second=gpu.bandwidth_bytes_per_second
        and gpu.bandwidth_bytes_per_second * found.memory_usable_bytes // gpu.memory_usable_bytes,
        tflops={dtype: value * found.compute_slices / slices for dtype, value in gpu.tflops.items()},
        nvlink_bytes_per_second=None,
        nvlink_domain_max=None,
        tdp_watts=None,
        mig_profiles=(),
        mig_parent=gpu.id,
        aliases=(),
        default_for=(),
    )


def _named_size(profile: MigProfile) -> int:
    match = re.search(r"\.(\d+)gb", profile.profile)
    return int(match.group(1)) * GB if match else profile.memory_usable_bytes
