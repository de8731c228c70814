"""Several processes share one Redis in cluster mode: what one looked up, another finds; limits count over both."""

import asyncio
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.adapters.conftest import Server, free_port
from tests.adapters.test_redis_cache import until
from tests.api.serving import Process, serving

LIMIT = 40


@pytest.fixture
def cluster(start_server: Callable[..., Server]) -> Server:
    server = start_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    return server


@pytest.fixture
def replicas(cluster: Server) -> Iterator[tuple[Process, Process]]:
    settings = {
        "redis_url": f"redis+cluster://127.0.0.1:{cluster.port}",
        "redis_timeout_seconds": 1,
        "rate_limit_per_minute": LIMIT,
        "access_log": "false",
    }
    with serving(**settings) as first, serving(**settings) as second:
        yield first, second


def redis_state(process: Process) -> str:
    return str(httpx.get(f"{process.url}/readyz").json()["redis"])


def hits(process: Process) -> float:
    lines = httpx.get(f"{process.url}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("tonnage_cache_requests_total")]
    return sum(float(line.rpartition(" ")[2]) for line in found if 'level="redis"' in line and 'outcome="hit"' in line)


async def test_replicas_share_a_cluster(cluster: Server, replicas: tuple[Process, Process]) -> None:
    first, second = replicas
    await until(lambda: redis_state(first) == "up" == redis_state(second), 20)
    pages = [f"/catalog/gpus?limit=1&q=h{number}" for number in range(3)]

    known = [httpx.get(first.url + page).text for page in pages]
    await until(lambda: cluster.client().dbsize() >= len(pages), 20)

    assert known == [httpx.get(second.url + page).text for page in pages]
    assert len(pages) == hits(second)


async def test_a_limit_counts_over_all_replicas(replicas: tuple[Process, Process]) -> None:
    first, second = replicas
    await until(lambda: redis_state(first) == "up" == redis_state(second), 20)

    while asked(first) == 200:
        pass

    passed = 0
    while asked(second) == 200:
        passed += 1
        await asyncio.sleep(0.1)

    assert passed < LIMIT / 2


def asked(process: Process) -> int:
    return httpx.get(f"{process.url}/estimate?parameters=1").status_code
