"""What the classes for the frameworks share: texts and a query go to a service, and its answer says what becomes of each document.

>>> asking = Asking(url="http://127.0.0.1:8000", prune=True, max_context_tokens=300)               # doctest: +SKIP
>>> [(found.number, found.score, found.text) for found in asking.ask("When may the tenant leave?", texts)]  # doctest: +SKIP
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import cache
from threading import Lock
from typing import Any, Literal, NamedTuple, Self, cast
from weakref import finalize

import httpx
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator, model_validator

from keyblock.client import AsyncClient, Client
from keyblock.client.options import DEFAULT_URL, ClientOptions, Configuration, RerankOptions
from keyblock.results import MODEL, Ranking, Result

log = logging.getLogger(__name__)
tls = cache(httpx.create_ssl_context)  # reading the certificates takes longer than a small request


class Found(NamedTuple):
    """A document that stays.

    Attributes:
        number: its place among those given, from 0.
        score: from 0 to 1, for this query; a logit with `raw_scores`.
        text: what takes the place of its text; None where that stays as it is.
        metadata: what to add to its metadata, as plain values: `relevance_score`; `scored_by` where it is not the model;
            `relevant_spans` and, of a pruned one, `context_tokens`, `context_parts` and `original_text` where they were asked for.
    """

    number: int
    score: float
    text: str | None
    metadata: dict[str, Any]


class Connection:
    """The way to a service, opened when it is first used; a copy, or what comes out of a pickle, opens one of its own.

    Raises ValueError and TypeError for what no client can be set to.
    """

    def __init__(self, url: str, options: ClientOptions) -> None:
        Configuration(url=url, **options)
        self._url, self._options = url, options
        self._lock = Lock()
        self._client: Client | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Connection, (self._url, self._options)

    @property
    def client(self) -> Client:
        """A client that is kept, shared by threads, and closed when this is gone."""
        with self._lock:
            if self._client is None:
                self._client = Client(self._url, **self._options)
                finalize(self, self._client.close)
            return self._client

    @asynccontextmanager
    async def awaited(self) -> AsyncIterator[AsyncClient]:
        """A client for one call: the next may come from another event loop."""
        async with httpx.AsyncClient(verify=tls()) as http:
            yield AsyncClient(self._url, http=http, **self._options)


class Asking(BaseModel):
    """How a service is asked, and what is made of its answer.

    Attributes:
        url: where the service listens.
        api_key: of a service that wants one; it is in no dump and no repr.
        top_n: how many documents stay at most; None for all.
        min_score: the probability that a document must reach to stay, or "auto" for what the service's model recommends.
        relevant_spans: whether the metadata name the sentences that answer; a mapping is sent as it is, as in
            {"mode": "enabled", "max_spans": 3}.
        prune: whether a document's text becomes what of it answers. One of which nothing does, or for which there is no room,
            is left out; one that the model has not scored stays whole.
        max_context_tokens: of all pruned texts together; of use with `prune` only.
        keep_original: whether a pruned document has its text as it was in its metadata.
        options: more options of POST /rerank by their names (`keyblock.client.RerankOptions`).
        client: how the client behaves (`keyblock.client.ClientOptions`).
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str = Field(DEFAULT_URL, frozen=True)
    api_key: SecretStr | None = Field(None, frozen=True, exclude=True)
    top_n: int | None = Field(None, ge=1)
    min_score: float | Literal["auto"] | None = None
    relevant_spans: bool | dict[str, Any] = False
    prune: bool = False
    max_context_tokens: int | None = Field(None, ge=1)
    keep_original: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    client: dict[str, Any] = Field(default_factory=dict, frozen=True, repr=False)

    _connection: Connection = PrivateAttr()
    _said: set[str] = PrivateAttr(default_factory=set)

    @field_validator("options")
    @classmethod
    def _known(cls, options: dict[str, Any]) -> dict[str, Any]:
        if unknown := options.keys() - (RerankOptions.__annotations__.keys() - cls.model_fields.keys()):
            raise ValueError(f"{min(unknown)!r} is no option of a ranking, or has a field of its own")
        return options

    @model_validator(mode="after")
    def _connect(self) -> Self:
        if self.max_context_tokens is not None and not self.prune:
            raise ValueError("max_context_tokens bounds what pruning leaves: say prune=True")
        key = None if self.api_key is None else self.api_key.get_secret_value()
        try:
            self._connection = Connection(self.url, cast(ClientOptions, {"api_key": key, **self.client}))
        except TypeError as error:
            raise ValueError(str(error)) from error
        return self

    def ask(self, query: str, texts: Sequence[str], top_n: int | None = None) -> list[Found]:
        """The documents that stay, best first; of no texts none, and nobody is asked.

        Args:
            query: what is looked for.
            texts: of the documents, in first-stage order.
            top_n: in place of the field, for this time.

        Raises KeyBlockError, as `Client.rerank` does.
        """
        if not texts:
            return []
        return self._read(self._connection.client.rerank(query, texts, **self._request_options(top_n)), texts)

    async def ask_async(self, query: str, texts: Sequence[str], top_n: int | None = None) -> list[Found]:
        """`ask`, to await."""
        if not texts:
            return []
        async with self._connection.awaited() as client:
            return self._read(await client.rerank(query, texts, **self._request_options(top_n)), texts)

    @property
    def _spans(self) -> dict[str, Any]:
        """What is asked of spans; empty where nothing is."""
        if isinstance(self.relevant_spans, dict):
            return self.relevant_spans
        return {"mode": "enabled"} if self.relevant_spans else {}

    def _request_options(self, top_n: int | None) -> RerankOptions:
        """The options of a request: those that say more than the service does by itself."""
        given = {
            "top_n": self.top_n if top_n is None else top_n,
            "min_score": self.min_score,
            "relevant_spans": self._spans or None,
            "prune": self.prune or None,
            "max_context_tokens": self.max_context_tokens,
        }
        more = {name: value for name, value in given.items() if value is not None}
        return cast(RerankOptions, {"return_blocks": False, **self.options, **more})

    def _read(self, ranking: Ranking, texts: Sequence[str]) -> list[Found]:
        for warning in ranking.warnings:
            self._say(warning)
        stay = (result for result in ranking if not self.prune or result.context or result.scored_by != MODEL)
        return [self._ranked_text(result, texts[result.index]) for result in stay]

    def _say(self, warning: str) -> None:
        """Log a warning of the service: the first of each kind as one, the others for those who look for them."""
        kind = warning.partition(":")[0]
        log.log(logging.DEBUG if kind in self._said else logging.WARNING, "%s", warning)
        self._said.add(kind)

    def _ranked_text(self, result: Result, text: str) -> Found:
        metadata: dict[str, Any] = {"relevance_score": result.relevance_score}
        if result.scored_by != MODEL:
            metadata["scored_by"] = result.scored_by
        if self._spans.get("mode") == "enabled":
            metadata["relevant_spans"] = [asdict(span) for span in result.relevant_spans]
        if result.context is None:
            return Found(result.index, result.relevance_score, None, metadata)
        metadata["context_tokens"] = result.context.tokens
        metadata["context_parts"] = [list(part) for part in result.context.parts]
        if self.keep_original:
            metadata["original_text"] = text
        return Found(result.index, result.relevance_score, result.context.text, metadata)
