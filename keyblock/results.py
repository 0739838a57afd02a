"""A ranking as objects: what the client reads from an answer, and what a Ranker in the process gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

MODEL, ORDER = "model", "order"  # what `scored_by` says of most results, and of all that a fallback gives


@dataclass(frozen=True, slots=True)
class Block:
    """A key block: ``document[start:end]`` in code points.

    Attributes:
        score: the selector's.
        text: what stands there; None where only the service has the document's text (return_documents brings it).
    """

    start: int
    end: int
    score: float
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A span that answers, ``text[start:end]`` in Unicode code points.

    Attributes:
        score: the probability that it answers, 0 to 1.
        text: the span itself, where the document's text is known.
    """

    start: int
    end: int
    score: float
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What to pass on of a document.

    Attributes:
        text: its spans with the headings above them, in document order.
        tokens: of the text.
        parts: where its parts stand in the document, start and end in code points.
    """

    text: str
    tokens: int
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """One document's place.

    Attributes:
        index: the document's place in the request.
        relevance_score: 0 to 1, for comparing the documents of one query; a logit with `raw_scores`.
        id: the document's, where it has one.
        text: the document's, as it was sent, or as it is stored where return_documents was asked for.
        blocks: what the model read of it, best first; none without `return_blocks`.
        scored_by: what the place comes from: "model"; "selector", by its blocks alone, which promise too little or had no time;
            "order", as given.
        selected_by: what chose the blocks that were read: "evidence", "model", or "position" where nothing stood out; None
            where every block was read, or none.
        relevant_spans: the sentences that answer, best first; none without `relevant_spans` in the request.
        context: what to pass on; none without `prune`, or where nothing answers.
        fused_score: what results are ordered by where the first stage has a say; none without a fusion.
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
        tokens: of all contexts.
        tokens_of_documents: that the documents of the results have.
        saved: the difference.
    """

    tokens: int
    tokens_of_documents: int
    saved: int


@dataclass(frozen=True, slots=True)
class Ranking(Sequence[Result]):
    """The answer to a query: a sequence of results, best first.

    Attributes:
        model: the name of the bundle that answered; empty where none did.
        degraded: whether a cheaper ranking than the usual was given, for want of time.
        warnings: what was asked for and not done, and what time did not do for.
        total_tokens: that the model was fed.
        timings_ms: by stage, and their `total`, in the service.
        request_id: under which the service logs the request.
        below_min_score: results that were left out; none where no `min_score` was asked for.
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
    below_min_score: int | None = None
    context: ContextSize | None = None

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Result, ...]: ...
    def __getitem__(self, index: int | slice) -> Result | tuple[Result, ...]:
        return self.results[index]
