"""Traces go out when the standard variables ask for them, without queries; otherwise nothing is wrapped or imported."""

import importlib.util
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.api.serving import serving
from tests.waiting import wait_for

from tonnage.api.tracing import span_name, traced, wanted

ASKED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


def application(scope, receive, send):
    raise AssertionError("not called")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        (ASKED, True),
        ({**ASKED, "OTEL_SDK_DISABLED": "true"}, False),
        ({**ASKED, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_SERVICE_NAME": "sizing"}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
    ],
)
def test_the_standard_variables_decide(environment, expected):
    assert expected == wanted(environment)


def test_without_them_the_application_is_untouched():
    assert application is traced(application, {})


def test_a_missing_extra_is_a_warning_and_no_failure(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.asgi", None)

    with caplog.at_level(logging.WARNING, "tonnage"):
        assert application is traced(application, ASKED)

    assert "tonnage[otel]" in caplog.text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/estimate", "GET /estimate"),
        ("/catalog/models/org/name", "GET /catalog/models/{name}"),
        ("/catalog/gpus", "GET /catalog/gpus"),
        ("/", "GET /"),
    ],
)
def test_spans_are_named_by_route(path, name):
    assert name == span_name({"method": "GET", "path": path})


class Collector(ThreadingHTTPServer):
    """Takes what an OTLP exporter sends."""

    def __init__(self):
        self.bodies = []
        super().__init__(("127.0.0.1", 0), Take)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Take(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        """Nothing: the test's output is not this server's log."""


def test_a_request_becomes_a_span_without_its_query(monkeypatch):
    if importlib.util.find_spec("opentelemetry") is None:
        pytest.skip("not run: OpenTelemetry is not installed (extra tonnage[otel])")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    try:
        with serving() as service:
            for path in ("/estimate?model=Qwen/Qwen3-8B", "/healthz"):
                assert 200 == service.get(path).status_code
            wait_for(lambda: collector.bodies)
    finally:
        collector.shutdown()
    request = ExportTraceServiceRequest.FromString(b"".join(collector.bodies))
    spans = [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]

    assert ["GET /estimate"] == [span.name for span in spans]
    assert b"Qwen" not in b"".join(collector.bodies)
    assert b"tonnage" in b"".join(collector.bodies)
