"""The part that the frameworks' classes share: it sends texts and a query to a service, and reads the results from its answer.

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
    """A document that is kept.

    Attributes:
        number: its place among the given documents, from 0.
        score: from 0 to 1, for this query; a logit with `raw_scores`.
        text: its new text; None if the text does not change.
        metadata: plain values to add to its metadata: `relevance_score`; `scored_by` if that is not the model; if requested,
            `relevant_spans` and, for a pruned document, `context_tokens`, `context_parts` and `original_text`.
    """

    number: int
    score: float
    text: str | None
    metadata: dict[str, Any]


class Connection:
    """A connection to a service, opened on first use; a copy, pickled or not, opens a new one.

    Raises ValueError and TypeError for invalid options of a client.
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
        """A client that threads share; it is closed when this object is garbage-collected."""
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
    """How to query a service, and how to use its answer.

    Attributes:
        url: where the service listens.
        api_key: the API key, if the service needs one; no dump and no repr has it.
        top_n: the most documents that are kept; None for all.
        min_score: the probability that a document must reach to be kept, or "auto" for what the service's model recommends.
        relevant_spans: whether the metadata name the answering sentences; a mapping is sent unchanged, as in
            {"mode": "enabled", "max_spans": 3}, but enabled with `prune`, which goes by them.
        prune: whether to reduce a document's text to its answering parts. A document in which no sentence answers, or for which
            there is no room, is left out; a document that the model has not scored stays whole.
        keep_at_least: with `prune`, so many of the best documents stay even if nothing in them answers.
        max_context_tokens: the most tokens of all pruned texts together; only with `prune`.
        keep_original: whether the metadata of a pruned document have its original text.
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
    keep_at_least: int = Field(1, ge=0)
    max_context_tokens: int | None = Field(None, ge=1)
    keep_original: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    client: dict[str, Any] = Field(default_factory=dict, frozen=True, repr=False)

    _connection: Connection = PrivateAttr()
    _logged: set[str] = PrivateAttr(default_factory=set)

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
        """The documents that are kept, best first; without texts, no request is sent.

        Args:
            query: the query.
            texts: the documents' texts, in first-stage order.
            top_n: replaces the field for this call.

        Raises KeyBlockError, as `Client.rerank` does.
        """
        if not texts:
            return []
        return self._read(self._connection.client.rerank(query, texts, **self._request_options(top_n)), texts)

    async def ask_async(self, query: str, texts: Sequence[str], top_n: int | None = None) -> list[Found]:
        """`ask` as a coroutine."""
        if not texts:
            return []
        async with self._connection.awaited() as client:
            return self._read(await client.rerank(query, texts, **self._request_options(top_n)), texts)

    @property
    def _spans(self) -> dict[str, Any]:
        """The option of spans; empty if none are requested."""
        if isinstance(self.relevant_spans, dict):
            return self.relevant_spans
        return {"mode": "enabled"} if self.relevant_spans else {}

    def _request_options(self, top_n: int | None) -> RerankOptions:
        """The options of a request: those that differ from the service's defaults."""
        given = {
            "top_n": self.top_n if top_n is None else top_n,
            "min_score": self.min_score,
            "relevant_spans": {**self._spans, "mode": "enabled"} if self.prune else self._spans or None,  # they tell what answers
            "prune": self.prune or None,
            "max_context_tokens": self.max_context_tokens,
        }
        more = {name: value for name, value in given.items() if value is not None}
        return cast(RerankOptions, {"return_blocks": False, **self.options, **more})

    def _read(self, ranking: Ranking, texts: Sequence[str]) -> list[Found]:
        for warning in ranking.warnings:
            self._log_warning(warning)
        kept = [result for place, result in enumerate(ranking) if self._keeps(result, place)]
        if left_out := len(ranking) - len(kept):
            log.info("prune: %d of %d documents are left out, since no sentence of theirs answers or fits", left_out, len(ranking))
        return [self._ranked_text(result, texts[result.index]) for result in kept]

    def _keeps(self, result: Result, place: int) -> bool:
        if not self.prune or result.scored_by != MODEL:
            return True
        return result.context is not None and (bool(result.relevant_spans) or place < self.keep_at_least)

    def _log_warning(self, warning: str) -> None:
        """Log a warning of the service: the first of each kind as a warning, the rest at debug level."""
        kind = warning.partition(":")[0]
        log.log(logging.DEBUG if kind in self._logged else logging.WARNING, "%s", warning)
        self._logged.add(kind)

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
