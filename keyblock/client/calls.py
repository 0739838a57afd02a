"""Every call of the client without input and output: generators that yield steps and receive their outcomes.

`Client` and `AsyncClient` perform the steps, one blocking and one awaiting, and share everything else.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from numbers import Real
from reprlib import repr as shown
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from keyblock import __version__
from keyblock.client import results
from keyblock.client.bodies import Given, as_documents, compressed, rerank_body, without_lone
from keyblock.client.errors import AnswerError, KeyBlockError, TimeUpError, UnavailableError, UnreachableError, read_error
from keyblock.client.options import OWN, Configuration, RerankOptions
from keyblock.client.results import StoredDocument, StoreReport, in_order_given, read_ranking, read_stored
from keyblock.client.retries import AGAIN, Budget, pause, read_retry_after
from keyblock.client.uploads import Batch, Upload, nothing_stored
from keyblock.results import Ranking

HEALTH_SECONDS = 5.0  # a service that has not answered by then is not healthy
READY_PAUSE = 0.05  # seconds between two checks of readiness
LARGE = 1 << 18  # characters or bytes from which on a thread reads and writes text, not the event loop
REQUEST_ID = "x-request-id"

T = TypeVar("T")


class Send(NamedTuple):
    """A request to send now; its outcome is an Answer or a Failure."""

    method: str
    url: str
    content: bytes
    headers: Mapping[str, str]
    budget: Budget


class Pause(NamedTuple):
    """Seconds to wait."""

    seconds: float


class Work(NamedTuple):
    """Work for a processor that may take long; its outcome is the result of `do`. With an event loop, a thread does it."""

    do: Callable[[], Any]


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Failure(NamedTuple):
    """Why there is no answer.

    Attributes:
        again: whether another attempt may get one.
        late: whether time was up.
    """

    problem: str
    again: bool = True
    late: bool = False


Steps = Generator[Send | Pause | Work, Any, T]


class Calls:
    """The calls of one client."""

    def __init__(self, options: Configuration) -> None:
        self._options = options
        self._headers = {name.lower(): value for name, value in (options.headers or {}).items()}

    def rerank(self, query: str, documents: Iterable[Given | None] | Given, given: RerankOptions) -> Steps[Ranking]:
        """Request a ranking; each attempt gets the rest of the deadline."""
        if unknown := given.keys() - RerankOptions.__annotations__.keys():
            raise TypeError(f"rerank() has no option {min(unknown)!r}; there are {', '.join(RerankOptions.__annotations__)}")
        options = {"return_blocks": True, **{name: value for name, value in given.items() if name not in OWN}}
        if (scores := given.get("first_stage_scores")) is not None:
            options["first_stage_scores"] = [_number(f"first_stage_scores[{at}]", score) for at, score in enumerate(scores)]
        deadline, timeout = (_number(name, given.get(name)) for name in ("deadline_ms", "timeout"))
        seconds = None if deadline is None else deadline / 1000
        budget = Budget.of(self._options.timeout if timeout is None else timeout, seconds, self._options.margin)
        candidates = as_documents(documents)
        size = sum(len(text) for one in candidates if isinstance(text := one.get("text"), str))  # the texts are most of a body
        body = yield from _perform(lambda: rerank_body(query, candidates), size)

        def content() -> bytes:
            left = {} if seconds is None else {"deadline_ms": round(min(seconds, max(budget.retry_left, 0)) * 1000, 3)}
            return body({**options, **left})

        request_id = self._request_id()
        try:
            answer = yield from self._answered("POST", "/rerank", budget, request_id, content, size)
        except (UnavailableError, UnreachableError, TimeUpError) as error:
            if not given.get("fallback"):
                raise
            return in_order_given(candidates, given.get("top_n") or 0, str(error), request_id)
        return (yield from _perform(lambda: _ranking(answer, candidates, request_id), len(answer.content)))

    def put(self, upload: Upload, batch: Batch | None) -> Steps[StoreReport]:
        """Store a batch of an upload, if there is one; the report on all of the upload. Wrong documents are part of the report."""
        if batch is None:
            return upload.report
        try:
            answer = yield from self._read(results.STORED_ANSWER, "PUT", "/documents", batch.content)
        except KeyBlockError as error:
            if (refused := nothing_stored(error)) is None:
                error.stored = upload.report.stored
                raise
            answer = refused
        return upload.enter(batch, answer)

    def get(self, identity: str | int) -> Steps[StoredDocument]:
        """A stored document."""
        return read_stored((yield from self._read(results.STORED_TEXT, "GET", _path(identity))))

    def delete(self, identity: str | int) -> Steps[bool]:
        """Delete a stored document."""
        return bool((yield from self._read(results.DELETION, "DELETE", _path(identity)))["deleted"])

    def info(self) -> Steps[dict[str, Any]]:
        """The answer of GET /info."""
        return (yield from self._read(results.ANY_OBJECT, "GET", "/info"))

    def health(self, which: str) -> Steps[bool]:
        """Whether the service reports that it is live, or ready; sent once. Raises NotFoundError and AccessError."""
        budget = Budget.of(min(self._options.timeout, HEALTH_SECONDS), None, self._options.margin)
        outcome = yield self._send("GET", f"/health/{which}", budget, self._request_id())
        if isinstance(outcome, Failure):
            return False
        if outcome.status in (401, 403, 404):
            raise _status_error(outcome, "")
        return bool(outcome.status == 200)

    def wait_ready(self, timeout: float) -> Steps[None]:
        """Wait until the service accepts requests. Raises TimeUpError."""
        end = time.monotonic() + timeout
        while not (yield from self.health("ready")):
            if time.monotonic() > end:
                raise TimeUpError(f"{self._options.where}: not ready after {timeout:g} s")
            yield Pause(READY_PAUSE)

    def _read(self, shape: TypeAdapter[T], method: str, path: str, content: bytes = b"") -> Steps[T]:
        """The answer to a request that has the client's timeout."""
        budget, request_id = Budget.of(self._options.timeout, None, self._options.margin), self._request_id()
        answer = yield from self._answered(method, path, budget, request_id, lambda: content, len(content))
        return _parsed(shape, answer, request_id)

    def _answered(
        self, method: str, path: str, budget: Budget, request_id: str, content: Callable[[], bytes], size: int
    ) -> Steps[Answer]:
        """Send a request until it is answered or finally refused, or there is no time for another attempt."""
        options = self._options
        for attempt in range(options.retries + 1):
            packed = yield from _perform(lambda: compressed(content(), options.compression, options.compress_from), size)
            outcome = yield self._send(method, path, budget, request_id, *packed)
            if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
                return outcome
            again, error = _problem(outcome, budget, request_id, options.where)
            seconds = pause(attempt, getattr(error, "retry_after", None))
            if not again or attempt == options.retries or seconds >= budget.retry_left:
                raise error
            yield Pause(seconds)
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self,
        method: str,
        path: str,
        budget: Budget,
        request_id: str,
        content: bytes = b"",
        extra: Mapping[str, str] | None = None,
    ) -> Send:
        """One request, sent once."""
        headers = {"user-agent": f"keyblock/{__version__}", REQUEST_ID: request_id, **(extra or {})}
        if content:
            headers["content-type"] = "application/x-ndjson" if method == "PUT" else "application/json"
        if self._options.api_key:
            headers["authorization"] = f"Bearer {self._options.api_key}"
        return Send(method, self._options.url.rstrip("/") + path, content, headers | self._headers, budget)

    def _request_id(self) -> str:
        """The request id in the client's headers, or a new one."""
        return self._headers.get(REQUEST_ID) or uuid4().hex


