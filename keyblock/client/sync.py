"""The blocking client."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from typing_extensions import Unpack

from keyblock.client.bodies import Given
from keyblock.client.calls import Answer, Calls, Failure, Pause, Send, Steps
from keyblock.client.options import DEFAULT_URL, ClientOptions, Configuration, RerankOptions
from keyblock.client.results import StoredDocument, StoreReport
from keyblock.client.transport import Timeouts, failure, limits
from keyblock.client.uploads import Line, Upload
from keyblock.results import Ranking

T = TypeVar("T")


class Client:
    """A client of a running service; threads may share it. Close it, or use it in a ``with`` block.

    Args:
        url: where the service listens, including a path before /rerank if it has one.
        http: an httpx client of your own, for proxies, certificates or HTTP/2; closing this client does not close it.
        options: see ClientOptions.
    """

    def __init__(self, url: str = DEFAULT_URL, *, http: httpx.Client | None = None, **options: Unpack[ClientOptions]) -> None:
        self._options = Configuration(url=url, **options)
        self._calls = Calls(self._options)
        self._http = http or httpx.Client(limits=limits(self._options.max_connections))
        self._owns_http = http is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._owns_http:
            self._http.close()

    def rerank(self, query: str, documents: Iterable[Given | None] | Given, **options: Unpack[RerankOptions]) -> Ranking:
        """Rank documents for a query.

        Args:
            query: the query.
            documents: in first-stage order: texts, or mappings (or `Document`) with text, title and id; an id alone means the
                stored document.
            options: see RerankOptions.

        Raises KeyBlockError: InvalidRequestError, AccessError, AnswerError; without `fallback` also UnavailableError,
        UnreachableError, TimeUpError. Raises TypeError for a document of a wrong type.
        """
        return self._run(self._calls.rerank(query, documents, options))

    def put_documents(self, documents: Iterable[Line]) -> StoreReport:
        """Store documents (mappings with id, text, title and expires_in), any number of them, a few megabytes at a time.

        The others are stored even if one is wrong: see the report. Each request has the client's timeout. Raises KeyBlockError,
        whose `stored` counts the documents that were stored before the failed request.
        """
        upload = Upload(documents)
        for document in documents:
            self._run(self._calls.put(upload, upload.add(document)))
        return self._run(self._calls.put(upload, upload.rest()))

    def get_document(self, identity: str | int) -> StoredDocument:
        """A stored document. Raises NotFoundError for an unknown id, and other KeyBlockErrors."""
        return self._run(self._calls.get(identity))

    def delete_document(self, identity: str | int) -> bool:
        """Delete a stored document; returns whether it existed. Raises KeyBlockError."""
        return self._run(self._calls.delete(identity))

    def info(self) -> dict[str, Any]:
        """The service's model, pipeline, provider and limits. Raises KeyBlockError."""
        return self._run(self._calls.info())

    def live(self) -> bool:
        """Whether the service is live; False if there is no answer."""
        return self._run(self._calls.health("live"))

    def ready(self) -> bool:
        """Whether the service accepts requests; False if there is no answer."""
        return self._run(self._calls.health("ready"))

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until the service accepts requests. Raises TimeUpError after `timeout` seconds."""
        self._run(self._calls.wait_ready(timeout))

    def _run(self, steps: Steps[T]) -> T:
        """Perform the steps of a call until it returns."""
        outcome: Any = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Send):
                outcome = self._send(step)
            elif isinstance(step, Pause):
                time.sleep(step.seconds)
                outcome = None
            else:
                outcome = step.do()

    def _send(self, step: Send) -> Answer | Failure:
        method, url, content, headers, budget = step
        extensions = {"timeout": Timeouts(budget)}
        try:
            with self._http.stream(method, url, content=content or None, headers=headers, extensions=extensions) as response:
                received = bytearray()
                for piece in response.iter_bytes():
                    received += piece
                    if budget.left <= 0:
                        return Failure("it was still coming", late=True)
                return Answer(response.status_code, response.headers, bytes(received))
        except httpx.RequestError as error:
            return failure(error)
