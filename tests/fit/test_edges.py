"""Borders that real packages seldom meet: equal amounts, several hosts, idle GPUs, words of interconnects."""

from types import SimpleNamespace
from typing import Any

import pytest
from fit_requests import catalog, offered, request, sku

from tonnage.fit import fit
from tonnage.fit.hosts import disk, host_memory
from tonnage.fit.judged import CONFIRM, EXCLUDED, MET
from tonnage.fit.links import links
from tonnage.fit.ranking import without_dominated
from tonnage.fit.technical import Technical
from tonnage.spec.card import Placement
from tonnage.spec.report import Amount


def package(**more: Any) -> Any:
    stated = {"source": "test", "host_memory_bytes": None, "disk_bytes": None, "interconnect": None, "gpus_per_host": 8}
    return SimpleNamespace(**stated | more)


def order(hosts: int = 1, **more: Any) -> Any:
    return SimpleNamespace(package=package(**more), hosts=hosts)


@pytest.mark.parametrize(("have", "status"), [(99, EXCLUDED), (100, CONFIRM), (199, CONFIRM), (200, MET)])
def test_host_memory_is_met_at_the_most_and_excluded_below_the_least(have: int, status: int) -> None:
    technical: Any = SimpleNamespace(host=Amount(100, 150, 200))

    judged = host_memory(technical, order(host_memory_bytes=have), SimpleNamespace(host_memory=0))  # type: ignore[arg-type]

    assert judged is not None
    assert status == judged.status


@pytest.mark.parametrize(("have", "status"), [(49, EXCLUDED), (50, CONFIRM), (99, CONFIRM), (100, MET)])
def test_host_memory_is_shared_out_among_the_hosts(have: int, status: int) -> None:
    technical: Any = SimpleNamespace(host=Amount(100, 150, 200))

    judged = host_memory(technical, order(2, host_memory_bytes=have), SimpleNamespace(host_memory=0))  # type: ignore[arg-type]

    assert judged is not None
    assert status == judged.status


def test_the_callers_own_least_counts_beside_the_runs() -> None:
    technical: Any = SimpleNamespace(host=Amount(10, 15, 20), disk=30)
    need: Any = SimpleNamespace(host_memory=25, disk=40)

    memory, room = (
        host_memory(technical, order(host_memory_bytes=24), need),
        disk(technical, order(disk_bytes=39), need),
    )

    assert memory is not None
    assert room is not None
    assert (EXCLUDED, EXCLUDED) == (memory.status, room.status)


@pytest.mark.parametrize(
    ("words", "inside", "fabric"),
    [
        ("NVSwitch + 3200 Gb/s IB", "nvlink", True),
        ("NVLink, no IB", "nvlink", False),
        ("PCIe 4.0", "pcie", False),
        ("PCIe 5.0 + InfiniBand", "pcie", True),
        ("PCIe, no NVLink", "pcie", False),
        (None, "unknown", False),
    ],
)
def test_an_interconnect_says_what_links_gpus_and_hosts(words: str | None, inside: str, fabric: bool) -> None:
    gpu: Any = SimpleNamespace(form="PCIe", nvlink_domain_max=None)

    found = links(package(interconnect=words), gpu)

    assert (inside, fabric) == (found.inside, found.fabric)


def judged(package_id: str, status: int, kind: str = "bf16") -> Any:
    variant = SimpleNamespace(name=(kind, None))
    return SimpleNamespace(
        order=SimpleNamespace(package=SimpleNamespace(id=package_id)),
        technical=SimpleNamespace(variant=variant),
        status=status,
    )


def test_more_hosts_of_a_package_are_kept_only_where_they_are_better() -> None:
    found = [judged("a", 1), judged("a", 1), judged("a", 0), judged("a", 2), judged("b", 2), judged("a", 1, "fp8")]

    left, dropped = without_dominated(found)

    assert [found[0], found[2], found[4], found[5]] == sorted(left, key=found.index)
    assert 2 == dropped


def test_idle_gpus_count_against_a_layout() -> None:
    variant: Any = SimpleNamespace(workload=SimpleNamespace(model=SimpleNamespace(known=True)))
    gpu: Any = SimpleNamespace(memory_usable_bytes=100)

    layout = Technical(variant, gpu, 5, Placement(tensor_parallel_size=2)).ranked()

    assert 3 == layout.preference[1]


def test_todays_layout_takes_whole_hosts() -> None:
    asked = request(
        model="Qwen/Qwen3-8B",
        reserve=0,
        serving={"engine": "vllm", "max_model_len": 4096},
        offer=offered(sku("pair", gpu="l40s", gpus_per_host=2, max_hosts=4)),
        current={"sku": "pair", "placement": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}},
    )

    today = fit(catalog(), asked).current

    assert today is not None
    assert (2, 4) == (today.candidate.hosts, today.candidate.gpu_count)
