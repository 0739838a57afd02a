"""A client for the service. Unlike other SDKs it has blocks, deadlines, documents by id, and what decided each place.

>>> with Client("http://127.0.0.1:8000") as client:                                               # doctest: +SKIP
...     ranking = client.rerank("Which river flows through Vienna?", texts, top_n=3, deadline_ms=200)
...     print(ranking[0].relevance_score, ranking[0].blocks[0].text)

`AsyncClient` has the same methods as coroutines. Needs the extra `client` (httpx).
"""

from keyblock.client.aio import AsyncClient
from keyblock.client.errors import (
    AccessError,
    AnswerError,
    InvalidRequestError,
    KeyBlockError,
    NotFoundError,
    StatusError,
    TimeUpError,
    UnavailableError,
    UnreachableError,
)
from keyblock.client.options import ClientOptions, RerankOptions
from keyblock.client.results import StoredDocument, StoreReport, WrongDocument
from keyblock.client.sync import Client
from keyblock.results import Block, Ranking, Result
from keyblock.wire import Document, DocumentLine

__all__ = [
    "AccessError",
    "AnswerError",
    "AsyncClient",
    "Block",
    "Client",
    "ClientOptions",
    "Document",
    "DocumentLine",
    "InvalidRequestError",
    "KeyBlockError",
    "NotFoundError",
    "Ranking",
    "RerankOptions",
    "Result",
    "StatusError",
    "StoreReport",
    "StoredDocument",
    "TimeUpError",
    "UnavailableError",
    "UnreachableError",
    "WrongDocument",
]