def _perform(do: Callable[[], T], size: int) -> Steps[T]:
    """The result of `do`: called at once if the work is small, else as a separate step."""
    if size < LARGE:
        return do()
    done: T = yield Work(do)
    return done


def _problem(outcome: Answer | Failure, budget: Budget, request_id: str, where: str) -> tuple[bool, KeyBlockError]:
    """Whether to retry, and the exception to raise if not."""
    if isinstance(outcome, Answer):
        return outcome.status in AGAIN, _status_error(outcome, request_id)
    if outcome.late or budget.left <= 0:
        return outcome.again, TimeUpError(f"{where}: no answer in the time that the call had ({outcome.problem})", request_id)
    return outcome.again, UnreachableError(f"{where}: {outcome.problem}", request_id)


def _status_error(answer: Answer, request_id: str) -> KeyBlockError:
    """The exception for an answer that is not a success."""
    request_id = answer.headers.get(REQUEST_ID) or request_id
    if answer.status < 400:
        where = answer.headers.get("location")
        points = f" and points to {where}: give the client that URL" if where else ""
        return AnswerError(f"answers {answer.status}{points}", request_id)
    return read_error(answer.status, answer.content, request_id, read_retry_after(answer.headers.get("retry-after")))


def _ranking(answer: Answer, documents: list[Mapping[str, Any]], request_id: str) -> Ranking:
    """The ranking that an answer holds. Raises AnswerError."""
    request_id = answer.headers.get(REQUEST_ID) or request_id
    try:
        return read_ranking(_parsed(results.RERANK_ANSWER, answer, request_id), documents, request_id)
    except IndexError:
        raise AnswerError(f"the answer names a document that was not sent: there were {len(documents)}", request_id) from None


def _parsed(shape: TypeAdapter[T], answer: Answer, request_id: str) -> T:
    """The answer's body. Raises AnswerError if it has another shape."""
    try:
        return shape.validate_json(answer.content)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise AnswerError(
            f"not KeyBlock's answer ({where}: {first['msg']}); it begins {answer.content[:80]!r}",
            answer.headers.get(REQUEST_ID) or request_id,
        ) from None


def _number(name: str, value: object) -> float | None:
    """A number of any library's type. Raises TypeError."""
    if value is None:
        return None
    if type(value) is bool or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {shown(value)}")
    return float(value)


def _path(identity: str | int) -> str:
    """The path of a document; dots are escaped in an id of dots, which would mean another path."""
    name = quote(without_lone(str(identity)), safe="")
    if not name:
        raise ValueError("an id must have at least one character")
    return "/documents/" + (name.replace(".", "%2E") if name in (".", "..") else name)
