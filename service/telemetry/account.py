"""Facts about a request beside its answer: its id, key, outcome and times; the layer that puts the id on every answer; and traces.

Traces are recorded by OpenTelemetry, if switched on. Spans have counts and times, never a text or an id. A request is recorded as
one span with a child for each stage; they are made when it ends, from times that are taken anyway. A caller's W3C context is
continued, and decides whether the request is sampled. If nothing is traced here, the trace id of a sampled caller is still known:
metrics have it as an exemplar.
"""

import copy
import logging
import os
import re
import threading
import time
import uuid
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keyblock import __version__
from service.call import DEFAULT_NAMESPACE, Call
from service.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

REQUEST_ID = "x-request-id"
CURRENT_ID: ContextVar[str] = ContextVar("request_id", default="")  # of the current request, for every log line about it
_VALID_ID = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")  # no character that could forge a header or a log line
_ENTRY = "keyblock.account"  # key in the ASGI scope
_LONGEST_PATH = 200
SHOWN_DOCUMENTS, SHOWN_CHARACTERS = 10, 200
TRACES_PATH = "v1/traces"  # of OTLP over HTTP
FLUSH_SECONDS = 3  # for which a collector that does not answer may hold up the end of the process
SERVER_ERROR = 500  # from this status on a span is an error
RECEIVE = "receive"  # a span for the body; not a stage of the metrics, since it depends on the client's network
SAMPLED = 1  # the bit of a traceparent's flags
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")
log = logging.getLogger("service.access")


class Interval(NamedTuple):
    """A stage, with its start and end in seconds of the clock."""

    stage: str
    start: float
    end: float


class Stages:
    """Times of one request, one stage after the other; each is observed in the metrics when it ends.

    Attributes:
        began: when the last byte of the request arrived, in seconds of the clock.
        intervals: of the stages that have ended.
        trace_id: of the request's trace, if it has one.
        metrics: may be replaced by those of the requested model before the first stage ends.

    Args:
        metrics: gets the times of the stages.
        trace_id: of the request's trace, where it has one.
    """

    def __init__(self, metrics: Metrics, trace_id: str | None = None) -> None:
        self.metrics = metrics
        self.trace_id = trace_id
        self.began = self._last = time.perf_counter()
        self.intervals: list[Interval] = []

    def branch(self) -> Self:
        """The times of one of the request's queries: from now on they are its own."""
        own = copy.copy(self)
        own.intervals = list(self.intervals)
        return own

    def end(self, stage: str) -> None:
        """End a stage that began at the end of the one before it."""
        self.add(stage, time.perf_counter() - self._last)

    def add(self, stage: str, seconds: float) -> None:
        """Add a stage that began at the end of the one before it, and whose time was measured elsewhere."""
        start, self._last = self._last, self._last + seconds
        self.intervals.append(Interval(stage, start, self._last))
        self.metrics.observe("stages", seconds, self.trace_id, stage=stage)

    def note(self, stage: str) -> None:
        """End a stage that the metrics have in parts: those of `branch`."""
        start, self._last = self._last, time.perf_counter()
        self.intervals.append(Interval(stage, start, self._last))

    @property
    def total(self) -> float:
        """Seconds since the request arrived."""
        return time.perf_counter() - self.began

    def milliseconds(self) -> dict[str, float]:
        """Milliseconds by stage, and their `total`, rounded to microseconds."""
        taken = [(stage, end - start) for stage, start, end in self.intervals]
        return {stage: round(seconds * 1e3, 3) for stage, seconds in (*taken, ("total", self.total))}

    def server_timing(self) -> str:
        """The times as the value of a Server-Timing header, which browsers and proxies read."""
        return ", ".join(f"{stage};dur={milliseconds:g}" for stage, milliseconds in self.milliseconds().items())


@dataclass(slots=True)
class Account:
    """Facts about one request; every part of the service enters what it knows.

    Attributes:
        request_id: from its sender, or a new one.
        key: the name of the request's key in logs; empty if no keys are needed.
        namespace: of its documents by id: its key's, or the default one. It has no colon.
        denied: why the request was denied, as the metrics say it; None if it was not.
        status: of its answer; until there is one, that of a failure.
        dialect: once it is known.
        documents: number of documents in the request, or stored by it.
        stages: its times.
        call: the request itself, if texts are to be logged.
        began: when its head arrived, in seconds of `time.perf_counter`.
        held: resources that are released once the answer is written.
    """

    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    key: str = ""
    namespace: str = DEFAULT_NAMESPACE
    denied: str | None = None
    status: int = 500
    dialect: str | None = None
    documents: int | None = None
    stages: Stages | None = None
    call: Call | None = None
    began: float = field(default_factory=time.perf_counter)
    held: ExitStack = field(default_factory=ExitStack)

    def fields(self, scope: Scope) -> dict[str, Any]:
        """The fields of the access log. They only include texts of a body if `call` is set."""
        stages = {} if self.stages is None else self.stages.milliseconds()
        stages.pop("total", None)
        fields = {
            "method": scope["method"],
            "path": scope.get("raw_path", b"").decode("ascii", "backslashreplace")[:_LONGEST_PATH] or scope["path"][:_LONGEST_PATH],
            "status": self.status,
            "dialect": self.dialect,
            "documents": self.documents,
            "duration_ms": round((time.perf_counter() - self.began) * 1e3, 3),
            "stages_ms": stages or None,
            "key": self.key or None,
            "denied": self.denied,
            "trace_id": None if self.stages is None else self.stages.trace_id,
            "client": scope["client"][0] if scope.get("client") else None,
        }
        if self.call is not None:
            shown = [text[:SHOWN_CHARACTERS] for text in self.call.documents.texts[:SHOWN_DOCUMENTS]]
            fields |= {"query": self.call.query, "texts": shown}
        return {name: value for name, value in fields.items() if value is not None}


