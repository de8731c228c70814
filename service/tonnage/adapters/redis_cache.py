"""
Look-ups through two levels: this process, then Redis, then the work itself.

What Redis returns is believed only when its checksum, made over key and value, fits: garbage, a value of another
version or the reply to another question is a miss.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from tonnage.adapters.redis_link import RedisLink

T = TypeVar("T")

Observe = Callable[[Literal["process", "redis"], Literal["hit", "miss", "error"]], None]

_FORM = b"T1"
_DIGEST = 16
_KEY_PREFIX = "tonnage:lookup:"
_MAX_WRITES = 64
"""Writes to Redis under way at once; more are dropped, the next look-up tries again."""
_WRITE_SECONDS = 0.5
"""How long a write may take, for which nobody waits. [s]"""


def sealed(key: str, value: bytes) -> bytes:
    """Value with the checksum that `opened` asks for."""
    return _FORM + _checksum(key, value) + value


def opened(key: str, stored: object) -> bytes | None:
    """Value as it was sealed for this key, None when it was not."""
    if not isinstance(stored, bytes) or not stored.startswith(_FORM):
        return None
    checksum, value = stored[len(_FORM) : len(_FORM) + _DIGEST], stored[len(_FORM) + _DIGEST :]
    return value if checksum == _checksum(key, value) else None


def _checksum(key: str, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST, key=hashlib.blake2b(key.encode()).digest()).digest()


class TwoLevelCache:
    """First level in this process, bounded by entries and bytes; second level in Redis."""

    def __init__(
        self,
        link: RedisLink,
        observe: Observe,
        *,
        entries: int = 2048,
        size_bytes: int = 33_554_432,
        ttl_seconds: int = 3600,
    ) -> None:
        self._link = link
        self._observe = observe
        self._entries = entries
        self._size_bytes = size_bytes
        self._ttl = ttl_seconds
        self._first: OrderedDict[str, tuple[object, int]] = OrderedDict()
        self._held = 0
        self._writes: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._first)

    def clear(self) -> None:
        """Forget the first level."""
        self._first.clear()
        self._held = 0

    def peek(self, key: str, kind: type[T]) -> T | None:
        """Value of the first level, without waiting for anything; None when it is not there."""
        held = self._first.get(key)
        if held is None or not isinstance(held[0], kind):
            return None
        self._first.move_to_end(key)
        self._observe("process", "hit")
        return held[0]

    async def get(self, key: str, make: Callable[[], T], kind: type[T]) -> T:
        """
        Value of a key, from the nearest level that has it.

        Args:
            key: Must name everything the value depends on, the catalogue's version included.
            make: Makes the value when no level has it; what it raises is not stored.
            kind: Struct of the value.

        Returns:
            The value.
        """
        held = self.peek(key, kind)
        if held is not None:
            return held
        self._observe("process", "miss")
        value = await self._second(key, kind)
        if value is None:
            value = make()
            self._write_later(key, value)
        self.put(key, value)
        return value

    def put(self, key: str, value: object) -> None:
        """Hold a value in the first level."""
        size = len(msgspec.msgpack.encode(value))
        if size > self._size_bytes // 8:
            return
        known = self._first.pop(key, None)
        self._held += size - (known[1] if known else 0)
        self._first[key] = (value, size)
        while len(self._first) > self._entries or self._held > self._size_bytes:
            _, (_, dropped) = self._first.popitem(last=False)
            self._held -= dropped

    async def _second(self, key: str, kind: type[T]) -> T | None:
        if not self._link.prompt:
            return None
        try:
            stored = await self._link.ask(lambda client: client.get(_name(key)))
        except LookupError:
            self._observe("redis", "error")
            return None
        if stored is None:
            self._observe("redis", "miss")
            return None
        value = opened(key, stored)
        try:
            found = None if value is None else msgspec.msgpack.decode(value, type=kind)
        except msgspec.MsgspecError:
            found = None
        self._observe("redis", "error" if found is None else "hit")
        return found

    def _write_later(self, key: str, value: object) -> None:
        if self._link.usable and len(self._writes) < _MAX_WRITES:
            task = asyncio.get_running_loop().create_task(self._write(key, msgspec.msgpack.encode(value)))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _write(self, key: str, value: bytes) -> None:
        try:
            await self._link.ask(
                lambda client: client.set(_name(key), sealed(key, value), ex=self._ttl), patience_seconds=_WRITE_SECONDS
            )
        except LookupError:
            self._observe("redis", "error")


def _name(key: str) -> str:
    return _KEY_PREFIX + hashlib.blake2b(key.encode(), digest_size=20).hexdigest()
