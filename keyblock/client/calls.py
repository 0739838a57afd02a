"""Every call of the client without input and output: generators that yield steps and receive their outcomes.

`Client` and `AsyncClient` perform the steps, one blocking and one awaiting, and share everything else.
"""

from collections.abc import Iterable, Mapping
from numbers import Real
from reprlib import repr as shown
from typing import Any
from urllib.parse import quote

from keyblock.client import results
from keyblock.client.answers import ranking_in, read, status_error
from keyblock.client.bodies import Given, as_documents, rerank_body
from keyblock.client.errors import KeyBlockError, TimeUpError, UnavailableError, UnreachableError
from keyblock.client.options import OWN, Configuration, RerankOptions
from keyblock.client.results import StoredDocument, in_order_given, read_stored
from keyblock.client.retries import Budget
from keyblock.client.sending import Sender
from keyblock.client.steps import Failure, Steps, perform
from keyblock.client.uploads import Batch, Outcome, nothing_stored
from keyblock.results import Ranking

HEALTH_SECONDS = 5.0  # a service that has not answered by then is not healthy


class Calls:
    """The calls of one client."""

    def __init__(self, options: Configuration) -> None:
        self._options = options
        self._sender = Sender(options)

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
        body = yield from perform(lambda: rerank_body(query, candidates), _size(candidates))

        def content() -> bytes:
            left = {} if seconds is None else {"deadline_ms": round(min(seconds, max(budget.retry_left, 0)) * 1000, 3)}
            return body({**options, **left})

        request_id = self._sender.request_id()
        try:
            answer = yield from self._sender.answered("POST", "/rerank", budget, request_id, content, _size(candidates))
        except (UnavailableError, UnreachableError, TimeUpError) as error:
            if not given.get("fallback"):
                raise
            return in_order_given(candidates, given.get("top_n") or 0, str(error), request_id)
        return (yield from perform(lambda: ranking_in(answer, candidates, request_id), len(answer.content)))

    def put(self, batch: Batch) -> Steps[Outcome]:
        """Store a batch of documents; it is an outcome, not an error, if none of them can be stored."""
        budget, request_id = self._budget(), self._sender.request_id()
        try:
            answer = yield from self._sender.answered(
                "PUT", "/documents", budget, request_id, lambda: batch.content, len(batch.content)
            )
        except KeyBlockError as error:
            return nothing_stored(error)
        return Outcome.read(read(results.STORED_ANSWER, answer, request_id))

    def get(self, identity: str | int) -> Steps[StoredDocument]:
        """A stored document."""
        request_id = self._sender.request_id()
        answer = yield from self._sender.answered("GET", _path(identity), self._budget(), request_id)
        return read_stored(read(results.STORED_TEXT, answer, request_id))

    def delete(self, identity: str | int) -> Steps[bool]:
        """Delete a stored document."""
        request_id = self._sender.request_id()
        answer = yield from self._sender.answered("DELETE", _path(identity), self._budget(), request_id)
        return bool(read(results.DELETION, answer, request_id)["deleted"])

    def info(self) -> Steps[dict[str, Any]]:
        """The answer of GET /info."""
        request_id = self._sender.request_id()
        answer = yield from self._sender.answered("GET", "/info", self._budget(), request_id)
        return read(results.ANY_OBJECT, answer, request_id)

    def health(self, which: str) -> Steps[bool]:
        """Whether the service reports that it is live, or ready; sent once. Raises NotFoundError and AccessError."""
        budget = Budget.of(min(self._options.timeout, HEALTH_SECONDS), None, self._options.margin)
        outcome = yield self._sender.send("GET", f"/health/{which}", budget, self._sender.request_id())
        if isinstance(outcome, Failure):
            return False
        if outcome.status in (401, 403, 404):
            raise status_error(outcome, "")
        return bool(outcome.status == 200)

    def _budget(self) -> Budget:
        return Budget.of(self._options.timeout, None, self._options.margin)


def _size(documents: Iterable[Mapping[str, Any]]) -> int:
    """Characters of the texts, which make up most of a body."""
    return sum(len(text) for document in documents if isinstance(text := document.get("text"), str))


def _number(name: str, value: object) -> float | None:
    """A number of any library's type. Raises TypeError."""
    if value is None:
        return None
    if type(value) is bool or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {shown(value)}")
    return float(value)


def _path(identity: str | int) -> str:
    """The path of a document; dots are escaped in an id of dots, which would mean another path."""
    name = quote(str(identity), safe="", errors="replace")
    if not name:
        raise ValueError("an id must have at least one character")
    return "/documents/" + (name.replace(".", "%2E") if name in (".", "..") else name)
