import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pydantic import ValidationError
from starlette.testclient import TestClient

from service.settings import Settings
from service.telemetry import account
from service.telemetry.account import sampled_trace_id
from tests.service.conftest import warm
from tests.support.ports import free_port

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = {"query": "a secret query", "documents": ["a secret document", {"id": "secret-id", "title": "a secret title", "text": "x"}]}


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, as OpenTelemetry's own does, and keeps the spans, who sent them, and the paths that were asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        unpacked = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
        self.server.paths.append(self.path)
        for sent in ExportTraceServiceRequest.FromString(unpacked).resource_spans:
            self.server.resources.append({a.key: a.value.string_value for a in sent.resource.attributes})
            self.server.spans += [span for scope in sent.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, args=(0.01,), daemon=True).start()
        yield collector
        collector.shutdown()


def traced(settings: Settings, url: str) -> AbstractContextManager[TestClient]:
    return warm(settings.model_copy(update={"otlp_endpoint": url}))


def attributes(span: Span) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value") or "") for a in span.attributes}


def test_a_request_is_a_span_with_its_stages_in_the_trace_of_the_caller(settings: Settings, collector: Collector) -> None:
    with traced(settings, collector.url) as client:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
        timings = client.post("/v1/rerank", json=GOOD, headers=headers).json()["meta"]["timings_ms"]
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.resources[0]["service.name"] == "keyblock"
    (root,) = (span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER)
    assert (root.name, root.trace_id.hex(), root.parent_span_id.hex()) == ("POST /v1/rerank", TRACE, PARENT)
    assert root.trace_state == "vendor=1"
    said = attributes(root)
    assert said["http.route"] == "/v1/rerank"
    assert (said["http.response.status_code"], said["keyblock.outcome"], said["keyblock.documents"]) == (200, "ok", 2)
    assert (said["keyblock.model"], said["keyblock.dialect"], said["keyblock.degraded"]) == ("tiny", "native", False)
    children = [span for span in collector.spans if span.parent_span_id == root.span_id]
    assert [span.name for span in children] == ["receive", "parse", "prepare", "queue", "model", "aggregate", "respond"]
    for span in children:
        assert root.start_time_unix_nano - 1_000_000 <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano + 1_000_000
        if span.name in ("parse", "prepare", "model"):
            assert (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6 == pytest.approx(timings[span.name], abs=0.01)


def test_no_span_holds_a_text_or_an_id(settings: Settings, collector: Collector) -> None:
    with traced(settings, f"{collector.url}/v1/traces") as client:  # some write the whole address
        client.post("/rerank", json=GOOD)
        client.post("/rerank", json=GOOD | {"top_n": "secret"})
        client.get("/documents/secret-id?secret=1")
    names = {span.name for span in collector.spans}
    assert {"POST /rerank", "GET /documents/{id}"} <= names
    assert "secret" not in "".join(str(span) for span in collector.spans)


def test_unsampled_requests_are_not_traced(settings: Settings, collector: Collector) -> None:
    with traced(settings, collector.url) as client:
        client.post("/rerank", json=GOOD, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        client.get("/metrics")
    assert collector.spans == []


def test_errors_are_recorded_in_spans(settings: Settings, collector: Collector) -> None:
    with traced(settings, collector.url) as client:
        assert client.post("/rerank", content=b"{").status_code == 400
        app: Any = client.app
        app.state.ranker.worker.close()
        assert client.post("/rerank", json=GOOD).status_code == 503
    invalid, dead = (span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER)
    assert (attributes(invalid)["http.response.status_code"], invalid.status.code) == (400, Status.STATUS_CODE_UNSET)
    assert (attributes(dead)["error.type"], dead.status.code) == ("503", Status.STATUS_CODE_ERROR)


@pytest.mark.filterwarnings("ignore")  # the exporter says that nobody answers
def test_a_collector_that_is_away_costs_nothing(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "FLUSH_SECONDS", 0.1)
    with traced(settings, f"http://127.0.0.1:{free_port()}") as client:
        assert all(client.post("/rerank", json=GOOD).status_code == 200 for _ in range(3))
    assert "Traceback" not in caplog.text


def test_off_it_loads_nothing(settings: Settings) -> None:
    heavy = "('opentelemetry.sdk.trace', 'opentelemetry.exporter', 'opentelemetry.proto')"  # other parts are loaded by redis
    code = f"import sys, service.app, service.cli; print([name for name in sys.modules if name.startswith({heavy})])"
    assert settings.otlp_endpoint == ""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (f"00-{TRACE}-{PARENT}-01", TRACE),
        (f" 00-{TRACE}-{PARENT}-03 ", TRACE),
        (f"01-{TRACE}-{PARENT}-01-what-will-be", TRACE),
        (f"00-{TRACE}-{PARENT}-00", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}", None),
        ("x" * 100_000, None),
        ("", None),
    ],
)
def test_traceparent(header: str, trace: str | None) -> None:
    assert sampled_trace_id(header) == trace


def test_an_invalid_endpoint_stops_the_start() -> None:
    with pytest.raises(ValidationError, match="http://"):
        Settings(otlp_endpoint="collector:4317")


def test_what_is_not_installed_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(ValidationError, match=r"pip install 'keyblock\[otel\]'"):
        Settings(otlp_endpoint="http://127.0.0.1:4318")
