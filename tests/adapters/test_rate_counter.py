"""A limit over a sliding minute, alone and together with other replicas."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.conftest import Server
from tests.waiting import SECONDS, until

from tonnage.adapters.rate_counter import WINDOW_SECONDS, RateCounter
from tonnage.adapters.redis_link import LinkSettings, RedisLink


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_020.0

    def __call__(self) -> float:
        return self.now


def alone(limit: int, clock: Clock) -> RateCounter:
    return RateCounter(RedisLink(LinkSettings(url="")), limit, clock)


def admitted(counter: RateCounter, times: int, caller: str = "a") -> int:
    return sum(counter.count(caller).allowed for _ in range(times))


async def test_the_limit_holds_within_a_minute() -> None:
    assert 10 == admitted(alone(10, Clock()), 25)


async def test_callers_have_limits_of_their_own() -> None:
    counter = alone(10, Clock())

    assert (10, 10) == (admitted(counter, 25, "a"), admitted(counter, 25, "b"))


async def test_what_remains_is_told() -> None:
    counter = alone(3, Clock())

    assert [2, 1, 0, 0] == [counter.count("a").remaining for _ in range(4)]


async def test_the_minute_slides() -> None:
    clock = Clock()
    counter = alone(60, clock)
    admitted(counter, 60)
    clock.now += WINDOW_SECONDS + WINDOW_SECONDS / 2 - clock.now % WINDOW_SECONDS

    assert 30 == admitted(counter, 60)


async def test_after_two_quiet_minutes_all_is_allowed_again() -> None:
    clock = Clock()
    counter = alone(10, clock)
    admitted(counter, 10)
    clock.now += 2 * WINDOW_SECONDS

    assert 10 == admitted(counter, 25)


async def test_waiting_as_long_as_told_is_enough() -> None:
    clock = Clock()
    counter = alone(10, clock)
    admitted(counter, 10)
    clock.now += counter.count("a").reset_seconds

    assert counter.count("a").allowed


async def test_a_clock_that_jumps_back_locks_nobody_out() -> None:
    clock = Clock()
    counter = alone(10, clock)
    admitted(counter, 10)
    clock.now -= 3600

    assert 10 == admitted(counter, 25)


@given(st.lists(st.floats(0, 20), max_size=200))
def test_no_window_of_a_minute_holds_twice_the_limit(pauses: list[float]) -> None:
    clock, times = Clock(), []
    counter = RateCounter(RedisLink.__new__(RedisLink), 10, clock)
    for pause in pauses:
        clock.now += pause
        if counter.count("a").allowed:
            times.append(clock.now)
    for start in times:
        assert sum(start <= time < start + WINDOW_SECONDS for time in times) <= 20


async def test_replicas_share_their_counts(server: Server) -> None:
    clock = Clock()
    links = [RedisLink(LinkSettings(url=server.url, timeout_seconds=SECONDS)) for _ in range(2)]
    for link in links:
        link.start()
    await until(lambda: all(link.usable for link in links))
    first, second = (RateCounter(link, 100, clock) for link in links)
    admitted(first, 60)
    admitted(second, 10)
    await first.exchange()
    await second.exchange()
    admitted(first, 1)
    await first.exchange()

    assert (29, 30) == (admitted(first, 200), admitted(second, 200))
    for link in links:
        await link.close()


async def test_a_lost_server_leaves_the_own_count(start_server: Callable[..., Server]) -> None:
    server = start_server()
    link = RedisLink(LinkSettings(url=server.url, timeout_seconds=SECONDS))
    link.start()
    await until(lambda: link.usable)
    clock = Clock()
    counter = RateCounter(link, 10, clock)
    counter.start()
    admitted(counter, 5)
    await until(lambda: server.client().get(f"tonnage:rate:{int(clock.now // WINDOW_SECONDS)}:a") == b"5")
    server.kill()

    assert 5 == admitted(counter, 25)
    with pytest.raises(LookupError):
        await counter.exchange()
    assert 0 == admitted(counter, 5)
    await counter.close()
    await link.close()


async def test_garbage_in_the_shared_counts_is_ignored(server: Server) -> None:
    clock = Clock()
    link = RedisLink(LinkSettings(url=server.url, timeout_seconds=SECONDS))
    link.start()
    await until(lambda: link.usable)
    server.client().set(f"tonnage:rate:{int(clock.now // WINDOW_SECONDS)}:a", b"garbage")
    counter = RateCounter(link, 10, clock)
    admitted(counter, 3)
    await counter.exchange()

    assert 7 == admitted(counter, 25)
    await link.close()


@given(st.lists(st.floats(-1e7, 1e7), max_size=20))
def test_no_jump_of_the_clock_locks_anybody_out(jumps: list[float]) -> None:
    clock = Clock()
    counter = alone(10, clock)
    for jump in jumps:
        admitted(counter, 12)
        clock.now += jump
        standing = counter.count("a")
        assert 0 <= standing.remaining < 10
        assert 0 <= standing.reset_seconds <= 2 * WINDOW_SECONDS

    clock.now += 2 * WINDOW_SECONDS

    assert 10 == admitted(counter, 12)
