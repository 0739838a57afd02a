"""The asynchronous client."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread
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


class AsyncClient:
    """`Client` with coroutines: same methods, arguments and exceptions, in one event loop. Use it in an ``async with`` block."""

    def __init__(self, url: str = DEFAULT_URL, *, http: httpx.AsyncClient | None = None, **options: Unpack[ClientOptions]) -> None:
        self._options = Configuration(url=url, **options)
        self._calls = Calls(self._options)
        self._http = http or httpx.AsyncClient(limits=limits(self._options.max_connections))
        self._owns_http = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._owns_http:
            await self._http.aclose()

    async def rerank(self, query: str, documents: Iterable[Given | None] | Given, **options: Unpack[RerankOptions]) -> Ranking:
        """See Client."""
        return await self._run(self._calls.rerank(query, documents, options))

    async def put_documents(self, documents: Iterable[Line] | AsyncIterable[Line]) -> StoreReport:
        """See Client; the documents may come from an async iterator."""
        upload = Upload(documents)
        async for document in _each(documents):
            await self._run(self._calls.put(upload, upload.add(document)))
        return await self._run(self._calls.put(upload, upload.rest()))

    async def get_document(self, identity: str | int) -> StoredDocument:
        """See Client."""
        return await self._run(self._calls.get(identity))

    async def delete_document(self, identity: str | int) -> bool:
        """See Client."""
        return await self._run(self._calls.delete(identity))

    async def info(self) -> dict[str, Any]:
        """See Client."""
        return await self._run(self._calls.info())

    async def live(self) -> bool:
        """See Client."""
        return await self._run(self._calls.health("live"))

    async def ready(self) -> bool:
        """See Client."""
        return await self._run(self._calls.health("ready"))

    async def wait_ready(self, timeout: float = 60.0) -> None:
        """See Client."""
        await self._run(self._calls.wait_ready(timeout))

    async def _run(self, steps: Steps[T]) -> T:
        """Perform the steps of a call until it returns."""
        outcome: Any = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Send):
                outcome = await self._send(step)
            elif isinstance(step, Pause):
                await anyio.sleep(step.seconds)
                outcome = None
            else:
                outcome = await anyio.to_thread.run_sync(step.do)

    async def _send(self, step: Send) -> Answer | Failure:
        method, url, content, headers, budget = step
        extensions = {"timeout": Timeouts(budget)}
        try:
            with anyio.move_on_after(max(budget.left, 0)):
                response = await self._http.request(method, url, content=content or None, headers=headers, extensions=extensions)
                return Answer(response.status_code, response.headers, response.content)
        except httpx.RequestError as error:
            return failure(error)
        return Failure("it had not come in full", late=True)


async def _each(documents: Iterable[Line] | AsyncIterable[Line]) -> AsyncIterator[Line]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
