"""What a request passes before any work: its key, then the rate limit of that key or address."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from tonnage.adapters.rate_counter import RateCounter, Standing
from tonnage.api.access import KeyRing, needed_scope
from tonnage.api.problems import RATE_LIMITED, Headers, ProblemError
from tonnage.api.settings import Settings, SettingsError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NEVER_LIMITED = frozenset({"/healthz", "/readyz", "/metrics"})
_MAX_HOPS = 20


class Gate:
    """Keys and limits of one process; both may be absent."""

    def __init__(self, settings: Settings, keys: KeyRing | None, counter: RateCounter) -> None:
        self.keys = keys
        self.counter = counter
        self._metrics_open = settings.metrics_open
        self._proxies = networks(settings.trusted_proxies)

    @property
    def is_open(self) -> bool:
        """Whether every request passes."""
        return self.keys is None and not self.counter.limit

    def __call__(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> Headers:
        """
        Let a request pass.

        Args:
            scope: ASGI scope.
            headers: Of the request.

        Returns:
            Headers for its answer.

        Raises:
            ProblemError: 401, 403 or 429.
        """
        path = scope["path"]
        name = self._admitted(path, scope, headers)
        if not self.counter.limit or path in _NEVER_LIMITED:
            return []
        caller = f"key:{name}" if name else f"address:{self.address(scope, headers)}"
        scope["state"]["caller"] = caller
        standing = self.counter.count(caller)
        if not standing.allowed:
            raise ProblemError(
                RATE_LIMITED,
                f"{self.counter.limit} requests a minute are allowed",
                headers=[*self._headers(standing), (b"retry-after", b"%d" % standing.reset_seconds)],
            )
        return self._headers(standing)

    def count_line(self, scope: Mapping[str, Any]) -> None:
        """
        Count one line of a batch like a request of its own.

        Args:
            scope: ASGI scope of the batch.

        Raises:
            ProblemError: 429, for this line only.
        """
        caller = scope["state"].get("caller")
        if caller is not None and not (standing := self.counter.count(caller)).allowed:
            wait = standing.reset_seconds
            raise ProblemError(RATE_LIMITED, f"{self.counter.limit} a minute are allowed; the next in {wait} s")

    def _admitted(self, path: str, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> str | None:
        needed = None if self.keys is None else needed_scope(path, metrics_open=self._metrics_open)
        if self.keys is None or needed is None:
            return None
        key = self.keys.admit(headers.get(b"authorization"), needed)
        scope["state"]["key_name"] = key.name
        return key.name

    def _headers(self, standing: Standing) -> Headers:
        return [
            (b"ratelimit-limit", b"%d" % self.counter.limit),
            (b"ratelimit-remaining", b"%d" % standing.remaining),
            (b"ratelimit-reset", b"%d" % standing.reset_seconds),
        ]

    def address(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> str:
        """
        Address a limit counts by: the nearest one that is not a trusted proxy's.

        Args:
            scope: ASGI scope.
            headers: Of the request.

        Returns:
            IPv4 address, or the /64 of an IPv6 address.
        """
        peer = (scope.get("client") or ("",))[0]
        hops = [peer]
        if self._proxies and self._trusted(peer):
            forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")
            hops += [hop.strip() for hop in reversed(forwarded[-_MAX_HOPS:]) if hop.strip()]
        for hop in hops:
            if not self._trusted(hop):
                return grouped(hop)
        return grouped(hops[-1])

    def _trusted(self, hop: str) -> bool:
        try:
            address = ipaddress.ip_address(hop)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


def networks(text: str) -> list[Network]:
    """Networks of a comma-separated list. [unitless]"""
    try:
        return [ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise SettingsError(f"TONNAGE_TRUSTED_PROXIES: {error}") from error


def grouped(hop: str) -> str:
    """Address as limits count it: one IPv6 customer has a whole /64; what is no address is one caller. [unitless]"""
    try:
        address = ipaddress.ip_address(hop)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
