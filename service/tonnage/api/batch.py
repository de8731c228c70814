"""
Many questions in one request: a line of JSON in, a line of JSON out, in order and while both still flow.

A bad line becomes one problem line and stops nothing. Memory is bounded: input by one line, output by a buffer that
lets a caller send everything before it reads; a caller that lets it fill up is waited for, up to the deadline.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tonnage.api.answers import CLOSED_POLICY, NO_STORE
from tonnage.api.bodies import Held, too_large
from tonnage.api.context import Context
from tonnage.api.failures import as_problem
from tonnage.api.problems import INTERNAL, Headers, encode
from tonnage.api.telemetry import Telemetry
from tonnage.units import MiB

CONTENT_TYPE = b"application/x-ndjson"
_OUTPUT_BYTES = 16 * MiB
"""Answers held for a caller that still sends. [bytes]"""
_ALL_OUTPUT_BYTES = 48 * MiB
"""The same for all callers together; beyond it each has one chunk. [bytes]"""
_CHUNK_BYTES = 65_536
_TURN_SECONDS = 0.005
"""How long the lines of one batch may run before everybody else has a turn. [s]"""

logger = logging.getLogger("tonnage")

AnswerLine = Callable[[bytes], Awaitable[bytes]]
"""From one line to its answer; refuses by raising."""


class BatchAnswer:
    """A response that is made while it is sent; Litestar calls it like any ASGI application."""

    def __init__(self, context: Context, answer_line: AnswerLine) -> None:
        self._context = context
        self._answer_line = answer_line
        self._limit = context.runtime.settings.body_limit_bytes
        self._seconds = context.runtime.settings.deadline_seconds
        self._telemetry: Telemetry = context.runtime.telemetry

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer line by line (ASGI)."""
        headers: Headers = [(b"content-type", CONTENT_TYPE), CLOSED_POLICY, NO_STORE]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        loop = asyncio.get_running_loop()
        async with _Outlet(send, self._context.runtime.held) as outlet:
            turn = loop.time()
            async for number, line in self._lines(receive):
                await outlet.put(await self._answered(scope["path"], number, line))
                if loop.time() - turn > _TURN_SECONDS:
                    self._extend(scope)
                    await asyncio.sleep(0)
                    turn = loop.time()
            self._extend(scope)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _extend(self, scope: Any) -> None:
        """The deadline is for one line, not for the batch."""
        scope["state"]["deadline"].reschedule(asyncio.get_running_loop().time() + self._seconds)

    async def _answered(self, path: str, number: int, line: bytes | None) -> bytes:
        try:
            if line is None:
                raise too_large(self._limit)
            self._context.runtime.gate.count_line(self._context.scope)
            return await self._answer_line(line) + b"\n"
        except Exception as error:  # one bad line stops nothing
            problem = as_problem(error)
            if problem.kind is INTERNAL:
                logger.error("line %d of %s failed", number, path, exc_info=error)
            self._telemetry.batch_problem(problem.kind.slug)
            return encode(problem.document(f"{path}#line={number}")) + b"\n"

    async def _lines(self, receive: Any) -> AsyncIterator[tuple[int, bytes | None]]:
        """Lines that are not blank, by their number in the body; None for one over the limit, whose rest is skipped."""
        held, skipping, more, number = bytearray(), False, True, 0
        while more:
            message = await receive()
            self._extend(self._context.scope)
            more = message["type"] == "http.request" and message.get("more_body", False)
            held += message.get("body", b"")
            *complete, rest = held.split(b"\n")
            held = bytearray(rest)
            self._context.runtime.held.take(self._context.scope["state"], len(held))
            if complete and skipping:
                skipping = False
                del complete[0]
            for line in complete:
                number += 1
                if line.strip():
                    yield number, bytes(line) if len(line) <= self._limit else None
            if skipping or len(held) > self._limit:
                if not skipping:
                    number += 1
                    yield number, None
                skipping, held = True, bytearray()
                self._context.runtime.held.release(self._context.scope["state"])
        if held.strip() and not skipping:
            yield number + 1, bytes(held)


class _Outlet:
    """Sends beside the work, so that a caller that does not read yet is no obstacle until the buffer is full."""

    def __init__(self, send: Any, all_held: Held) -> None:
        self._send = send
        self._all = all_held
        self._held = bytearray()
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._ended = False
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "_Outlet":
        self._sender = asyncio.create_task(self._drain())
        return self

    async def __aexit__(self, kind: Any, *_: object) -> None:
        self._ended = True
        self._filled.set()
        assert self._sender is not None  # noqa: S101  (__aenter__ made it)
        if kind is not None:
            self._sender.cancel()
        try:
            await asyncio.gather(self._sender, return_exceptions=kind is not None)
        finally:
            self._all.unread_bytes -= len(self._held)

    async def put(self, line: bytes) -> None:
        self._held += line
        self._all.unread_bytes += len(line)
        if len(self._held) >= _CHUNK_BYTES:
            self._filled.set()
        while len(self._held) > (_OUTPUT_BYTES if self._all.unread_bytes < _ALL_OUTPUT_BYTES else _CHUNK_BYTES):
            self._emptied.clear()
            await self._emptied.wait()

    async def _drain(self) -> None:
        while not self._ended or self._held:
            if len(self._held) < _CHUNK_BYTES and not self._ended:
                await self._wait_for_more()
            if self._held:
                chunk, self._held = bytes(self._held), bytearray()
                try:
                    await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
                finally:
                    self._all.unread_bytes -= len(chunk)
            self._emptied.set()

    async def _wait_for_more(self) -> None:
        """Until a chunk is full, or for a moment: a slow trickle of lines is answered as it comes."""
        self._filled.clear()
        try:
            async with asyncio.timeout(0.02):
                await self._filled.wait()
        except TimeoutError:
            return
