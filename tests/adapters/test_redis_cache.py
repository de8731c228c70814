"""Two levels of look-ups, against a real server that is paused, killed, filled with garbage and out of memory."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec import Struct
from tests.adapters.conftest import Server
from tests.waiting import SECONDS, until

from tonnage.adapters.redis_cache import TwoLevelCache, opened, sealed
from tonnage.adapters.redis_link import LinkSettings, RedisLink, State

IMPATIENT = 0.2
"""Time-out where a server is stopped; elsewhere it is longer than any machine is slow. [s]"""


class Value(Struct, frozen=True):
    text: str


class Bench:
    """A cache with its link and counts."""

    def __init__(self, url: str, timeout: float = SECONDS, **limits: int) -> None:
        self.states: list[State] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.made = 0
        settings = LinkSettings(url=url, timeout_seconds=timeout, pause_seconds=0.1)
        self.link = RedisLink(settings, self.states.append)
        self.cache = TwoLevelCache(self.link, lambda level, outcome: self.counts.update([(level, outcome)]), **limits)

    async def get(self, key: str) -> str:
        def make() -> Value:
            self.made += 1
            return Value(f"value of {key}")

        return (await self.cache.get(key, make, Value)).text


@asynccontextmanager
async def bench(url: str, timeout: float = SECONDS, **limits: int) -> AsyncIterator[Bench]:
    made = Bench(url, timeout, **limits)
    made.link.start()
    try:
        yield made
    finally:
        await made.link.close()


async def written(server: Server, keys: int) -> None:
    await until(lambda: server.client().dbsize() >= keys)


async def test_without_an_address_only_the_first_level_works() -> None:
    async with bench("") as here:
        assert "value of a" == await here.get("a")
        assert "value of a" == await here.get("a")
        assert (1, "none") == (here.made, here.link.state)
        assert {("process", "miss"): 1, ("process", "hit"): 1} == here.counts


async def test_another_process_finds_what_the_first_one_made(server: Server) -> None:
    async with bench(server.url) as first, bench(server.url) as second:
        await until(lambda: first.link.usable and second.link.usable)
        await first.get("a")
        await written(server, 1)

        assert "value of a" == await second.get("a")
        assert (0, 1) == (second.made, second.counts["redis", "hit"])


async def test_entries_expire(server: Server) -> None:
    async with bench(server.url) as here:
        await until(lambda: here.link.usable)
        await here.get("a")
        await written(server, 1)
        client = server.client()

        assert 0 < client.ttl(client.keys()[0]) <= 3600


@pytest.mark.parametrize(
    "garbage", [b"", b"nonsense", b"T1", b"T1" + b"\0" * 40, "\N{SNOWMAN}".encode(), b"\xff" * 5000]
)
async def test_garbage_is_a_miss(server: Server, garbage: bytes) -> None:
    async with bench(server.url) as first, bench(server.url) as second:
        await until(lambda: first.link.usable and second.link.usable)
        await first.get("a")
        await written(server, 1)
        client = server.client()
        client.set(client.keys()[0], garbage)

        assert "value of a" == await second.get("a")
        assert (1, 1) == (second.made, second.counts["redis", "error"])


async def test_a_value_under_another_key_is_a_miss(server: Server) -> None:
    async with bench(server.url) as first, bench(server.url) as second:
        await until(lambda: first.link.usable and second.link.usable)
        await first.get("a")
        await written(server, 1)
        client = server.client()
        stored, name = client.get(client.keys()[0]), client.keys()[0]
        await first.get("b")
        await written(server, 2)
        other = next(key for key in client.scan_iter() if key != name)
        client.set(other, stored)

        assert "value of b" == await second.get("b")
        assert 1 == second.counts["redis", "error"]


async def test_a_key_of_the_wrong_type_is_a_miss(server: Server) -> None:
    async with bench(server.url) as first, bench(server.url) as second:
        await until(lambda: first.link.usable and second.link.usable)
        await first.get("a")
        await written(server, 1)
        client = server.client()
        name = client.keys()[0]
        client.delete(name)
        client.lpush(name, "x")

        assert "value of a" == await second.get("a")
        assert 1 == second.counts["redis", "error"]


async def test_a_server_out_of_memory_loses_writes_only(start_server: Callable[..., Server]) -> None:
    server = start_server("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    async with bench(server.url) as here:
        await until(lambda: here.link.usable)

        assert "value of a" == await here.get("a")
        await until(lambda: here.counts["redis", "error"] == 1)


async def test_a_paused_server_is_left_alone_after_three_time_outs(server: Server) -> None:
    async with bench(server.url, IMPATIENT) as here:
        await until(lambda: here.link.prompt)
        server.pause()
        values = [await here.get(f"k{n}") for n in range(10)]

        assert [f"value of k{n}" for n in range(10)] == values
        assert "down" == here.link.state
        assert 3 <= here.counts["redis", "error"] <= 6, "look-ups, and writes that nobody waits for"

        server.resume()
        await until(lambda: here.link.usable)
        assert "value of new" == await here.get("new")


async def test_replies_that_come_too_late_are_given_to_nobody_else(server: Server) -> None:
    async with bench(server.url) as first, bench(server.url, IMPATIENT) as second:
        await until(lambda: first.link.usable and second.link.usable)
        for n in range(20):
            await first.get(f"k{n}")
        await written(server, 20)
        server.pause()
        await asyncio.gather(*(second.get(f"k{n}") for n in range(2)))
        server.resume()
        found = await asyncio.gather(*(second.get(f"k{n}") for n in range(2, 20)))

        assert [f"value of k{n}" for n in range(2, 20)] == found


async def test_a_killed_server_is_found_again_when_it_is_back(server: Server) -> None:
    async with bench(server.url) as here:
        await until(lambda: here.link.usable)
        server.kill()
        for n in range(5):
            assert f"value of k{n}" == await here.get(f"k{n}")
        assert "down" == here.link.state

        server.start()
        await until(lambda: here.link.usable)
        await here.get("after")
        await written(server, 1)
        assert ["up", "down", "up"] == [state for state, _ in itertools.groupby(here.states)]


async def test_a_server_that_is_absent_at_the_start_is_used_once_it_is_there(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    server.kill()
    async with bench(server.url) as here:
        await until(lambda: here.link.state == "down")
        value = await here.get("a")
        assert ("value of a", 0) == (value, here.counts["redis", "error"])

        server.start()
        await until(lambda: here.link.usable)


@pytest.mark.parametrize(
    "address",
    ["http://nonsense", "redis+sentinel://127.0.0.1:1", "redis://no.such.host.invalid:1/0", "redis+cluster://x"],
)
async def test_an_address_that_leads_nowhere_is_down_and_harmless(address: str) -> None:
    async with bench(address) as here:
        await until(lambda: here.link.state == "down")

        assert "value of a" == await here.get("a")


async def test_no_look_up_fails_while_the_server_is_killed_paused_and_emptied_under_load(server: Server) -> None:
    async with bench(server.url, IMPATIENT, entries=8) as here:
        await until(lambda: here.link.usable)
        stop = asyncio.Event()
        wrong: list[str] = []
        asked = itertools.count()

        async def ask(worker: int) -> None:
            while not stop.is_set():
                key = f"{worker}-{next(asked) % 50}"
                if await here.get(key) != f"value of {key}":
                    wrong.append(key)
                await asyncio.sleep(0.001)

        workers = [asyncio.create_task(ask(n)) for n in range(8)]
        for trouble in (server.pause, server.resume, server.kill, server.start, server.client().flushall):
            enough = next(asked) + 200
            await until(lambda enough=enough: next(asked) > enough)
            await asyncio.to_thread(trouble)
        await until(lambda: here.link.usable)
        stop.set()
        await asyncio.gather(*workers)

        assert [] == wrong


async def test_the_first_level_is_bounded_by_entries_and_bytes() -> None:
    async with bench("", entries=3) as few, bench("", size_bytes=400) as small:
        for n in range(10):
            await few.get(f"k{n}")
            await small.get(f"k{n}")
        assert 3 == len(few.cache)
        assert 0 < len(small.cache) <= 400 // len("value of k0")

        await few.get("k9")
        assert 10 == few.made


def test_a_sealed_value_opens_with_its_own_key_only() -> None:
    assert b"v" == opened("k", sealed("k", b"v"))
    assert None is opened("other", sealed("k", b"v"))
    assert None is opened("k", sealed("k", b"v")[:-1])
    assert None is opened("k", None)
    assert None is opened("k", "text")
