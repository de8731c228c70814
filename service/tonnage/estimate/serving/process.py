"""What every engine's process has beside its own accounting: a device context, a host, a version that may be unknown."""

from msgspec.structs import replace

from tonnage.estimate.identity_cache import remembered
from tonnage.laws import device_context as law
from tonnage.spec.facts import Gpu
from tonnage.spec.report import Amount, Finding, Host, MemoryItem
from tonnage.spec.workload import Workload
from tonnage.units import GiB, MiB

_TYPICAL_MULTIPROCESSORS = 108


@remembered(512)
def counted_context(gpu: Gpu | None) -> MemoryItem:
    """Context of a process whose engine measures free memory and pools a part of that: its band moves the pool, not the sum."""
    return replace(device_context(gpu), inside_budget=True)


def device_context(gpu: Gpu | None, *, torch: bool = True) -> MemoryItem:
    """
    Context of one process on one GPU.

    Args:
        gpu: The card; None: a data-centre card of the A100's size.
        torch: Whether PyTorch's libraries load into it.

    Returns:
        Item of the device counter.
    """
    if gpu is None:
        return _cuda(_TYPICAL_MULTIPROCESSORS, torch)
    if gpu.vendor == "nvidia":
        return _cuda(gpu.multiprocessors or _TYPICAL_MULTIPROCESSORS, torch)
    return _other(gpu.vendor)


@remembered(512)
def _cuda(multiprocessors: int, torch: bool) -> MemoryItem:
    bare = law.cuda(multiprocessors=multiprocessors)
    libraries = law.torch_libraries() if torch else 0
    most = law.torch_libraries_most() if torch else 100 * MiB
    return MemoryItem(
        component="device_context",
        bytes=Amount(bare - bare // 20, bare + libraries, bare + most),
        basis="measured",
        law="laws.device_context.cuda",
        source="ggml-org/llama.cpp PR 23604 and four more cards: 3.05 MiB per multiprocessor",
        detail=f"{multiprocessors} multiprocessors" + (", libraries of a PyTorch process" if torch else ""),
        counter="device",
    )


@remembered(64)
def _other(vendor: str) -> MemoryItem:
    if vendor == "apple":
        amount = Amount(0, law.metal(), 512 * MiB)
        return MemoryItem(
            component="device_context",
            bytes=amount,
            basis="assumed",
            law="laws.device_context.metal",
            source="Metal keeps its context in system memory; not measured",
            counter="device",
        )
    expected = law.rocm()
    return MemoryItem(
        component="device_context",
        bytes=Amount(expected - 100 * MiB, expected, expected + GiB),
        basis="measured" if vendor == "amd" else "assumed",
        law="laws.device_context.rocm",
        source="fresh processes on MI300X and gfx90a",
        detail="" if vendor == "amd" else f"no measurement of {vendor} cards: AMD's figure",
        counter="device",
    )


def version_findings(workload: Workload) -> tuple[Finding, ...]:
    """A version outside what was checked is answered with the nearest release, and needs confirmation."""
    if workload.profile_certain:
        return ()
    serving, release = workload.serving, workload.profile
    stated = serving.engine_version if serving is not None else None
    return (
        Finding(
            status="needs_confirmation",
            reason=f"version {stated} is outside what was checked: answered with the release of {release.since}",
            field="/serving/engine_version",
        ),
    )


def host_memory(*, expected: int, spread: int, disk_bytes: int, items: tuple[MemoryItem, ...] = ()) -> Host:
    """
    Host side of an answer.

    Args:
        expected: Memory the process keeps on the host. [bytes]
        spread: How much more it may be. [bytes]
        disk_bytes: Checkpoint on disk. [bytes]
        items: What it consists of.

    Returns:
        Host with a band upwards.
    """
    return Host(
        memory=Amount(expected - expected // 4, expected, expected + spread), disk_bytes=disk_bytes, items=items
    )
