"""Traces of requests by OpenTelemetry, if switched on. Spans have counts and times, never a text or an id.

A request is recorded as one span with a child for each stage; they are made when it ends, from times that are taken anyway. A
caller's W3C context is continued, and decides whether the request is sampled. If nothing is traced here, the trace id of a sampled
caller is still known: metrics have it as an exemplar.
"""

import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from keyblock import __version__
from service.settings import Settings
from service.telemetry.account import Interval, Stages

if TYPE_CHECKING:
    from opentelemetry.trace import Span

PATH = "v1/traces"  # of OTLP over HTTP
FLUSH_SECONDS = 3  # for which a collector that does not answer may hold up the end of the process
SERVER_ERROR = 500
RECEIVE = "receive"  # a span for the body; not a stage of the metrics, since it depends on the client's network
SAMPLED = 1  # the flag's bit
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


class Trace:
    """One request that is not traced here, but perhaps elsewhere.

    Attributes:
        id: of its trace, 32 hexadecimal digits; None if that is not sampled.
    """

    def __init__(self, trace_id: str | None = None) -> None:
        self.id = trace_id

    def annotate(self, **attributes: bool | int | str) -> None:
        """Add attributes to the request."""

    def end(self, status: int, stages: Stages | None = None, **attributes: str) -> None:
        """Note that the request is answered, with this HTTP status and further attributes."""


UNTRACED = Trace()


class Tracing:
    """Tracing that is switched off."""

    def begin(self, request: Request) -> Trace:
        """Begin the trace of a request."""
        traceparent = request.headers.get("traceparent")
        return UNTRACED if traceparent is None else Trace(sampled_trace_id(traceparent))

    def close(self) -> None:
        """Send the remaining spans."""


def sampled_trace_id(traceparent: str) -> str | None:
    """The trace id in a W3C traceparent header; None if it is invalid, or the trace is not sampled."""
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    return match[1] if match and int(match[2], 16) & SAMPLED else None


OFF = Tracing()


def tracing_of(request: Request) -> Tracing:
    """The application's tracing."""
    tracing: Tracing = getattr(request.app.state, "tracing", OFF)
    return tracing


def open_tracing(settings: Settings) -> Tracing:
    """The tracing that the settings require."""
    return SentTracing(settings.otlp_endpoint) if settings.otlp_endpoint else OFF


class SentTracing(Tracing):
    """Sends spans to a collector, in batches and in a thread of its own; if the collector is too slow, the newest are lost.

    OpenTelemetry's own environment variables apply too: OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS and so on.

    Args:
        endpoint: URL of the collector, without /v1/traces.
    """

    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME", "keyblock"), "service.version": __version__}
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(_with_path(endpoint))))
        self._tracer = self._provider.get_tracer("keyblock", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, request: Request) -> Trace:
        """Begin a span, in the caller's trace if there is one."""
        from opentelemetry.trace import SpanKind

        route = getattr(request.scope.get("route"), "path_format", "")
        attributes = {"http.request.method": request.method, "http.route": route, "url.scheme": request.url.scheme}
        context = self._propagator.extract(dict(request.headers))
        span = self._tracer.start_span(f"{request.method} {route}", context, SpanKind.SERVER, attributes)
        return SpanTrace(self._tracer, span) if span.is_recording() else UNTRACED

    def close(self) -> None:
        """Send the remaining spans, if the collector takes them in time."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces-close", daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)


def _with_path(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else f"{base}/{PATH}"


class SpanTrace(Trace):
    """A request that is traced here."""

    def __init__(self, tracer: Any, span: "Span") -> None:
        from opentelemetry.trace import format_trace_id

        super().__init__(format_trace_id(span.get_span_context().trace_id))
        self._tracer = tracer
        self._span = span
        self._began = time.perf_counter()
        self._epoch = time.time_ns() - time.perf_counter_ns()

    def annotate(self, **attributes: bool | int | str) -> None:
        """Add attributes to the request."""
        self._span.set_attributes({f"keyblock.{name}": value for name, value in attributes.items()})

    def end(self, status: int, stages: Stages | None = None, **attributes: str) -> None:
        """End the span, and export its children."""
        from opentelemetry.trace import StatusCode, set_span_in_context

        self.annotate(**attributes)
        self._span.set_attribute("http.response.status_code", status)
        if status >= SERVER_ERROR:
            self._span.set_status(StatusCode.ERROR)
            self._span.set_attribute("error.type", str(status))
        context = set_span_in_context(self._span)
        for stage, start, end in self._intervals(stages):
            self._tracer.start_span(stage, context, start_time=self._nanoseconds(start)).end(self._nanoseconds(end))
        self._span.end()

    def _intervals(self, stages: Stages | None) -> list[Interval]:
        if stages is None:
            return []
        return [Interval(RECEIVE, self._began, stages.began), *stages.intervals]

    def _nanoseconds(self, seconds: float) -> int:
        """Nanoseconds since 1970, from seconds of `time.perf_counter`."""
        return self._epoch + int(seconds * 1e9)
