"""
Facts that change while the service runs: the overlay directory, the shared overlay, the file of API keys.

Whatever is broken is reported and counted, and what was in use stays.
"""

import asyncio
import contextlib
import logging
import tempfile
import time
from pathlib import Path

from tonnage.adapters.shared_catalog import SnapshotError, current_revision, fetch, write_files
from tonnage.api.access import read_keys
from tonnage.api.context import Runtime
from tonnage.api.settings import SettingsError
from tonnage.api.sizing import Sizing
from tonnage.catalog import load_catalog
from tonnage.errors import CatalogError

logger = logging.getLogger("tonnage")

Print = tuple[tuple[str, int, int], ...]
"""Names, times and sizes of files."""


class Watch:
    """Looks at the sources of facts every few seconds."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._folder = Path(runtime.settings.catalog_dir) if runtime.settings.catalog_dir else None
        self._seen = fingerprint(self._folder)
        self._keys_seen = fingerprint(self._keys_file)
        self._revision = "none"
        self._refused_revision = ""
        self._found_current = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        runtime.telemetry.catalog_age.set_function(lambda: time.monotonic() - self._found_current)

    @property
    def _keys_file(self) -> Path | None:
        name = self._runtime.settings.api_keys_file
        return Path(name) if name else None

    def start(self) -> None:
        """Begin; called once the event loop runs."""
        if self._folder or self._keys_file or self._runtime.link.state != "none":
            self._task = asyncio.create_task(self._for_ever())
        else:
            self._runtime.telemetry.catalog_age.set_function(lambda: 0.0)

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._runtime.settings.catalog_poll_seconds)
            try:
                await self.look()
            except Exception:
                logger.exception("looking for new facts failed")

    async def look(self) -> None:
        """Take over whatever is new."""
        self._look_at_keys()
        current = await self._look_at_shared()
        if self._revision == "none":
            current = await self._look_at_folder() and current
        if current:
            self._found_current = time.monotonic()

    async def _look_at_folder(self) -> bool:
        now = fingerprint(self._folder)
        if now == self._seen:
            return True
        self._seen = now
        try:
            return await self._load(self._folder, "overlay")
        except OSError as error:
            self._seen = ()
            self._failed("overlay", error)
            return False

    async def _look_at_shared(self) -> bool:
        """Take over the shared overlay of a new revision; whether the revision is known at all."""
        link = self._runtime.link
        if link.state == "none":
            return True
        try:
            revision = await current_revision(link) if link.usable else None
            if revision is None:
                return self._revision == "none"
            if revision in (self._revision, self._refused_revision):
                return revision == self._revision
            if not await self._take_over(revision):
                self._refused_revision = revision
                return False
        except (
            LookupError,
            SnapshotError,
            OSError,
        ) as error:  # Redis, or a disk that is full: tried again at the next look
            self._failed("shared overlay", error)
            return False
        self._revision, self._refused_revision = revision, ""
        return True

    async def _take_over(self, revision: str) -> bool:
        if revision == "none":
            return await self._load(self._folder, "overlay" if self._folder else "built-in")
        files = await fetch(self._runtime.link, revision)
        with tempfile.TemporaryDirectory(prefix="tonnage-overlay-") as folder:
            write_files(files, Path(folder))
            return await self._load(Path(folder), "shared")

    async def _load(self, folder: Path | None, source: str) -> bool:
        try:
            sizing = Sizing(catalog=await asyncio.to_thread(load_catalog, folder))
        except CatalogError as error:
            self._failed(source, error)
            return False
        self._runtime.desk.sizing = sizing
        self._runtime.lookups.clear()
        self._runtime.telemetry.catalog_in_use(sizing.version, source)
        logger.info("catalogue %s from %s is in use", sizing.version, source)
        return True

    def _failed(self, source: str, error: Exception) -> None:
        self._runtime.telemetry.catalog_errors.inc()
        logger.error("the %s was not taken over, the catalogue in use stays: %s", source, error)

    def _look_at_keys(self) -> None:
        now = fingerprint(self._keys_file)
        if now == self._keys_seen:
            return
        self._keys_seen = now
        try:
            self._runtime.gate.keys = read_keys(self._runtime.settings)
        except SettingsError as error:
            logger.error("the API keys were not taken over, those in use stay: %s", error)


def fingerprint(place: Path | None) -> Print:
    """
    What shows that files have changed.

    Args:
        place: A file, or a directory of data files; None for nothing.

    Returns:
        Name, time and size of each; what cannot be looked at is left out.
    """
    if place is None:
        return ()
    found = []
    for path in sorted(place.rglob("*.toml")) if place.is_dir() else [place]:
        with contextlib.suppress(OSError):
            state = path.stat()
            found.append((str(path), state.st_mtime_ns, state.st_size))
    return tuple(found)
