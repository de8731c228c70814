"""When Redis is left alone: a client whose replies take as long as a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain, repeat

import pytest
from tests.waiting import in_still_time, until

from tonnage.adapters.redis_link import LinkSettings, RedisLink

SETTINGS = LinkSettings(url="redis://nowhere", timeout_seconds=0.4, failures=3, pause_seconds=0.02)
QUICK, SLOW, NEVER = 0.0, 0.15, 60.0
"""Below and above a quarter of the time-out, and beyond it. [s]"""


class Client:
    """Replies of which each takes the next of the given times."""

    def __init__(self) -> None:
        self.pings = self.replies = repeat(QUICK)

    async def ping(self) -> bool:
        await asyncio.sleep(next(self.pings))
        return True

    async def get(self) -> str:
        await asyncio.sleep(next(self.replies))
        return "reply"

    async def aclose(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def linked(client: Client) -> AsyncIterator[RedisLink]:
    link = RedisLink(SETTINGS, client=client, clock=asyncio.get_running_loop().time)
    link.start()
    try:
        yield link
    finally:
        await link.close()


async def asked(link: RedisLink, times: int, **more: float) -> list[str | None]:
    return [await link.ask(lambda client: client.get(), **more) for _ in range(times)]


def test_slow_is_a_quarter_of_the_time_out() -> None:
    assert 0.1 == SETTINGS.slow_seconds


@in_still_time
async def test_slow_replies_are_used_and_after_three_in_a_row_nobody_waits_for_a_fourth() -> None:
    client = Client()
    async with linked(client) as link:
        await until(lambda: link.usable)
        client.replies, client.pings = repeat(SLOW), repeat(SLOW)

        assert ["reply", "reply", "reply", None] == await asked(link, 4)
        assert ("up", False) == (link.state, link.prompt)
        assert ["reply"] == await asked(link, 1, patience_seconds=1.0)


@in_still_time
async def test_two_slow_replies_between_quick_ones_change_nothing() -> None:
    client = Client()
    async with linked(client) as link:
        await until(lambda: link.usable)
        client.replies = chain([SLOW, SLOW, QUICK, SLOW, SLOW], repeat(QUICK))

        assert ["reply"] * 6 == await asked(link, 6)
        assert link.prompt


@in_still_time
async def test_failures_leave_it_alone_altogether() -> None:
    client = Client()
    async with linked(client) as link:
        await until(lambda: link.usable)
        client.replies, client.pings = repeat(NEVER), repeat(NEVER)
        for _ in range(3):
            with pytest.raises(LookupError):
                await asked(link, 1)

        assert [None, None] == [*await asked(link, 1), *await asked(link, 1, patience_seconds=1.0)]
        assert ("down", "TimeoutError") == (link.state, link.last_error)


@in_still_time
async def test_nobody_waits_for_a_server_that_only_answers_slowly_until_it_is_quick() -> None:
    client = Client()
    client.pings = repeat(SLOW)
    async with linked(client) as link:
        await until(lambda: link.state == "up")
        await asyncio.sleep(5 * SLOW)
        assert not link.prompt

        client.pings = repeat(QUICK)
        await until(lambda: link.prompt)


@in_still_time
async def test_a_server_whose_every_reply_comes_after_the_time_out_is_down() -> None:
    client = Client()
    client.pings = chain([QUICK], repeat(0.45))
    async with linked(client) as link:
        await until(lambda: link.state == "down")


@in_still_time
async def test_one_slow_probe_of_this_busy_process_does_not_keep_a_server_away() -> None:
    client = Client()
    client.pings = chain([SLOW, SLOW, SLOW, QUICK], repeat(NEVER))
    async with linked(client) as link:
        await until(lambda: link.prompt)


@in_still_time
async def test_what_nobody_waits_for_is_never_slow() -> None:
    client = Client()
    async with linked(client) as link:
        await until(lambda: link.usable)
        client.replies = repeat(SLOW)

        assert ["reply"] * 4 == await asked(link, 4, patience_seconds=1.0)
        assert link.prompt
