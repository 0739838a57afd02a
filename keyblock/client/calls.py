"""Every call of the client, all but its input and output: generators that say what is to be sent, and are told what came of it.

`Client` and `AsyncClient` drive them, each in its own way of waiting, and share everything else.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from keyblock import __version__
from keyblock.client import results
from keyblock.client.bodies import COMPRESS, Compression, Given, as_documents, compressed, rerank_body
from keyblock.client.errors import (
    AnswerError,
    KeyBlockError,
    TimeUpError,
    UnavailableError,
    UnreachableError,
    read_told,
)
from keyblock.client.results import Ranking, StoredDocument, in_order_given, read_ranking, read_stored
from keyblock.client.retries import AGAIN, Budget, pause, read_retry_after
from keyblock.client.uploads import Batch, Outcome, nothing_stored

REQUEST_ID = "x-request-id"
DEFAULT_URL = "http://127.0.0.1:8000"
HEALTH_SECONDS = 5.0  # a service that does not say by then that it is well is not
LARGE = 1 << 18  # characters or bytes of what is better written or read beside an event loop

T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """How a client behaves; each has a default.

    Attributes:
        api_key: sent as ``Authorization: Bearer``.
        timeout: seconds that a call may take, its retries included (60).
        margin: seconds that a call with `deadline_ms` may take beyond it, for the way there and back (1).
        retries: how often a call is sent again after a lost connection, 429, 502 or 503, while its time lasts (3).
        headers: sent with every request.
        compression: of bodies: "gzip" or "zstd"; for slow networks (None).
        compress_from: bytes from which on a body is compressed (32 KiB).
        max_connections: that are open at once; they are kept and used again (100).
    """

    api_key: str | None
    timeout: float
    margin: float
    retries: int
    headers: Mapping[str, str]
    compression: Compression | None
    compress_from: int
    max_connections: int


class RerankOptions(TypedDict, total=False):
    """What a ranking may be asked for: the options of POST /rerank by their names (docs/api.md), and two of the client's own.

    Attributes:
        return_blocks: whether results have blocks (True).
        timeout: seconds for this call, in place of the client's.
        fallback: give the order given, marked as such, when there is no answer in time, instead of an exception (False).
    """

    model: str | None
    top_n: int | None
    return_documents: bool | None
    return_blocks: bool | None
    raw_scores: bool | None
    max_tokens_per_doc: float | None
    deadline_ms: float | None
    priority: int | None
    strict: bool | None
    timeout: float | None
    fallback: bool


OWN = {"timeout", "fallback"}


class Send(NamedTuple):
    """A request to be sent now; what is to be told is an Answer or a Failure."""

    method: str
    url: str
    content: bytes
    headers: Mapping[str, str]
    budget: Budget


class Pause(NamedTuple):
    """Seconds to wait."""

    seconds: float


class Work(NamedTuple):
    """Work for a processor; what is to be told is what it returns. An event loop has it done in a thread."""

    do: Callable[[], Any]


class Answer(NamedTuple):
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Failure(NamedTuple):
    """Why there is no answer.

    Attributes:
        again: whether there may be one another time.
        late: whether there was no more time for it.
    """

    problem: str
    again: bool = True
    late: bool = False


Steps = Generator[Send | Pause | Work, Any, T]


@dataclass(frozen=True, kw_only=True)
class Calls:
    """The calls of one client; its fields are those of ClientOptions, and the URL.

    Raises ValueError for what no client can be made of.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    margin: float = 1.0
    retries: int = 3
    headers: Mapping[str, str] | None = None
    compression: Compression | None = None
    compress_from: int = 32 * 2**10
    max_connections: int = 100

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"url must be like {DEFAULT_URL}, not {self.url!r}")
        if self.compression is not None and self.compression not in COMPRESS:
            raise ValueError(f"compression must be one of {', '.join(COMPRESS)}, or None, not {self.compression!r}")
        for name, least in {"timeout": 0.0, "margin": 0.0, "retries": 0, "max_connections": 1}.items():
            if not getattr(self, name) >= least:  # nor NaN
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name, value in {"api_key": self.api_key or "", **(self.headers or {})}.items():  # httpx would quote the value
            if not (value.isascii() and value.replace("\t", " ").isprintable()):
                raise ValueError(f"{name} has a character that no header can carry, such as the end of a line")

    @property
    def where(self) -> str:
        """The URL for messages: without a password."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    def rerank(self, query: str, documents: Iterable[Given] | Given, given: RerankOptions) -> Steps[Ranking]:
        """Ask for a ranking, with as much of the deadline as is left each time."""
        if unknown := given.keys() - RerankOptions.__annotations__.keys():
            raise TypeError(f"rerank() has no option {min(unknown)!r}; there are {', '.join(RerankOptions.__annotations__)}")
        options = {"return_blocks": True, **{name: value for name, value in given.items() if name not in OWN}}
        deadline, timeout = given.get("deadline_ms"), given.get("timeout")
        seconds = None if deadline is None else deadline / 1000
        budget = Budget.of(self.timeout if timeout is None else timeout, seconds, self.margin)
        candidates = as_documents(documents)
        body = yield from _beside(lambda: rerank_body(query, candidates), _size(candidates))

        def content() -> bytes:
            left = {} if seconds is None else {"deadline_ms": round(min(seconds, max(budget.retry_left, 0)) * 1000, 3)}
            return body({**options, **left})

        request_id = self._request_id()
        try:
            answer = yield from self._answered("POST", "/rerank", budget, request_id, content, _size(candidates))
        except (UnavailableError, UnreachableError, TimeUpError) as error:
            if not given.get("fallback"):
                raise
            return in_order_given(candidates, given.get("top_n") or 0, str(error), request_id)
        return (yield from _beside(lambda: _ranking(answer, candidates, request_id), len(answer.content)))

    def put(self, batch: Batch) -> Steps[Outcome]:
        """Store a batch of documents; where none of it can be, that is an outcome too."""
        budget, request_id = self._budget(), self._request_id()
        try:
            answer = yield from self._answered("PUT", "/documents", budget, request_id, lambda: batch.content, len(batch.content))
        except KeyBlockError as error:
            return nothing_stored(error)
        return Outcome.read(_read(results.STORED_ANSWER, answer, request_id))

    def get(self, identity: str | int) -> Steps[StoredDocument]:
        """A stored document."""
        request_id = self._request_id()
        answer = yield from self._answered("GET", _path(identity), self._budget(), request_id)
        return read_stored(_read(results.STORED_TEXT, answer, request_id))

    def delete(self, identity: str | int) -> Steps[bool]:
        """Forget a stored document."""
        request_id = self._request_id()
        answer = yield from self._answered("DELETE", _path(identity), self._budget(), request_id)
        return bool(_read(results.DELETION, answer, request_id)["deleted"])

    def info(self) -> Steps[dict[str, Any]]:
        """What is served."""
        request_id = self._request_id()
        answer = yield from self._answered("GET", "/info", self._budget(), request_id)
        return _read(results.ANY_OBJECT, answer, request_id)

    def health(self, which: str) -> Steps[bool]:
        """Whether the service says that it lives, or is ready; asked once. Raises NotFoundError and AccessError."""
        budget = Budget.of(min(self.timeout, HEALTH_SECONDS), None, self.margin)
        outcome = yield self._send("GET", f"/health/{which}", budget, self._request_id())
        if isinstance(outcome, Failure):
            return False
        if outcome.status in (401, 403, 404):
            raise _status_error(outcome, "")
        return bool(outcome.status == 200)

    def _answered(
        self,
        method: str,
        path: str,
        budget: Budget,
        request_id: str,
        content: Callable[[], bytes] = bytes,
        size: int = 0,
    ) -> Steps[Answer]:
        """Send a request until it is answered, refused for good, or there is no time for another attempt."""
        for attempt in range(self.retries + 1):
            packed = yield from _beside(lambda: compressed(content(), self.compression, self.compress_from), size)
            outcome = yield self._send(method, path, budget, request_id, *packed)
            if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
                return outcome
            again, error = _problem(outcome, budget, request_id, f"{self.where}: ")
            seconds = pause(attempt, getattr(error, "retry_after", None))
            if not again or attempt == self.retries or seconds >= budget.retry_left:
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
        headers = {"user-agent": f"keyblock/{__version__}", REQUEST_ID: request_id, **(extra or {})}
        if content:
            headers["content-type"] = "application/x-ndjson" if method == "PUT" else "application/json"
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        given = {name.lower(): value for name, value in (self.headers or {}).items()}
        return Send(method, self.url.rstrip("/") + path, content, headers | given, budget)

    def _request_id(self) -> str:
        given = {name.lower(): value for name, value in (self.headers or {}).items()}
        return given.get(REQUEST_ID) or uuid4().hex

    def _budget(self) -> Budget:
        return Budget.of(self.timeout, None, self.margin)


def _beside(do: Callable[[], T], size: int) -> Steps[T]:
    """The work done: at once where it is small."""
    if size < LARGE:
        return do()
    done: T = yield Work(do)
    return done


def _size(documents: Iterable[Mapping[str, Any]]) -> int:
    """Characters of the texts, which are what a body is large by."""
    return sum(len(text) for document in documents if isinstance(text := document.get("text"), str))


def _path(identity: str | int) -> str:
    """Of a document; an id of dots would mean another path."""
    name = quote(str(identity), safe="", errors="replace")
    if not name:
        raise ValueError("an id must have at least one character")
    return "/documents/" + (name.replace(".", "%2E") if name in (".", "..") else name)


def _problem(outcome: Answer | Failure, budget: Budget, request_id: str, where: str) -> tuple[bool, KeyBlockError]:
    """Whether to ask again, and what to raise if not."""
    if isinstance(outcome, Answer):
        return outcome.status in AGAIN, _status_error(outcome, request_id)
    error: KeyBlockError = UnreachableError(f"{where}{outcome.problem}")
    if outcome.late or budget.left <= 0:
        error = TimeUpError(f"{where}no answer in the time that the call had ({outcome.problem})")
    error.request_id = request_id
    return outcome.again, error


def _status_error(answer: Answer, request_id: str) -> KeyBlockError:
    request_id = answer.headers.get(REQUEST_ID) or request_id
    if answer.status < 400:
        where = answer.headers.get("location")
        error = AnswerError(f"answers {answer.status}" + (f" and points to {where}: give the client that URL" if where else ""))
        error.request_id = request_id
        return error
    retry_after = read_retry_after(answer.headers.get("retry-after"))
    return read_told(answer.status, answer.content, request_id, retry_after).error()


def _ranking(answer: Answer, documents: list[Mapping[str, Any]], request_id: str) -> Ranking:
    request_id = answer.headers.get(REQUEST_ID) or request_id
    try:
        return read_ranking(_read(results.RERANK_ANSWER, answer, request_id), documents, request_id)
    except IndexError:
        error = AnswerError(f"the answer names a document that was not sent: there were {len(documents)}")
        error.request_id = request_id
        raise error from None


def _read(shape: TypeAdapter[T], answer: Answer, request_id: str) -> T:
    """The answer's body. Raises AnswerError where it has another shape."""
    try:
        return shape.validate_json(answer.content)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        error = AnswerError(f"not KeyBlock's answer ({where}: {first['msg']}); it begins {answer.content[:80]!r}")
        error.request_id = answer.headers.get(REQUEST_ID) or request_id
        raise error from None
