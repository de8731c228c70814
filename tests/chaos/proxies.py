"""Two small proxies: one that is slow, one that shares requests out among replicas as an ingress does."""

import asyncio
import contextlib
import itertools
import re

from tests.chaos.replica import Replica

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHECK_SECONDS = 0.2


class SlowProxy:
    """Bytes to another port, each part held back for a while."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.delay = 0.0
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "SlowProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(65_536):
                await asyncio.sleep(self.delay)
                writer.write(part)
        writer.close()


class RoundRobin:
    """
    One request after the other to the replicas whose /readyz says 200, over kept connections.

    A connection that is refused sends the request to the next replica; a request that was sent is never sent again.
    """

    def __init__(self) -> None:
        self.replicas: list[Replica] = []
        self.port = 0
        self._ready: list[int] = []
        self._kept: dict[int, list[Streams]] = {}
        self._turn = itertools.count()

    async def __aenter__(self) -> "RoundRobin":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        await self._check()
        self._checker = asyncio.create_task(self._check_for_ever())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._checker.cancel()
        self._server.close()

    async def _check_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            await self._check()

    async def _check(self) -> None:
        answers = await asyncio.gather(*(_is_ready(replica.port) for replica in self.replicas))
        self._ready = [replica.port for replica, ready in zip(self.replicas, answers, strict=True) if ready]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while True:
                writer.write(await self._answer(await _message(reader)))
        writer.close()

    async def _answer(self, request: bytes) -> bytes:
        for _ in range(3):
            if not self._ready:
                break
            port = self._ready[next(self._turn) % len(self._ready)]
            with contextlib.suppress(ConnectionRefusedError):
                kept = self._kept.setdefault(port, [])
                reader, writer = kept.pop() if kept else await asyncio.open_connection("127.0.0.1", port)
                if reader.at_eof() or writer.is_closing():
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                answer = await _message(reader)
                head = answer.partition(b"\r\n\r\n")[0].lower()
                if b"\r\nconnection: close" in head:
                    writer.close()
                    return re.sub(rb"(?i)connection: close\r\n", b"", answer, count=1)
                kept.append((reader, writer))
                return answer
        raise ConnectionRefusedError


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


async def _is_ready(port: int) -> bool:
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"HTTP/1.1 200 ")