def open_account(scope: Scope) -> Account:
    """Make the account of a new request."""
    account = Account()
    for name, value in scope["headers"]:
        if name == REQUEST_ID.encode() and _VALID_ID.fullmatch(sent := value.decode("latin-1")):
            account.request_id = sent
    scope[_ENTRY] = account
    return account


def account_of(request: HTTPConnection) -> Account:
    """The account of a request."""
    account: Account = request.scope.setdefault(_ENTRY, Account())
    return account


class Accounting:
    """ASGI middleware; the outermost, so that every answer has the id.

    Args:
        app: answers the requests.
        access_log: whether to log a line for each request.
    """

    def __init__(self, app: ASGIApp, *, access_log: bool) -> None:
        self._app = app
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        account = open_account(scope)
        header = (REQUEST_ID.encode(), account.request_id.encode())

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                account.status = message["status"]
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        token = CURRENT_ID.set(account.request_id)
        try:
            await self._app(scope, receive, answer)
        finally:
            account.held.close()
            if self._access_log:
                fields = account.fields(scope)
                log.info("%s %s %d", fields["method"], fields["path"], fields["status"], extra=fields)
            CURRENT_ID.reset(token)


def sampled_trace_id(traceparent: str) -> str | None:
    """The trace id in a W3C traceparent header; None if it is invalid, or the trace is not sampled."""
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    return match[1] if match and int(match[2], 16) & SAMPLED else None


class Trace:
    """One request: its span, which gets children when it ends, or only what is known of its trace.

    Args:
        trace_id: see below.
        span: of the request, if it is recorded here.
        tracer: makes the children.

    Attributes:
        id: of its trace, 32 hexadecimal digits; None if that is not sampled.
    """

    def __init__(self, trace_id: str | None = None, span: "Span | None" = None, tracer: Any = None) -> None:
        self.id = trace_id
        self._span, self._tracer = span, tracer
        self._began = time.perf_counter()
        self._epoch = time.time_ns() - time.perf_counter_ns()  # where the clock of stages has its zero

    def annotate(self, **attributes: bool | int | str) -> None:
        """Add attributes to the request."""
        if self._span is not None:
            self._span.set_attributes({f"keyblock.{name}": value for name, value in attributes.items()})

    def end(self, status: int, stages: Stages | None = None, **attributes: str) -> None:
        """Note that the request is answered, with this HTTP status and further attributes."""
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode, set_span_in_context

        self.annotate(**attributes)
        self._span.set_attribute("http.response.status_code", status)
        if status >= SERVER_ERROR:
            self._span.set_status(StatusCode.ERROR)
            self._span.set_attribute("error.type", str(status))
        context = set_span_in_context(self._span)
        intervals = [] if stages is None else [Interval(RECEIVE, self._began, stages.began), *stages.intervals]
        for stage, *times in intervals:
            start, stop = (self._epoch + int(seconds * 1e9) for seconds in times)
            self._tracer.start_span(stage, context, start_time=start).end(stop)
        self._span.end()


class Tracing:
    """Begins traces, and sends their spans to a collector, if there is one.

    They are sent in batches and in a thread of its own; if the collector is too slow, the newest are lost. OpenTelemetry's own
    environment variables apply too: OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS and so on.

    Args:
        endpoint: URL of the collector, without /v1/traces; empty if there is none.
    """

    def __init__(self, endpoint: str) -> None:
        self._provider = _provider(endpoint) if endpoint else None
        self._tracer = None if self._provider is None else self._provider.get_tracer("keyblock", __version__)

    def begin(self, request: Request) -> Trace:
        """Begin the trace of a request, in the caller's trace if there is one."""
        if self._tracer is None:
            return Trace(sampled_trace_id(request.headers.get("traceparent", "")))
        from opentelemetry.trace import SpanKind, format_trace_id
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        route = getattr(request.scope.get("route"), "path_format", "")
        attributes = {"http.request.method": request.method, "http.route": route, "url.scheme": request.url.scheme}
        context = TraceContextTextMapPropagator().extract(dict(request.headers))
        span = self._tracer.start_span(f"{request.method} {route}", context, SpanKind.SERVER, attributes)
        return Trace(format_trace_id(span.get_span_context().trace_id), span, self._tracer) if span.is_recording() else Trace()

    def close(self) -> None:
        """Send the remaining spans, if the collector takes them in time."""
        if self._provider is not None:
            closing = threading.Thread(target=self._provider.shutdown, name="traces-close", daemon=True)
            closing.start()
            closing.join(FLUSH_SECONDS)


def tracing_of(request: Request) -> Tracing:
    """The application's tracing."""
    tracing: Tracing = request.app.state.tracing
    return tracing


def _provider(endpoint: str) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "keyblock"), "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    url = endpoint.rstrip("/").removesuffix(f"/{TRACES_PATH}")  # some write the whole address
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/{TRACES_PATH}")))
    return provider
