"""A ranking as objects, both for the client's answers and for an in-process Ranker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

MODEL, ORDER = "model", "order"  # `scored_by` of most results, and of all results of a fallback


@dataclass(frozen=True, slots=True)
class Block:
    """A key block: ``document[start:end]`` in code points.

    Attributes:
        score: the selector's score, or the logit of a model that read the block alone, as in a second look.
        text: the block's text; None if only the service has the document's text (return_documents brings it).
    """

    start: int
    end: int
    score: float
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """An answering span, ``text[start:end]`` in Unicode code points.

    Attributes:
        score: the probability that it answers, 0 to 1.
        text: the span's text, if the document's text is known.
    """

    start: int
    end: int
    score: float
    text: str | None = None


class Part(NamedTuple):
    """``text[start:end]`` of a document, in code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Context:
    """The part of a document to pass on.

    Attributes:
        text: its spans with the headings above them, in document order; an ellipsis between parts that are not adjacent.
        tokens: tokens of the text.
        parts: where each part stands in the document.
    """

    text: str
    tokens: int
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """One document's place.

    Attributes:
        index: the document's place in the request.
        relevance_score: 0 to 1, for comparing the documents of one query; a logit with `raw_scores`.
        id: the document's id, if it has one.
        text: the document's text as sent, or the stored text with return_documents.
        blocks: the blocks that the model read, best first; none without `return_blocks`.
        scored_by: what decided the place: "model"; "selector", by the blocks alone, since the pre-ranking skipped it or time was
            short; "order", the order given.
        selected_by: what chose the blocks that were read: "evidence", "model", or "position" if nothing stood out; None if the
            model read every block, or none.
        relevant_spans: the answering sentences, best first; none without `relevant_spans` in the request.
        context: the text to pass on; none without `prune`, or if nothing answers.
        fused_score: the value that orders the results in a fusion with the first stage; none without a fusion.
    """

    index: int
    relevance_score: float
    id: str | int | None = None
    title: str | None = None
    text: str | None = field(default=None, repr=False)
    blocks: tuple[Block, ...] = ()
    scored_by: str = MODEL
    selected_by: str | None = None
    relevant_spans: tuple[Span, ...] = ()
    context: Context | None = None
    fused_score: float | None = None


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What pruning saved, in tokens.

    Attributes:
        tokens: tokens of all contexts.
        tokens_of_documents: tokens of the documents of the results.
        saved: the difference.
        copies: sentences that are left out, since a context has them or near copies of them.
    """

    tokens: int
    tokens_of_documents: int
    saved: int
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Ranking(Sequence[Result]):
    """The answer to a query: a sequence of results, best first.

    Attributes:
        model: the name of the bundle that answered; empty if none did.
        degraded: whether the ranking is a cheaper one, for lack of time.
        warnings: requests that were not honoured, and work that time did not allow.
        total_tokens: tokens that the model read.
        timings_ms: milliseconds of each stage in the service, and their `total`.
        request_id: the id under which the service logs the request.
        min_score: the least score of a result, which `min_score` gave or chose; none without it in the request.
        below_min_score: number of results that were left out; none without `min_score` in the request.
        best_below_min_score: the best score among them, a probability.
        context: what pruning saved; none without `prune`.
        fallback: whether this is the order given, because the service could not be reached.
    """

    results: tuple[Result, ...]
    model: str = ""
    degraded: bool = False
    warnings: tuple[str, ...] = ()
    total_tokens: int = 0
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    request_id: str = ""
    fallback: bool = False
    min_score: float | None = None
    below_min_score: int | None = None
    best_below_min_score: float | None = None
    context: ContextSize | None = None

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Result, ...]: ...
    def __getitem__(self, index: int | slice) -> Result | tuple[Result, ...]:
        return self.results[index]
