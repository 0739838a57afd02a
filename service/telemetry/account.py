"""Facts about a request beside its answer: its id, key, outcome and times; and the layer that puts the id on every answer."""

import copy
import logging
import re
import time
import uuid
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.call import DEFAULT_NAMESPACE, Call
from service.telemetry.metrics import Metrics

REQUEST_ID = "x-request-id"
CURRENT_ID: ContextVar[str] = ContextVar("request_id", default="")  # of the current request, for every log line about it
_VALID_ID = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")  # no character that could forge a header or a log line
_ENTRY = "keyblock.account"  # key in the ASGI scope
_LONGEST_PATH = 200
SHOWN_DOCUMENTS, SHOWN_CHARACTERS = 10, 200
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


class Caller(Protocol):
    """The key of a request, as far as other modules need it."""

    @property
    def name(self) -> str:
        """The key's name in logs."""

    @property
    def owns(self) -> str:
        """The namespace of its documents."""


@dataclass(slots=True)
class Account:
    """Facts about one request; every part of the service enters what it knows.

    Attributes:
        request_id: from its sender, or a new one.
        key: of the request, if keys are needed.
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
    key: Caller | None = None
    denied: str | None = None
    status: int = 500
    dialect: str | None = None
    documents: int | None = None
    stages: Stages | None = None
    call: Call | None = None
    began: float = field(default_factory=time.perf_counter)
    held: ExitStack = field(default_factory=ExitStack)

    @property
    def namespace(self) -> str:
        """The namespace of the request's documents by id: its key's, or the default one if there are no keys. It has no colon."""
        return DEFAULT_NAMESPACE if self.key is None else self.key.owns

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
            "key": None if self.key is None else self.key.name,
            "denied": self.denied,
            "trace_id": None if self.stages is None else self.stages.trace_id,
            "client": scope["client"][0] if scope.get("client") else None,
        }
        return {name: value for name, value in (fields | _texts(self.call)).items() if value is not None}


def _texts(call: Call | None) -> dict[str, Any]:
    if call is None:
        return {}
    shown = [text[:SHOWN_CHARACTERS] for text in call.documents.texts[:SHOWN_DOCUMENTS]]
    return {"query": call.query, "texts": shown}


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
                _log_access(account, scope)
            CURRENT_ID.reset(token)


def _log_access(account: Account, scope: Scope) -> None:
    fields = account.fields(scope)
    log.info("%s %s %d", fields["method"], fields["path"], fields["status"], extra=fields)
