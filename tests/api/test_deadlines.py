"""Deadlines of requests, by a clock that only moves while everybody sleeps."""

import asyncio

import pytest
from tests.waiting import in_still_time

from tonnage.api.deadlines import Deadlines


async def late_by(deadlines: Deadlines, seconds: float) -> float:
    """How long a request runs that would take this long."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        with deadlines.begin():
            await asyncio.sleep(seconds)
    except TimeoutError:
        pass
    return loop.time() - began


@in_still_time
async def test_a_request_in_time_is_left_alone() -> None:
    assert 0.9 == await late_by(Deadlines(1), 0.9)


@in_still_time
async def test_a_request_that_takes_too_long_is_ended_a_quarter_of_a_second_late_at_most() -> None:
    assert 1 < await late_by(Deadlines(1), 60) <= 1.25


@in_still_time
async def test_a_deadline_can_be_given_more_time() -> None:
    deadlines = Deadlines(1)
    with deadlines.begin() as deadline:
        for _ in range(10):
            await asyncio.sleep(0.9)
            deadline.reschedule(asyncio.get_running_loop().time() + 1)


@in_still_time
async def test_what_is_cancelled_by_others_is_no_time_out() -> None:
    deadlines = Deadlines(1)
    task = asyncio.create_task(late_by(deadlines, 60))
    await asyncio.sleep(0.5)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert {} == deadlines.running


@in_still_time
async def test_of_many_that_are_late_together_others_have_a_turn_after_every_two() -> None:
    deadlines = Deadlines(1)
    tasks = [asyncio.create_task(late_by(deadlines, 60)) for _ in range(20)]
    seen: list[int] = []
    while len(deadlines.running) < 20:
        await asyncio.sleep(0)
    await asyncio.sleep(1)
    while deadlines.running:
        await asyncio.sleep(0 if any(deadline.passed for deadline in deadlines.running) else 0.01)
        seen.append(len(deadlines.running))

    assert {20, 18, 16, 14, 12, 10, 8, 6, 4, 2} <= set(seen)
    assert all(seconds <= 1.25 for seconds in await asyncio.gather(*tasks))


@in_still_time
async def test_it_looks_again_after_nothing_ran_for_a_while() -> None:
    deadlines = Deadlines(1)
    await late_by(deadlines, 0.1)
    await asyncio.sleep(100)

    assert 1 < await late_by(deadlines, 60) <= 1.25
