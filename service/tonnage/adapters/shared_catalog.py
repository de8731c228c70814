"""
An overlay of the catalogue that all replicas read from Redis: published once, found by polling its revision.

A lost message cannot leave a replica stale, because there are no messages; an evicted or broken snapshot changes
nothing, because a replica keeps what it has until a complete new one is there.
"""

import hashlib
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from tonnage.adapters.redis_cache import opened, sealed
from tonnage.adapters.redis_link import RedisLink
from tonnage.units import MiB

MAX_SNAPSHOT_BYTES = 16 * MiB
_REVISION = "tonnage:catalog:revision"
_SNAPSHOT = "tonnage:catalog:snapshot:"
_PATIENCE_SECONDS = 2.0
"""Nobody waits for these commands. [s]"""

Files = dict[str, bytes]


class SnapshotError(Exception):
    """A snapshot that is missing, broken or not allowed."""


def files_of(folder: Path) -> Files:
    """Data files of an overlay directory by relative path. [unitless]"""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.toml"))}


def write_files(files: Files, folder: Path) -> None:
    """
    Lay a snapshot out as an overlay directory.

    Args:
        files: Content by relative path.
        folder: Empty directory.

    Raises:
        SnapshotError: A path would leave the directory.
    """
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.suffix != ".toml":
            raise SnapshotError(f"a snapshot may not hold {name!r}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def packed(files: Files) -> tuple[str, bytes]:
    """Revision and content of a snapshot."""
    content = msgspec.msgpack.encode(files)
    if len(content) > MAX_SNAPSHOT_BYTES:
        raise SnapshotError(f"a snapshot holds at most {MAX_SNAPSHOT_BYTES} bytes")
    return hashlib.sha256(content).hexdigest()[:16], content


async def publish(client: Any, files: Files) -> str:
    """
    Make a snapshot the one that all replicas read.

    Args:
        client: Of Redis.
        files: Content by relative path.

    Returns:
        Its revision.
    """
    revision, content = packed(files)
    await client.set(_SNAPSHOT + revision, sealed(revision, content))
    await client.set(_REVISION, revision)
    return revision


async def withdraw(client: Any) -> None:
    """Let every replica go back to its own overlay."""
    await client.set(_REVISION, "none")


async def current_revision(link: RedisLink) -> str | None:
    """
    Revision all replicas should read.

    Args:
        link: Way to Redis.

    Returns:
        Revision, "none" after a withdrawal, None when Redis has or says nothing.

    Raises:
        LookupError: Redis failed.
    """
    found = await link.ask(lambda client: client.get(_REVISION), patience_seconds=_PATIENCE_SECONDS)
    if not isinstance(found, bytes) or len(found) > 64 or not found.isalnum():
        return None
    return found.decode("ascii")


async def fetch(link: RedisLink, revision: str) -> Files:
    """
    The snapshot of a revision.

    Args:
        link: Way to Redis.
        revision: As `current_revision` gave it.

    Returns:
        Content by relative path.

    Raises:
        LookupError: Redis failed.
        SnapshotError: It is not there, or not what was published.
    """
    stored = await link.ask(lambda client: client.get(_SNAPSHOT + revision), patience_seconds=_PATIENCE_SECONDS)
    content = opened(revision, stored)
    if content is None:
        raise SnapshotError(f"snapshot {revision} is not there, or not as it was published")
    try:
        return msgspec.msgpack.decode(content, type=Files)
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"snapshot {revision}: {error}") from error
