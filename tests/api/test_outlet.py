"""Log lines leave without holding anything up, whatever becomes of their reader."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.api.serving import wait_until_ready
from tests.waiting import SECONDS, free_port

from tonnage.api.outlet import HELD_BYTES, Outlet

LINES = (b"x" * 1023 + b"\n") * 64


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            continue


def test_lines_arrive_whole_and_in_order(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        outlet = Outlet(file.fileno())
        for number in range(1000):
            outlet.write(b"%d\n" % number)

        assert outlet.drain(SECONDS)
    assert [str(number) for number in range(1000)] == (tmp_path / "log").read_text().split()


def test_a_pipe_that_nobody_reads_costs_lines_and_nobody_waits_for_it(pipe: tuple[int, int]) -> None:
    dropped: list[int] = []
    outlet = Outlet(pipe[1], dropped.append)
    for _ in range(2 * HELD_BYTES // len(LINES)):
        outlet.write(LINES)

    assert sum(dropped) >= HELD_BYTES // 1024 - 128
    assert not outlet.drain(0.05)


def test_a_pipe_that_is_read_again_gets_lines_again(pipe: tuple[int, int]) -> None:
    outlet = Outlet(pipe[1])
    for _ in range(2 * HELD_BYTES // len(LINES)):
        outlet.write(LINES)
    os.set_blocking(pipe[0], False)
    while not outlet.drain(0.01):
        read_what_is_there(pipe[0])
    read_what_is_there(pipe[0])
    outlet.write(b"last\n")

    assert outlet.drain(SECONDS)
    assert b"last\n" == os.read(pipe[0], 65_536)


def read_what_is_there(pipe: int) -> None:
    with suppress(BlockingIOError):
        while os.read(pipe, 65_536):
            pass


def test_a_pipe_without_a_reader_costs_lines(pipe: tuple[int, int]) -> None:
    dropped: list[int] = []
    outlet = Outlet(pipe[1], dropped.append)
    os.close(pipe[0])
    outlet.write(b"one\ntwo\n")

    assert outlet.drain(SECONDS)
    assert [2] == dropped


@pytest.mark.parametrize("way", ["unread", "closed"])
def test_the_service_answers_and_exits_whatever_its_output_does(way: str) -> None:
    port = free_port()
    command = [sys.executable, "-c", "from tonnage.cli import main; main(['serve'])"]
    if way == "closed":
        command = ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command]
    process = subprocess.Popen(
        command, env=os.environ | {"TONNAGE_PORT": str(port)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_until_ready(port, process)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client:
            statuses = {client.get("/healthz").status_code for _ in range(600)}
            process.terminate()

        assert {200} == statuses
        assert 0 == process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
