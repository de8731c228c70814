"""
config.json and tensor sizes of a repository, from a Hub that one host name answers for.

Only the configured host is ever asked: a redirect elsewhere is an error. Bodies, time and requests under way are
bounded, what failed is remembered for a while, and the token goes into one header and nowhere else.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol
from urllib.parse import quote, urlsplit

import httpx
import msgspec
from msgspec import Struct

from tonnage.adapters.hub_facts import Listing, decoded_config, decoded_index, hub_model
from tonnage.errors import MissingFact, SizingError, SourceUnavailable, UnknownName
from tonnage.spec.hub import Fetch, HubModel

INLINE = 'pass its config.json as {"model": {"config": {...}}}'

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class HubSettings(Struct, frozen=True, kw_only=True):
    """How the Hub is asked."""

    endpoint: str = "https://huggingface.co"
    """Scheme and host, and a path where a mirror has one. Plain http is for this machine only."""
    token: str = ""
    """Bearer token for gated repositories."""
    connect_seconds: float = 2.0
    total_seconds: float = 8.0
    """For all requests about one repository together. [s]"""
    config_bytes: int = 2_097_152
    """Largest config.json and repository description. [bytes]"""
    index_bytes: int = 33_554_432
    """Largest safetensors index. [bytes]"""
    redirects: int = 3
    concurrency: int = 8
    """Repositories asked for at once; more wait. [unitless]"""
    kept: int = 256
    """Repositories remembered. [unitless]"""
    fresh_seconds: float = 3600.0
    """How long a branch's answer holds; a commit's holds for ever. [s]"""
    refused_seconds: float = 300.0
    """How long "there is no such repository" holds. [s]"""
    failed_seconds: float = 10.0
    """How long "the Hub does not answer" holds. [s]"""
    use_proxy_environment: bool = False
    """Take proxies from HTTPS_PROXY and its like."""


class SharedCache(Protocol):
    """Second level that other processes see; it may forget, fail or return anything."""

    async def load(self, key: str) -> bytes | None:
        """Bytes stored under the key, None without any."""
        ...

    async def store(self, key: str, value: bytes, seconds: float) -> None:
        """Keeps bytes for a while."""
        ...


class Kept(Struct, frozen=True):
    """An answer, or the error that stands for one, and how long it holds."""

    until: float
    model: HubModel | None = None
    error: Callable[[], SizingError] | None = None


class Hub:
    """One Hub, asked once per repository and revision whoever wants it."""

    def __init__(
        self,
        settings: HubSettings,
        *,
        shared: SharedCache | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._endpoint = checked_endpoint(settings.endpoint)
        self._shared = shared
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._under_way: dict[tuple[str, str], asyncio.Task[HubModel]] = {}
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=settings.use_proxy_environment,
            timeout=httpx.Timeout(settings.total_seconds, connect=settings.connect_seconds),
            headers={"accept-encoding": "identity", "user-agent": "tonnage"},
        )

    async def close(self) -> None:
        """Ends what is under way and the connections."""
        for task in list(self._under_way.values()):
            task.cancel()
        await self._client.aclose()

    async def fetched(self, wanted: Iterable[tuple[str, str | None]]) -> Fetch:
        """
        Facts of several repositories, for `catalog.resolve`.

        Args:
            wanted: Ids and revisions, as `catalog.wanted_from_hub` lists them.

        Returns:
            A `Fetch` that knows them, and raises what came back where a repository cannot be had.
        """
        pairs = list(wanted)
        answers = await asyncio.gather(*(self.model(*pair) for pair in pairs), return_exceptions=True)
        unexpected = next((a for a in answers if not isinstance(a, HubModel | SizingError)), None)
        if isinstance(unexpected, BaseException):
            raise unexpected
        return _fetch_of(dict(zip(pairs, answers, strict=True)))

    async def model(self, name: str, revision: str | None = None) -> HubModel:
        """
        Facts of one repository.

        Args:
            name: "org/name".
            revision: Branch, tag or commit; None is main.

        Returns:
            Its config and sizes.

        Raises:
            UnknownName: No such repository or revision, or the id is malformed.
            MissingFact: The repository may not be read, or has no usable config.json.
            SourceUnavailable: The Hub does not answer, or not as a Hub would.
        """
        key = checked_name(name, revision)
        kept = self._kept.get(key)
        if kept is not None and kept.until > self._clock():
            self._kept.move_to_end(key)
            if kept.model is None and kept.error is not None:
                raise kept.error()
            return kept.model  # type: ignore[return-value]
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._ask(key))
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    def _finished(self, key: tuple[str, str], task: asyncio.Task[HubModel]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()

    async def _ask(self, key: tuple[str, str]) -> HubModel:
        stored = await self._from_shared(key)
        if stored is not None:
            return self._keep(key, stored)
        try:
            async with asyncio.timeout(self._settings.total_seconds), self._slots:
                model = await self._read(*key)
        except (TimeoutError, httpx.HTTPError) as error:
            raise self._refused(
                key, SourceUnavailable, _reason(key[0], error), self._settings.failed_seconds
            ) from error
        except SourceUnavailable as error:
            raise self._refused(key, SourceUnavailable, error.detail, self._settings.failed_seconds) from error
        except MissingFact as error:
            raise self._refused(key, MissingFact, error.detail, self._settings.refused_seconds) from error
        except NotThere as error:
            raise self._refused(key, partial(_unknown, key[0]), str(error), self._settings.refused_seconds) from error
        await self._to_shared(key, model)
        return self._keep(key, model)

    def _refused(
        self, key: tuple[str, str], kind: Callable[[str], SizingError], detail: str, seconds: float
    ) -> SizingError:
        self._remember(key, Kept(self._clock() + seconds, error=lambda: kind(detail)))
        return kind(detail)

    def _keep(self, key: tuple[str, str], model: HubModel) -> HubModel:
        holds = float("inf") if _COMMIT.fullmatch(key[1]) else self._clock() + self._settings.fresh_seconds
        self._remember(key, Kept(holds, model))
        return model

    def _remember(self, key: tuple[str, str], kept: Kept) -> None:
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > self._settings.kept:
            self._kept.popitem(last=False)

    async def _read(self, name: str, revision: str) -> HubModel:
        """The description tells the tensor bytes by dtype; only without it the much larger index is read."""
        path = f"{name}/resolve/{quote(revision, safe='')}"
        config, commit = await self._get(f"{path}/config.json", self._settings.config_bytes, name)
        listing = await self._listing(name, revision)
        index = None
        if listing is None or listing.safetensors is None:
            index = await self._optional(f"{path}/model.safetensors.index.json", self._settings.index_bytes, name)
        return hub_model(
            name=name,
            revision=commit or (listing.sha if listing else None) or revision,
            config=decoded_config(name, config),
            listing=listing,
            index=decoded_index(index),
            endpoint=self._endpoint,
        )

    async def _listing(self, name: str, revision: str) -> Listing | None:
        path = f"api/models/{name}/revision/{quote(revision, safe='')}?expand=safetensors&expand=sha&expand=cardData"
        body = await self._optional(path, self._settings.config_bytes, name)
        try:
            return None if body is None else msgspec.json.decode(body, type=Listing)
        except (msgspec.DecodeError, RecursionError):
            return None

    async def _optional(self, path: str, limit: int, name: str) -> bytes | None:
        """A body that only refines the answer: the config alone is enough."""
        try:
            return (await self._get(path, limit, name))[0]
        except (NotThere, MissingFact):
            return None

    async def _get(self, path: str, limit: int, name: str) -> tuple[bytes, str | None]:
        url = httpx.URL(f"{self._endpoint}/{path}")
        for _ in range(self._settings.redirects + 1):
            async with self._client.stream("GET", url, headers=self._authorization()) as response:
                if not response.is_redirect:
                    _check_status(response, name, path)
                    return await _body(response, limit, name, path), response.headers.get("x-repo-commit")
                url = self._same_host(url, response)
        raise SourceUnavailable(f"the Hub sends {name} round in circles")

    def _same_host(self, url: httpx.URL, response: httpx.Response) -> httpx.URL:
        there = url.join(response.headers.get("location", ""))
        if (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
            raise SourceUnavailable(
                f"the Hub redirects to another host ({there.host or 'none'}), which is not followed"
            )
        return there

    def _authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._settings.token}"} if self._settings.token else {}

    async def _from_shared(self, key: tuple[str, str]) -> HubModel | None:
        if self._shared is None:
            return None
        try:
            stored = await self._shared.load(_shared_key(key))
            return None if stored is None else msgspec.msgpack.decode(stored, type=HubModel)
        except (msgspec.DecodeError, RecursionError, OSError, TimeoutError):
            return None

    async def _to_shared(self, key: tuple[str, str], model: HubModel) -> None:
        if self._shared is None:
            return
        try:
            await self._shared.store(_shared_key(key), msgspec.msgpack.encode(model), self._settings.fresh_seconds)
        except (OSError, TimeoutError):
            return


def _fetch_of(known: Mapping[tuple[str, str | None], HubModel | BaseException]) -> Fetch:
    def fetch(id: str, revision: str | None) -> HubModel:  # noqa: A002
        answer = known[id, revision]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return fetch


class NotThere(Exception):
    """404 of the Hub."""


def checked_endpoint(endpoint: str) -> str:
    """
    Endpoint that may be asked.

    Args:
        endpoint: Scheme, host, perhaps a port and a path.

    Returns:
        The same without a trailing slash.

    Raises:
        ValueError: Not a plain http(s) address, or http to another machine.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("the Hub endpoint must be scheme://host, without user, query or fragment")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("the Hub endpoint must be https unless it is this machine")
    return endpoint.rstrip("/")


