"""
OpenTelemetry traces, where the standard OTEL_* variables ask for them and the extra `tonnage[otel]` is installed.

One span per request, named by method and route; the exporter, its endpoint, headers and sampler are the SDK's own
variables. Queries stay out of spans, as they stay out of the log. Without the variables nothing is imported.
"""

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from tonnage.version import __version__

logger = logging.getLogger("tonnage")

_ASKS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SILENT = "healthz,readyz,metrics"
"""Routes without spans: the machinery around the service asks them all day."""
_QUERY_ATTRIBUTES = ("url.query", "http.target", "http.url", "url.full")


def traced(app: Any, environment: Mapping[str, str]) -> Any:
    """
    The application with a span around each request.

    Args:
        app: ASGI application.
        environment: Variables of the process.

    Returns:
        The same application where nothing asks for traces, or where the extra is missing, which is logged.
    """
    if not wanted(environment):
        return app
    try:
        middleware = importlib.import_module("opentelemetry.instrumentation.asgi").OpenTelemetryMiddleware
        provider = _provider(environment)
    except ModuleNotFoundError as error:
        logger.warning("no traces: OTEL_* variables ask for them, but %s is not installed (tonnage[otel])", error.name)
        return app
    return middleware(
        app,
        excluded_urls=_SILENT,
        default_span_details=lambda scope: (span_name(scope), {}),
        server_request_hook=_without_query,
        tracer_provider=provider,
        exclude_spans=["receive", "send"],
    )


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the standard variables ask for traces over OTLP."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    other = environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp"
    return not disabled and not other and any(environment.get(name) for name in _ASKS)


def span_name(scope: Mapping[str, Any]) -> str:
    """
    Name of a request's span.

    Args:
        scope: ASGI scope.

    Returns:
        Method and the first two steps of the path; what follows them is a name, of which there are many.
    """
    steps = scope.get("path", "").split("/")
    rest = "/{name}" if len(steps) > 3 else ""
    return f"{scope.get('method', '')} {'/'.join(steps[:3])}{rest}"


def _provider(environment: Mapping[str, str]) -> Any:
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    exporter = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    resources = importlib.import_module("opentelemetry.sdk.resources")
    batch = importlib.import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor
    name = {} if "OTEL_SERVICE_NAME" in environment else {"service.name": "tonnage"}
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.version": __version__, **name}))
    provider.add_span_processor(batch(exporter.OTLPSpanExporter()))
    return provider


def _without_query(span: Any, scope: Mapping[str, Any]) -> None:
    """Attributes that would hold the query hold the path."""
    if span.is_recording():
        for name in _QUERY_ATTRIBUTES:
            if name in span.attributes:
                span.set_attribute(name, "" if name == "url.query" else scope.get("path", ""))
