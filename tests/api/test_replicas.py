"""Several processes share one Redis in cluster mode: what one looked up, another finds; limits count over both."""

import time
from collections.abc import Callable, Iterator

import pytest
from tests.adapters.conftest import Server
from tests.api.serving import Process, serving
from tests.waiting import free_port, wait_for

from tonnage.adapters.rate_counter import SYNC_SECONDS

LIMIT = 20
"""Few enough to be reached within a minute on a machine that needs seconds for a request."""


@pytest.fixture
def cluster(start_server: Callable[..., Server]) -> Server:
    server = start_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    return server


@pytest.fixture
def replicas(cluster: Server) -> Iterator[tuple[Process, Process]]:
    settings = {
        "redis_url": f"redis+cluster://127.0.0.1:{cluster.port}",
        "redis_timeout_seconds": 10,
        "rate_limit_per_minute": LIMIT,
        "access_log": "false",
    }
    with serving(**settings) as first, serving(**settings) as second:
        yield first, second


def redis_state(process: Process) -> str:
    return str(process.get("/readyz").json()["redis"])


def hits(process: Process) -> float:
    lines = process.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("tonnage_cache_requests_total")]
    return sum(float(line.rpartition(" ")[2]) for line in found if 'level="redis"' in line and 'outcome="hit"' in line)


def test_replicas_share_a_cluster(cluster: Server, replicas: tuple[Process, Process]) -> None:
    first, second = replicas
    wait_for(lambda: redis_state(first) == "up" == redis_state(second))
    pages = [f"/catalog/gpus?limit=1&q=h{number}" for number in range(3)]

    known = [first.get(page).text for page in pages]
    wait_for(lambda: cluster.client().dbsize() >= len(pages))

    assert known == [second.get(page).text for page in pages]
    assert len(pages) == hits(second)


def test_a_limit_counts_over_all_replicas(replicas: tuple[Process, Process]) -> None:
    first, second = replicas
    wait_for(lambda: redis_state(first) == "up" == redis_state(second))

    while asked(first) == 200:
        pass

    passed = 0
    while asked(second) == 200:
        passed += 1
        time.sleep(2 * SYNC_SECONDS)

    assert passed < LIMIT


def asked(process: Process) -> int:
    return process.get("/estimate?parameters=1").status_code
