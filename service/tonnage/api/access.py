"""
Who may ask what: API keys with scopes, stored as hashes only.

A key is 256 random bits, so one SHA-256 is enough to store it; every comparison takes the same time whatever it finds.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tonnage.api.problems import FORBIDDEN, UNAUTHORIZED, ProblemError
from tonnage.api.settings import Settings, SettingsError

SCOPES = ("read", "estimate", "fit", "admin")
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<scopes>[a-z+]{1,64}):(?P<digest>[0-9a-f]{64})", re.ASCII)
_BEARER = re.compile(rb"[Bb]earer +([A-Za-z0-9._~+/=-]{16,256}) *")
_OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/problems"})
_CHALLENGE = (b"www-authenticate", b'Bearer realm="tonnage"')


class Key(NamedTuple):
    """One key as the service knows it."""

    name: str
    scopes: frozenset[str]
    digest: str


class KeyRing:
    """The keys in use; several at once, so that one can follow another."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys = tuple(keys)

    def find(self, token: bytes) -> Key | None:
        """
        Key of a token.

        Args:
            token: As the caller sent it.

        Returns:
            The key, None for a token nobody was given.
        """
        digest = hashlib.sha256(token).hexdigest()
        found: Key | None = None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def admit(self, authorization: bytes | None, scope: str) -> Key:
        """
        The key that a request is made with.

        Args:
            authorization: Header as sent.
            scope: What the request needs.

        Returns:
            The key.

        Raises:
            ProblemError: 401 without a valid key, 403 when it has not the scope.
        """
        match = _BEARER.fullmatch(authorization or b"")
        key = self.find(match[1]) if match else None
        if key is None:
            raise ProblemError(
                UNAUTHORIZED, "send Authorization: Bearer with a key of this service", headers=[_CHALLENGE]
            )
        if scope not in key.scopes and "admin" not in key.scopes:
            raise ProblemError(FORBIDDEN, f"key {key.name!r} has no scope {scope!r}")
        return key


def needed_scope(path: str, *, metrics_open: bool) -> str | None:
    """
    Scope that a path needs.

    Args:
        path: Of the request.
        metrics_open: Whether /metrics needs none.

    Returns:
        Scope, None for what is open to everybody.
    """
    path = _as_routed(path)
    if path in _OPEN_PATHS or path.startswith(("/docs/", "/page/", "/problems/")):
        return None
    area = path.split("/", 2)[1]
    if area in ("estimate", "fit"):
        return area
    if area == "metrics":
        return None if metrics_open else "admin"
    return "read"


def _as_routed(path: str) -> str:
    """The path that the framework routes a spelling to: doubled and trailing slashes mean nothing."""
    if "//" in path or (path.endswith("/") and path != "/"):
        return "/" + "/".join(filter(None, path.split("/")))
    return path


def read_keys(settings: Settings) -> KeyRing | None:
    """
    Keys of the settings and of the file they name.

    Args:
        settings: Of the process.

    Returns:
        The keys, None when none are asked for.

    Raises:
        SettingsError: A line that is no key, two of the same name, or a file that cannot be read or is empty.
    """
    if not settings.api_keys and not settings.api_keys_file:
        return None
    lines = settings.api_keys.split()
    if settings.api_keys_file:
        try:
            text = Path(settings.api_keys_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"TONNAGE_API_KEYS_FILE: {error}") from error
        lines += [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    keys = [_key(line, number) for number, line in enumerate(lines, 1)]
    if not keys or len({key.name for key in keys}) < len(keys):
        raise SettingsError("API keys: there must be at least one, and no two of the same name")
    return KeyRing(keys)


def _key(line: str, number: int) -> Key:
    """Key of one line; the complaint never repeats the line, which may hold a key by mistake."""
    match = _LINE.fullmatch(line)
    scopes = frozenset(match["scopes"].split("+")) if match else frozenset()
    if match is None or not scopes <= set(SCOPES):
        raise SettingsError(f"API key {number}: write name:scopes:sha256-hex with scopes of {', '.join(SCOPES)}")
    return Key(match["name"], scopes, match["digest"])


def new_key(name: str, scopes: str) -> tuple[str, str]:
    """
    A fresh key.

    Args:
        name: Shown in logs.
        scopes: Joined by "+".

    Returns:
        Token to give away, and the line to store.

    Raises:
        SettingsError: The name or a scope is not allowed.
    """
    token = f"tonnage_{secrets.token_urlsafe(32)}"
    line = f"{name}:{scopes}:{hashlib.sha256(token.encode()).hexdigest()}"
    _key(line, 1)
    return token, line


def refuse_open_house(settings: Settings) -> None:
    """Do not start without keys where others can reach the port, unless that was said."""
    if settings.is_public and not settings.allow_open and not (settings.api_keys or settings.api_keys_file):
        raise SettingsError(
            f"{settings.host} can be reached by others and no API keys are set: "
            "set TONNAGE_API_KEYS or TONNAGE_API_KEYS_FILE, or TONNAGE_ALLOW_OPEN=true"
        )
