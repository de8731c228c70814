"""
Metrics and the access log.

Label values are bounded: routes are templates, methods and statuses are fixed sets, models and GPUs never appear.
"""

import logging
import time
from functools import lru_cache
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.exposition import generate_latest

from tonnage.api.outlet import Outlet
from tonnage.api.tallies import Counts, Timings

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})
_STATUSES = {status: str(status) for status in (200, 204, 304, 400, 404, 422, 503)}
_LATENCY = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COMPUTATION = (0.00002, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)


class Telemetry:
    """All metrics of one application; each application has its own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counts("tonnage_http_requests", "Requests.", ["route", "method", "status"], registry)
        self.duration = Timings(
            "tonnage_http_request_duration_seconds", "Time to the last byte.", ["route"], _LATENCY, registry
        )
        self.in_flight = Gauge("tonnage_http_in_flight", "Requests being served.", registry=registry)
        self.estimate_seconds = Timings("tonnage_estimate_seconds", "One estimate.", [], _COMPUTATION, registry)
        self.fit_seconds = Timings("tonnage_fit_seconds", "One fit.", [], _COMPUTATION, registry)
        self.verdicts = Counts("tonnage_verdicts", "Answers by verdict.", ["endpoint", "verdict"], registry)
        self.cache_requests = Counts("tonnage_cache_requests", "Cache look-ups.", ["level", "outcome"], registry)
        self.catalog_info = Gauge(
            "tonnage_catalog_info", "Version of the catalogue in use.", ["version", "source"], registry=registry
        )
        self.catalog_loaded = Gauge(
            "tonnage_catalog_loaded_timestamp_seconds", "When the catalogue in use was loaded.", registry=registry
        )
        self.catalog_age = Gauge(
            "tonnage_catalog_age_seconds", "Time since the catalogue in use was last found current.", registry=registry
        )
        self.catalog_errors = Counter(
            "tonnage_catalog_reload_errors", "Reloads that failed; the old catalogue stayed.", registry=registry
        )
        self.redis_state = Gauge("tonnage_redis_state", "1 for the state Redis is in.", ["state"], registry=registry)
        self.refused = Counter("tonnage_refused", "Requests refused before work.", ["reason"], registry=registry)
        self.batch_problems = Counter(
            "tonnage_batch_problem_lines", "Lines of batches answered with a problem.", ["type"], registry=registry
        )
        self.log_errors = Counter(
            "tonnage_log_errors", "Access log lines that could not be written.", registry=registry
        )

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one finished request."""
        self.requests.add(route, method if method in _METHODS else "other", _STATUSES.get(status) or str(status))
        self.duration.observe(seconds, route)

    def batch_problem(self, slug: str) -> None:
        """Count one line of a batch that could not be answered."""
        self.batch_problems.labels(slug).inc()

    def verdict(self, endpoint: str, verdict: str) -> None:
        """Count one answer by what it says."""
        self.verdicts.add(endpoint, verdict)

    def catalog_in_use(self, version: str, source: str) -> None:
        """Show which catalogue answers from now on."""
        self.catalog_info.clear()
        self.catalog_info.labels(version, source).set(1)
        self.catalog_loaded.set_to_current_time()

    def redis_is(self, state: str) -> None:
        """Show the state of Redis: none, connecting, up or down (left alone after failures)."""
        for known in ("none", "connecting", "up", "down"):
            self.redis_state.labels(known).set(known == state)

    def cache(self, level: str, outcome: str) -> None:
        """Count one cache look-up: hit, miss or error, by level."""
        self.cache_requests.add(level, outcome)

    def exposition(self) -> bytes:
        """Text that Prometheus reads."""
        return generate_latest(self.registry)


class AccessLog:
    """One JSON line per request, written in batches; a full disk or pipe costs lines, never requests."""

    FLUSH_BYTES = 32_768
    LAST_SECONDS = 1.0
    """How long the exit waits for the last lines. [s]"""

    def __init__(self, telemetry: Telemetry, descriptor: int = 1) -> None:
        self._outlet = Outlet(descriptor, telemetry.log_errors.inc)
        self._buffer = bytearray()
        self._encode_into = msgspec.json.Encoder().encode_into

    def line(self, fields: dict[str, Any]) -> bool:
        """Take one line; True when it is the first since the last flush, so that the caller arranges one."""
        first = not self._buffer
        self._encode_into(fields, self._buffer, len(self._buffer))
        self._buffer += b"\n"
        if len(self._buffer) >= self.FLUSH_BYTES:
            self.flush()
        return first

    def flush(self) -> None:
        """Hand over what has gathered."""
        if self._buffer:
            self._outlet.write(bytes(self._buffer))
            self._buffer.clear()

    def close(self) -> None:
        """Hand over the rest and give it a moment to leave."""
        self.flush()
        self._outlet.drain(self.LAST_SECONDS)


class OutletHandler(logging.Handler):
    """Log records through an outlet."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self._outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one record."""
        try:
            self._outlet.write(self.format(record).encode(errors="replace") + b"\n")
        except Exception:
            self.handleError(record)


class JsonLines(logging.Formatter):
    """Other log lines in the same form as the access log."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object per record, with the traceback as a field."""
        fields: dict[str, Any] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


@lru_cache(maxsize=4)
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def timestamp(seconds: float) -> str:
    """UTC time of a log line, to the millisecond."""
    whole = int(seconds)
    return f"{_to_the_second(whole)}.{int((seconds - whole) * 1000):03d}Z"
