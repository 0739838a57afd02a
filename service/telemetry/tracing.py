"""Traces of requests: OpenTelemetry's, where they are switched on. Spans have counts and times, never a text or an id.

A request is recorded as one span with a child for each stage; they are made when it ends, from the times that are taken anyway. The
W3C context of a caller is taken up, and whether it samples decides. Where nothing is traced here, a sampled caller's trace id is
still known: it stands beside the metrics as an exemplar.
"""

import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from keyblock import __version__
from service.settings import Settings
from service.telemetry.stages import Interval, Stages

if TYPE_CHECKING:
    from opentelemetry.trace import Span

PATH = "v1/traces"  # of OTLP over HTTP
FLUSH_SECONDS = 3  # that a collector which does not answer may hold up the end of the process
SERVER_ERROR = 500
RECEIVE = "receive"  # the body, of a span; no stage of the metrics: it depends on the client's network
SAMPLED = 1  # the flag's bit
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


class Trace:
    """One request, traced elsewhere at most.

    Attributes:
        id: of the trace that it is a part of, 32 hexadecimal digits; none where that is not sampled.
    """

    def __init__(self, trace_id: str | None = None) -> None:
        self.id = trace_id

    def tell(self, **what: bool | int | str) -> None:
        """Say more of the request."""

    def end(self, status: int, stages: Stages | None = None, **what: str) -> None:
        """The request is answered: with this HTTP status, and more to say of it."""


UNTRACED = Trace()


class Tracing:
    """Nothing is traced here."""

    def begin(self, request: Request) -> Trace:
        """A request has arrived."""
        traceparent = request.headers.get("traceparent")
        return UNTRACED if traceparent is None else Trace(sampled_trace_id(traceparent))

    def close(self) -> None:
        """Send what is to be sent still."""


def sampled_trace_id(traceparent: str) -> str | None:
    """The trace id in a W3C traceparent header; none where it is not one, or says that the trace is not sampled."""
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    return match[1] if match and int(match[2], 16) & SAMPLED else None


OFF = Tracing()


def tracing_of(request: Request) -> Tracing:
    """What the application traces with."""
    tracing: Tracing = getattr(request.app.state, "tracing", OFF)
    return tracing


def open_tracing(settings: Settings) -> Tracing:
    """What the settings ask for."""
    return SentTracing(settings.otlp_endpoint) if settings.otlp_endpoint else OFF


class SentTracing(Tracing):
    """Spans are sent to a collector, in batches and in a thread of their own; when that does not keep up, the newest are lost.

    OpenTelemetry's own environment variables hold too: OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS and the like.

    Args:
        endpoint: of the collector, the part before /v1/traces.
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
        """A span begins, of the caller's trace where there is one."""
        from opentelemetry.trace import SpanKind

        route = getattr(request.scope.get("route"), "path_format", "")
        attributes = {"http.request.method": request.method, "http.route": route, "url.scheme": request.url.scheme}
        context = self._propagator.extract(dict(request.headers))
        span = self._tracer.start_span(f"{request.method} {route}", context, SpanKind.SERVER, attributes)
        return SpanTrace(self._tracer, span) if span.is_recording() else UNTRACED

    def close(self) -> None:
        """Send what is to be sent still, if the collector takes it in time."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces-close", daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)


def _with_path(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else f"{base}/{PATH}"


class SpanTrace(Trace):
    """A request that is traced."""

    def __init__(self, tracer: Any, span: "Span") -> None:
        from opentelemetry.trace import format_trace_id

        super().__init__(format_trace_id(span.get_span_context().trace_id))
        self._tracer = tracer
        self._span = span
        self._began = time.perf_counter()
        self._epoch = time.time_ns() - time.perf_counter_ns()

    def tell(self, **what: bool | int | str) -> None:
        """Say more of the request."""
        self._span.set_attributes({f"keyblock.{name}": value for name, value in what.items()})

    def end(self, status: int, stages: Stages | None = None, **what: str) -> None:
        """End the span, and export its children."""
        from opentelemetry.trace import StatusCode, set_span_in_context

        self.tell(**what)
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
        """Since 1970, of what `time.perf_counter` counts."""
        return self._epoch + int(seconds * 1e9)
