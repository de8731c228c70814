"""
Everything an operator can set, read once from the environment.

Each field is `TONNAGE_<FIELD>` in capitals; `docs/operations.md` lists them and a test keeps the two in step.
This is the only module that reads the environment.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tonnage.units import KiB, MiB

PREFIX = "TONNAGE_"
_SERVICE_LINK = re.compile(r"TONNAGE_(SERVICE_(HOST|PORT)\w*|PORT_\d+_\w+)=.*|TONNAGE_PORT=(tcp|udp)://.*", re.ASCII)
"""What Kubernetes puts into every pod beside a service called tonnage."""

Seconds = Annotated[float, Meta(gt=0, le=3600)]
Whole = Annotated[int, Meta(ge=0, le=1_000_000)]
Positive = Annotated[int, Meta(ge=1, le=1_000_000)]


class SettingsError(Exception):
    """An environment variable that does not parse, or a combination that would be unsafe."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this process serves. Defaults are safe for a person's own machine."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    """Port to listen on; 0 takes a free one."""
    catalog_dir: str = ""
    """Directory of TOML files read on top of the built-in catalogue, record by record; empty: none."""
    catalog_poll_seconds: Seconds = 5.0
    """How often the overlay directory and the shared catalogue version are looked at. [s]"""
    redis_url: str = ""
    """Shared second level: redis://, rediss://, redis+sentinel:// or redis+cluster:// address; empty: none."""
    redis_timeout_seconds: Seconds = 0.05
    """Longest wait for one Redis command or connection; there are no retries. [s]"""
    redis_connections: Positive = 16
    """Connections to Redis per process."""
    redis_breaker_failures: Positive = 3
    """Failures in a row after which Redis is left alone."""
    redis_breaker_seconds: Seconds = 2.0
    """How long it is left alone before one look-up tries again. [s]"""
    redis_ttl_seconds: Positive = 3600
    """How long a shared entry lives. [s]"""
    api_keys: str = ""
    """Keys as `name:scopes:sha256-hex`, separated by spaces; scopes are read, estimate, fit, admin joined by `+`."""
    api_keys_file: str = ""
    """File with one such key a line, re-read when it changes; empty: none."""
    allow_open: bool = False
    """Serve without keys on an address that others can reach."""
    metrics_open: bool = False
    """With keys: let /metrics be read without one of scope admin."""
    rate_limit_per_minute: Whole = 0
    """Requests a key or, without keys, an address may send in a minute; 0: no limit."""
    trusted_proxies: str = ""
    """Addresses or networks whose X-Forwarded-For is believed, separated by commas."""
    body_limit_bytes: Annotated[int, Meta(ge=1024, le=64 * MiB)] = 4 * MiB
    """Largest request body, and largest line of a batch. [bytes]"""
    bodies_limit_bytes: Annotated[int, Meta(ge=1024, le=1024 * MiB)] = 16 * MiB
    """Request bodies, lines of batches included, held at once; what goes beyond is a 503 with Retry-After. [bytes]"""
    deadline_seconds: Seconds = 10.0
    """Longest time for one request; a batch has it per line. [s]"""
    max_in_flight: Positive = 256
    """Requests at once; the next is a 503 with Retry-After."""
    fit_threads: Annotated[int, Meta(ge=1, le=64)] = 2
    """Threads that judge packages, so that quick requests need not wait behind them."""
    header_timeout_seconds: Seconds = 5.0
    """Longest time for a connection to finish its request head. [s]"""
    header_limit_bytes: Annotated[int, Meta(ge=1024, le=MiB)] = 32 * KiB
    """Largest request head. [bytes]"""
    idle_timeout_seconds: Seconds = 30.0
    """Longest silence between two requests of a connection. [s]"""
    max_connections: Positive = 2048
    """Open connections; the next is closed at once."""
    drain_seconds: Annotated[float, Meta(ge=0, le=300)] = 0.0
    """After SIGTERM /readyz says 503 for this long before the port closes. [s]"""
    shutdown_seconds: Positive = 20
    """How long requests in flight may take to finish after that. [s]"""
    access_log: bool = True
    """One JSON line per request on standard output."""
    log_level: str = "info"
    """Lowest level of the other log lines: debug, info, warning, error."""
    cors_origins: str = ""
    """Origins that browsers may call from, separated by commas; empty: none."""
    hub_enabled: bool = False
    """Read config.json of models that the catalogue does not hold from the Hub."""
    hub_endpoint: str = "https://huggingface.co"
    """Scheme and host of the Hub or of a mirror; no other host is ever asked."""
    hub_token_file: str = ""
    """File with the Hub token for gated models; never logged."""

    @property
    def is_public(self) -> bool:
        """Whether machines other than this one can reach the address."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True


def read_settings(environment: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """
    Settings of the environment.

    Args:
        environment: Variables; the process's own when omitted.
        overrides: Values from the command line, which win; None means not given.

    Returns:
        Checked settings.

    Raises:
        SettingsError: A variable is unknown or does not parse; names it.
    """
    environment = os.environ if environment is None else environment
    given: dict[str, Any] = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and not _SERVICE_LINK.fullmatch(f"{name}={value}")
    }
    given |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{PREFIX}* variables: {error}") from error


def tracing_environment() -> dict[str, str]:
    """OpenTelemetry's own variables, which its SDK reads too."""
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
