"""Sentinel and Cluster lose a master under load: the others elect another, callers see nothing."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import redis
from tests.adapters.conftest import BINARIES, Server
from tests.chaos.redis_faults import UNDER_SECONDS, fault
from tests.chaos.replica import Replica
from tests.chaos.report import Row
from tests.waiting import free_port

_DOWN_AFTER_MS = 1000
_RECOVERY_SECONDS = 40.0
S = TypeVar("S", bound=Server)
_SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


async def all_faults(folder: Path) -> AsyncIterator[Row]:
    with _sentinels(folder) as (address, kill, elected):
        yield await _failed_over("Sentinel: master killed", folder, address, kill, elected)
    with _cluster(folder) as (address, kill, elected):
        yield await _failed_over("Cluster: one of three masters killed", folder, address, kill, elected)


async def _failed_over(
    name: str, folder: Path, address: str, kill: Callable[[], object], elected: Callable[[], bool]
) -> Row:
    services = (Replica(folder, redis_url=address), Replica(folder, redis_url=address))
    try:
        for service in services:
            await asyncio.to_thread(service.wait_until_ready)
        row = await fault(
            name,
            services,
            kill,
            lambda: _until(elected),
            under_seconds=UNDER_SECONDS,
            recovery_seconds=_RECOVERY_SECONDS,
        )
        row.expect(await asyncio.to_thread(elected), "another master in its place")
        return row
    finally:
        for service in services:
            service.kill()


def _until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return
        time.sleep(0.1)


Group = tuple[str, Callable[[], object], Callable[[], bool]]


@contextlib.contextmanager
def _sentinels(folder: Path) -> Iterator[Group]:
    """One master, its replica and three sentinels, of which two agree."""
    with contextlib.ExitStack() as stack:
        master = _started(stack, Server(BINARIES[0], folder))
        replica = _started(stack, Server(BINARIES[0], folder, "--replicaof", f"127.0.0.1 {master.port}"))
        watchers = [_started(stack, _sentinel(folder, number, master.port)) for number in range(3)]

        def ready() -> bool:
            told = [w.client().execute_command("SENTINEL", "MASTER", "mymaster") for w in watchers]
            return all(
                int(of[b"num-slaves"]) == 1 and int(of[b"num-other-sentinels"]) == 2 for of in map(_fields, told)
            )

        _until(ready)
        nodes = ",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers)
        yield f"redis+sentinel://{nodes}/mymaster/0", master.kill, lambda: replica.client().role()[0] == b"master"


def _fields(reply: object) -> dict[bytes, bytes]:
    if isinstance(reply, dict):
        return {(k if isinstance(k, bytes) else str(k).encode()): v for k, v in reply.items()}
    assert isinstance(reply, list)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _sentinel(folder: Path, number: int, master: int) -> Server:
    config = folder / f"sentinel-{number}.conf"
    config.write_text(
        f"sentinel monitor mymaster 127.0.0.1 {master} 2\n"
        f"sentinel down-after-milliseconds mymaster {_DOWN_AFTER_MS}\nsentinel failover-timeout mymaster 3000\n"
    )
    server = Server(BINARIES[0], folder)
    server.run([BINARIES[0], str(config), "--port", str(server.port), "--sentinel"])
    return server


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[Group]:
    """Three masters that share the slots, each with a replica."""
    with contextlib.ExitStack() as stack:
        nodes = [_started(stack, _member(folder, number)) for number in range(6)]
        masters, replicas = nodes[:3], nodes[3:]
        for node, (first, last) in zip(masters, _SLOTS, strict=True):
            node.client().execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in nodes[1:]:
            node.client().execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].bus)
        names = [node.client().execute_command("CLUSTER", "MYID").decode() for node in masters]
        for node, name in zip(replicas, names, strict=True):
            _until(lambda node=node, name=name: node.client().execute_command("CLUSTER", "REPLICATE", name) == b"OK")
        _until(lambda: all(_sees_all(node) for node in nodes))
        address = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        yield f"redis+cluster://{address}", masters[0].kill, lambda: replicas[0].client().role()[0] == b"master"


class _Member(Server):
    bus = 0


def _member(folder: Path, number: int) -> _Member:
    place = folder / f"node-{number}"
    place.mkdir()
    bus = free_port()
    options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", str(_DOWN_AFTER_MS))
    node = _Member(BINARIES[0], place, *options)
    node.bus = bus
    return node


def _sees_all(node: Server) -> bool:
    told = node.client().execute_command("CLUSTER", "INFO")
    text = told.decode() if isinstance(told, bytes) else str(told)
    role = node.client().role()
    return (
        "cluster_state:ok" in text
        and "cluster_known_nodes:6" in text
        and (role[0] == b"master" or role[3] == b"connected")
    )


def _started(stack: contextlib.ExitStack, server: S) -> S:
    stack.callback(server.kill)
    server.start()
    return server
