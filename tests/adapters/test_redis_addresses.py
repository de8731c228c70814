"""Sentinel and Cluster are reached by address alone, and fail over."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import redis
from tests.adapters.conftest import BINARIES, Server
from tests.adapters.test_redis_cache import IMPATIENT, bench
from tests.waiting import free_port, until


async def test_a_cluster_address_reaches_a_cluster(start_server: Callable[..., Server]) -> None:
    server = start_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    await until(lambda: b"cluster_state:ok" in server.client().execute_command("CLUSTER", "INFO"))
    address = f"redis+cluster://127.0.0.1:{server.port}"
    async with bench(address) as first, bench(address) as second:
        await until(lambda: first.link.usable and second.link.usable)
        await first.get("a")
        await until(lambda: server.client().dbsize() == 1)

        assert "value of a" == await second.get("a")
        assert 1 == second.counts["redis", "hit"]


async def test_a_sentinel_address_follows_the_master(start_server: Callable[..., Server], tmp_path: Path) -> None:
    master = start_server()
    replica = start_server("--replicaof", f"127.0.0.1 {master.port}")
    sentinel = sentinel_of(master, tmp_path)
    try:
        await until(lambda: knows_a_replica(sentinel))
        async with bench(f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster/0", IMPATIENT) as here:
            await until(lambda: here.link.usable)
            await here.get("a")
            await until(lambda: master.client().dbsize() == 1)

            master.kill()
            for n in range(5):
                assert f"value of k{n}" == await here.get(f"k{n}")
            await until(lambda: replica.client().role()[0] == b"master")
            before, asked = replica.client().dbsize(), itertools.count()
            while replica.client().dbsize() == before:
                await here.get(f"after {next(asked)}")
                await asyncio.sleep(0.05)
    finally:
        sentinel.kill()


def sentinel_of(master: Server, folder: Path) -> Server:
    config = folder / "sentinel.conf"
    config.write_text(
        f"sentinel monitor mymaster 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n"
    )
    server = Server(BINARIES[0], folder)
    server._command = [BINARIES[0], str(config), "--port", str(server.port), "--sentinel"]
    return server.start()


def knows_a_replica(sentinel: Server) -> bool:
    with contextlib.suppress(redis.RedisError):
        return len(sentinel.client().execute_command("SENTINEL", "REPLICAS", "mymaster")) == 1
    return False


async def test_closing_a_link_that_never_connected_ends(start_server: Callable[..., Server]) -> None:
    server = start_server()
    server.pause()
    async with bench(server.url):
        await asyncio.sleep(0.05)
    server.resume()
