"""The client's results: the answers of `keyblock.wire` as frozen objects, with the values that JSON omits.

Names, types and meanings are those of the wire, and mypy checks that. The objects add the text of each block, and the defaults of
fields that an answer only has if they differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from keyblock import wire
from keyblock.results import MODEL, ORDER, Block, Context, ContextSize, Part, Ranking, Result, Span

RERANK_ANSWER, STORED_ANSWER = TypeAdapter(wire.RerankAnswer), TypeAdapter(wire.StoredAnswer)
STORED_TEXT, DELETION = TypeAdapter(wire.StoredText), TypeAdapter(wire.Deletion)
ANY_OBJECT = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, slots=True)
class WrongDocument:
    """A document of a put that is not stored.

    Attributes:
        index: its place among the put documents, counted from 0.
        message: why it is not stored.
    """

    index: int
    message: str
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The outcome of a put.

    Attributes:
        stored: how many documents are stored.
        failed: how many are not.
        errors: the first of the failed documents that the service named.
        warnings: each warning once.
    """

    stored: int = 0
    failed: int = 0
    errors: tuple[WrongDocument, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as the service keeps it.

    Attributes:
        blocks: its number of blocks.
        tokens: its number of tokens.
        expires: when the service deletes it; None for never.
    """

    id: str
    text: str = field(repr=False)
    title: str | None
    blocks: int
    tokens: int
    expires: datetime | None


def read_ranking(answer: wire.RerankAnswer, documents: Sequence[Mapping[str, Any]], request_id: str) -> Ranking:
    """The answer as objects. Raises IndexError if it names a document that was not sent."""
    meta = answer["meta"]
    return Ranking(
        tuple(_result(result, documents[result["index"]]) for result in answer["results"]),
        model=answer["model"],
        degraded=meta["degraded"],
        warnings=tuple(meta["warnings"]),
        total_tokens=answer["usage"]["total_tokens"],
        timings_ms=meta["timings_ms"],
        request_id=request_id,
        min_score=meta.get("min_score"),
        below_min_score=meta.get("below_min_score"),
        best_below_min_score=meta.get("best_below_min_score"),
        context=ContextSize(**meta["context"]) if "context" in meta else None,
    )


def _context(result: wire.Result) -> Context | None:
    found = result.get("context")
    if found is None:
        return None
    return Context(found["text"], found["tokens"], tuple(Part(**part) for part in found["parts"]))


def _result(result: wire.Result, sent: Mapping[str, Any]) -> Result:
    back = result.get("document")
    text = sent.get("text") if back is None else back["text"]
    return Result(
        index=result["index"],
        relevance_score=result["relevance_score"],
        id=result.get("id"),
        title=sent.get("title") if back is None else back.get("title"),
        text=text,
        blocks=tuple(
            Block(b["start"], b["end"], b["score"], None if text is None else text[b["start"] : b["end"]])
            for b in result.get("blocks", ())
        ),
        scored_by=result.get("scored_by", MODEL),
        selected_by=result.get("selected_by"),
        relevant_spans=tuple(
            Span(s["start"], s["end"], s["score"], None if text is None else text[s["start"] : s["end"]])
            for s in result.get("relevant_spans", ())
        ),
        context=_context(result),
        fused_score=result.get("fused_score"),
    )


def in_order_given(documents: Sequence[Mapping[str, Any]], top_n: int, why: str, request_id: str) -> Ranking:
    """The fallback if the service is not available: the first stage's order, marked as such."""
    results = (
        Result(index, 0.0, document.get("id"), document.get("title"), document.get("text"), scored_by=ORDER)
        for index, document in enumerate(documents[: top_n or None])
    )
    return Ranking(tuple(results), degraded=True, warnings=(f"the order given: {why}",), request_id=request_id, fallback=True)


def read_stored(answer: wire.StoredText) -> StoredDocument:
    """A stored document as an object."""
    expires = answer.get("expires")
    return StoredDocument(
        id=answer["id"],
        text=answer["text"],
        title=answer.get("title"),
        blocks=answer["blocks"],
        tokens=answer["tokens"],
        expires=None if expires is None else datetime.fromtimestamp(expires, UTC),
    )
