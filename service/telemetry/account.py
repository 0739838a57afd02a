"""Facts about a request beside its answer: its id, its key, its outcome."""

import re
import time
import uuid
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.requests import HTTPConnection
from starlette.types import Scope as AsgiScope

from service.call import Call
from service.telemetry.stages import Stages

REQUEST_ID = "x-request-id"
CURRENT_ID: ContextVar[str] = ContextVar("request_id", default="")  # of the current request, for every log line about it
_VALID_ID = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")  # no character that could forge a header or a log line
_ENTRY = "keyblock.account"  # key in the ASGI scope
_LONGEST_PATH = 200
SHOWN_DOCUMENTS, SHOWN_CHARACTERS = 10, 200


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
    status: int = 500
    dialect: str | None = None
    documents: int | None = None
    stages: Stages | None = None
    call: Call | None = None
    began: float = field(default_factory=time.perf_counter)
    held: ExitStack = field(default_factory=ExitStack)

    def fields(self, scope: AsgiScope) -> dict[str, Any]:
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
            "trace_id": None if self.stages is None else self.stages.trace_id,
            "client": scope["client"][0] if scope.get("client") else None,
        }
        return {name: value for name, value in (fields | _texts(self.call)).items() if value is not None}


def _texts(call: Call | None) -> dict[str, Any]:
    if call is None:
        return {}
    shown = [text[:SHOWN_CHARACTERS] for text in call.documents.texts[:SHOWN_DOCUMENTS]]
    return {"query": call.query, "texts": shown}


def open_account(scope: AsgiScope) -> Account:
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