def checked_name(name: str, revision: str | None) -> tuple[str, str]:
    """
    Id and revision that may stand in an address.

    Args:
        name: Repository id.
        revision: Branch, tag or commit; None is main.

    Returns:
        Both.

    Raises:
        UnknownName: Not what an id or a revision looks like.
    """
    revision = revision or "main"
    if not _ID.fullmatch(name) or ".." in name or "--" in name:
        raise UnknownName("model", name, ())
    if not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision:
        raise UnknownName("revision", revision, ())
    return name, revision


def _check_status(response: httpx.Response, name: str, path: str) -> None:
    status = response.status_code
    if status == httpx.codes.OK:
        return
    if status == httpx.codes.NOT_FOUND:
        code = response.headers.get("x-error-code", "")
        what = {"EntryNotFound": f"has no {path.rpartition('/')[2]}", "RevisionNotFound": "has no such revision"}
        raise NotThere(f"{name} {what.get(code, 'is not on the Hub')}")
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise MissingFact(f"{name} does not exist, is private or gated: the Hub answers {status}; {INLINE}")
    raise SourceUnavailable(f"the Hub answers {status} for {name}; {INLINE}")


async def _body(response: httpx.Response, limit: int, name: str, path: str) -> bytes:
    what = path.partition("?")[0].rpartition("/")[2]
    too_large = MissingFact(f"{what} of {name} is larger than {limit} bytes; {INLINE}")
    stated = response.headers.get("content-length", "")
    if stated.isascii() and stated.isdigit() and int(stated) > limit:
        raise too_large
    if response.headers.get("content-encoding", "identity") != "identity":
        raise SourceUnavailable("the Hub answers in an encoding that was not asked for")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit:
            raise too_large
    return bytes(body)


def _unknown(name: str, detail: str) -> SizingError:
    error = UnknownName("model", name, ())
    error.detail = f"{detail}; {INLINE}"
    error.args = (error.detail,)
    return error


def _reason(name: str, error: Exception) -> str:
    what = "in time" if isinstance(error, TimeoutError | httpx.TimeoutException) else f"({type(error).__name__})"
    return f"the Hub does not answer {what} for {name}; {INLINE}"


def _shared_key(key: tuple[str, str]) -> str:
    return f"tonnage:hub:{key[0]}@{key[1]}"
