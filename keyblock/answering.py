"""The parts of an answer in addition to its order: answering spans, pruned contexts, and the cut at a minimum score."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.cascade import RESULTS
from keyblock.description import PipelineConfig
from keyblock.evidence import sigmoid
from keyblock.first_stage import FirstStage
from keyblock.order import Candidate, Ranking, ScoredBy
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedQuery
from keyblock.pruning import Context, Pruner
from keyblock.spans import THRESHOLD, Span, scored_sentences, spans

AUTO = "auto"


class AnswerOptions(NamedTuple):
    """What a call requests in addition to the order.

    Attributes:
        spans: whether results name the spans that answer.
        threshold: the probability that a span must reach.
        most: the most spans of one document; none: no limit.
        min_score: the probability that a result must reach; AUTO for what the bundle recommends, none for no bound.
        prune: whether results have a context.
        tokens: the most tokens of all contexts together; none: no limit.
        top_n: the most results, after `min_score` is applied; 0 for all.
    """

    spans: bool = False
    threshold: float = THRESHOLD
    most: int | None = None
    min_score: float | str | None = None
    prune: bool = False
    tokens: int | None = None
    top_n: int = 0

    @property
    def reads_texts(self) -> bool:
        """Whether the documents' texts are needed to answer."""
        return self.spans or self.prune

    def results(self, first_stage: FirstStage, config: PipelineConfig) -> int | None:
        """How many results the call is about, RESULTS if it does not say; None if the model has to judge each document.

        The model has to if answers depend on its score alone, or if a fusion with the first stage may lift documents that promise
        little.
        """
        if first_stage.fusion(config.first_stage) is not None:
            return None
        judged = self.reads_texts or self.min_score is not None
        return self.top_n or (None if judged else RESULTS)


class Saved(NamedTuple):
    """What pruning saves.

    Attributes:
        tokens: tokens of all contexts.
        of_documents: tokens of the documents in the answer.
    """

    tokens: int
    of_documents: int

    @property
    def saved(self) -> int:
        """Tokens of the documents that no context passes on."""
        return self.of_documents - self.tokens


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer.

    Attributes:
        ranking: the ranking, cut to the results that reach `min_score`.
        spans: each result's spans, best first, by document number.
        contexts: each result's context, by document number; empty unless the call asked for pruning.
        saved: what pruning saved; none without pruning.
        below: how many documents their score left out, not counting those that the cascade spared the model; none without a
            bound.
        warnings: requests that were not honoured.
    """

    ranking: Ranking
    spans: dict[int, list[Span]] = field(default_factory=dict)
    contexts: dict[int, Context] = field(default_factory=dict)
    saved: Saved | None = None
    below: int | None = None
    warnings: list[str] = field(default_factory=list)


class Documents(NamedTuple):
    """The documents of a call, in the order given.

    Attributes:
        candidates: the documents with their blocks.
        texts: their texts; "" for a document whose text is not at hand.
        marks: token logits of each sequence, document after document; none for a model without a marker.
    """

    candidates: Sequence[Candidate]
    texts: Sequence[str]
    marks: Sequence[NDArray[np.float32]] | None = None

    def marks_by_document(self) -> list[Sequence[NDArray[np.float32]] | None]:
        """For each document the marks of its sequences; None for a model without a marker."""
        if self.marks is None:
            return [None] * len(self.candidates)
        ends = np.cumsum([len(one.sequences) for one in self.candidates]).tolist()
        return [self.marks[end - len(one.sequences) : end] for end, one in zip(ends, self.candidates, strict=True)]


def answered(pipeline: Pipeline, query: PreparedQuery, documents: Documents, ranking: Ranking, options: AnswerOptions) -> Answered:
    """Add to a ranking of all documents what the call requests in addition to the order, and cut it to `AnswerOptions.top_n`."""
    warnings: list[str] = []
    if options.tokens is not None and not options.prune:
        warnings.append("max_context_tokens: bounds the contexts that prune gives, which was not asked for")
    reaching, below = _reaching(pipeline, documents.candidates, ranking, options, warnings)
    order = reaching[: options.top_n or None]
    kept = replace(ranking, order=order)
    if not options.reads_texts:
        return Answered(kept, below=below, warnings=warnings)
    found: dict[int, list[Span]] = {}
    marks = documents.marks_by_document()
    for number in order:
        text = documents.texts[number]
        if text:
            scored = scored_sentences(pipeline, query, documents.candidates[number], ranking, number, text, marks[number])
            found[number] = spans(text, scored, options.threshold, options.most)
    contexts: dict[int, Context] = {}
    saved = None
    if options.prune:
        texts = {number: documents.texts[number] for number in order}
        contexts = Pruner(texts, lambda text: len(pipeline.tokenizer.ids(text)), options.tokens).prune(found)
        whole = sum(documents.candidates[number].tokens for number in order)
        saved = Saved(sum(context.tokens for context in contexts.values()), whole)
    return Answered(kept, found if options.spans else {}, contexts, saved, below, warnings)


def _reaching(
    pipeline: Pipeline, candidates: Sequence[Candidate], ranking: Ranking, options: AnswerOptions, warnings: list[str]
) -> tuple[list[int], int | None]:
    """The results that reach the score, and how many do not; the count is None without a bound.

    Only documents that the model scored are judged. A document that it could not score stays, since nothing is known of it, unless
    the document has no text. Documents that the cascade spared the model are no results, since the judged ones promise more; the
    count leaves them out too.
    """
    least = pipeline.config.min_score if options.min_score == AUTO else options.min_score
    if least is None and options.min_score == AUTO:
        warnings.append("min_score: this model's bundle recommends no threshold, so nothing is left out; give a number")
    if least is None or isinstance(least, str):
        return ranking.order, None
    probable = sigmoid(pipeline.config.activation.scale * ranking.logits)
    order = [
        number
        for number in ranking.order
        if (
            probable[number] >= least
            if ranking.scored_by[number] is ScoredBy.MODEL
            else bool(candidates[number].sequences) or not candidates[number].read
        )
    ]
    return order, len(ranking.order) - len(order) - ranking.spared
