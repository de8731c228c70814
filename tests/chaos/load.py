"""Callers: a few connections that ask at a steady pace and remember every answer."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

LOST = 0
"""Status of a request whose answer never came or came broken."""
REFUSED = -1
"""Status of a connection that nobody took: refused, or reset before its first request was read."""
ENOUGH = 1000
"""Requests a p99 is taken of, so that ten of them lie above it. [unitless]"""
_MARGIN = 50
_WINDOW_SECONDS = 6.0
_LONGEST_WINDOW_SECONDS = 30.0
_PATIENCE_SECONDS = 20.0


class Sample(NamedTuple):
    """One request."""

    at: float
    """When it began, of the monotonic clock. [s]"""
    seconds: float
    status: int
    headers: dict[str, str]


class Question(NamedTuple):
    """What is asked."""

    target: str
    body: bytes | None = None

    def encoded(self) -> bytes:
        method = "GET" if self.body is None else "POST"
        lines = [f"{method} {self.target} HTTP/1.1", "Host: chaos"]
        if self.body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(self.body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + (self.body or b"")


SERVING = json.dumps(
    {"model": "Qwen/Qwen3-0.6B", "serving": {"engine": "vllm", "max_model_len": 4096}, "placement": {"gpu": "h100-sxm"}}
).encode()
TRAINING = json.dumps(
    {"model": "Qwen/Qwen3-0.6B", "training": {"method": "lora"}, "placement": {"gpu": "h100-sxm"}}
).encode()
ESTIMATE = Question("/estimate", SERVING)
FIT = Question("/fit", SERVING)
_numbers = itertools.count()


def mixed() -> Question:
    """Estimates, and look-ups that this process has never seen, so that each asks Redis."""
    number = next(_numbers)
    match number % 4:
        case 0:
            return ESTIMATE
        case 1:
            return Question("/estimate", TRAINING)
        case 2:
            return Question(f"/catalog/gpus?limit=1&q=x{time.time_ns()}")
        case _:
            return Question(f"/catalog/formats?limit=1&q=x{time.time_ns()}")


class Connection:
    """One keep-alive connection, opened again when the other side closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, question: Question) -> Sample:
        started, fresh = time.monotonic(), self._streams is None
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return Sample(started, time.monotonic() - started, REFUSED, {})
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                status, headers = await self._exchange(question, *self._streams)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            status, headers = (REFUSED if fresh and not getattr(error, "partial", b"") else LOST), {}
        except (OSError, ValueError, EOFError, TimeoutError):
            status, headers = LOST, {}
        if status in (LOST, REFUSED) or headers.get("connection") == "close":
            self.close()
        return Sample(started, time.monotonic() - started, status, headers)

    async def _exchange(
        self, question: Question, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, dict[str, str]]:
        writer.write(question.encoded())
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        await reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Load:
    """Connections that ask until told to stop."""

    def __init__(
        self, port: int, ask: Callable[[], Question] = mixed, *, connections: int = 4, pause: float = 0.04
    ) -> None:
        self.samples: list[Sample] = []
        self.asking = 0
        self._port, self._ask, self._connections, self._pause = port, ask, connections, pause
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._caller(number)) for number in range(self._connections)]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _caller(self, number: int) -> None:
        connection = Connection(self._port)
        await asyncio.sleep(self._pause * number / self._connections)
        while not self._stop.is_set():
            sample = await connection.ask(self._ask())
            self.samples.append(sample)
            await asyncio.sleep(max(self._pause - sample.seconds, 0.05 if sample.status != 200 else 0))
        connection.close()

    async def window(self) -> None:
        """As long as a p99 needs: some seconds, and on a busy machine until there are enough answers."""
        before, latest = len(self.samples), time.monotonic() + _LONGEST_WINDOW_SECONDS
        await asyncio.sleep(_WINDOW_SECONDS)
        while len(self.samples) < before + ENOUGH + _MARGIN and time.monotonic() < latest:
            await asyncio.sleep(0.1)

    def failed(self, allowed: Sequence[int] = (200,)) -> list[Sample]:
        return [sample for sample in self.samples if sample.status not in allowed]


def percentile(samples: Iterable[Sample], part: int) -> float | None:
    """Time of those that were answered with 200; None without any. [ms]"""
    times = sorted(sample.seconds * 1000 for sample in samples if sample.status == 200)
    return times[min(len(times) - 1, len(times) * part // 100)] if times else None


def milliseconds(samples: Iterable[Sample]) -> str:
    """p50 / p99 of those that were answered with 200."""
    samples = list(samples)
    median, late = percentile(samples, 50), percentile(samples, 99)
    return "-" if median is None or late is None else f"{median:.1f} / {late:.1f}"


async def until(condition: Callable[[], object], seconds: float) -> float | None:
    """Seconds until a condition held (a blocking function, asked in a thread); None when it never did."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        with contextlib.suppress(OSError):
            if await asyncio.to_thread(condition):
                return time.monotonic() - started
        await asyncio.sleep(0.05)
    return None
