"""What an answer holds beside its order: the spans that answer, what is passed on of each document, what falls below a score."""

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


class Asked(NamedTuple):
    """What a call asks for beside the order.

    Attributes:
        spans: whether results name the spans that answer.
        threshold: the probability that a span must reach.
        most: spans of a document at most; none: all.
        min_score: the probability that a result must reach; AUTO for what the bundle recommends, none for no bound.
        prune: whether results have a context.
        tokens: of all contexts together at most; none: no bound.
        top_n: results at most, of those that `min_score` leaves; 0 for all.
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
        """Results that the call is about, RESULTS where it does not say; None where the model has to judge each document.

        It has to where answers depend on its score alone, and where a fusion with the first stage may lift what promises little.
        """
        if first_stage.fusion(config.first_stage) is not None:
            return None
        judged = self.reads_texts or self.min_score is not None
        return self.top_n or (None if judged else RESULTS)


class Saved(NamedTuple):
    """What pruning saves.

    Attributes:
        tokens: of all contexts.
        of_documents: tokens that the answered documents have.
    """

    tokens: int
    of_documents: int

    @property
    def saved(self) -> int:
        """The difference."""
        return self.of_documents - self.tokens


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer.

    Attributes:
        ranking: with the results that reach `min_score`.
        spans: of the results, by document number, best first.
        contexts: the same where pruning was asked for.
        saved: by pruning.
        below: documents that were left out for their score, those that the model was spared not counted; none where no bound was
            asked for.
        warnings: what was asked for and not done.
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
        candidates: with their blocks.
        texts: theirs; "" for one whose text is not there.
        marks: of each sequence of each document its tokens' logits, sequence after sequence; none of a model that marks none.
    """

    candidates: Sequence[Candidate]
    texts: Sequence[str]
    marks: Sequence[NDArray[np.float32]] | None = None

    def marks_of(self) -> list[Sequence[NDArray[np.float32]] | None]:
        """Of each document, of each of its sequences."""
        if self.marks is None:
            return [None] * len(self.candidates)
        ends = np.cumsum([len(one.sequences) for one in self.candidates]).tolist()
        return [self.marks[end - len(one.sequences) : end] for end, one in zip(ends, self.candidates, strict=True)]


def answered(pipeline: Pipeline, query: PreparedQuery, documents: Documents, ranking: Ranking, asked: Asked) -> Answered:
    """Complete a ranking of all documents with what was asked for beside the order, and cut it to `Asked.top_n`."""
    warnings: list[str] = []
    if asked.tokens is not None and not asked.prune:
        warnings.append("max_context_tokens: bounds the contexts that prune gives, which was not asked for")
    reaching, below = _reaching(pipeline, documents.candidates, ranking, asked, warnings)
    order = reaching[: asked.top_n or None]
    kept = replace(ranking, order=order)
    if not asked.reads_texts:
        return Answered(kept, below=below, warnings=warnings)
    found: dict[int, list[Span]] = {}
    marks = documents.marks_of()
    for number in order:
        text = documents.texts[number]
        if text:
            scored = scored_sentences(pipeline, query, documents.candidates[number], ranking, number, text, marks[number])
            found[number] = spans(text, scored, asked.threshold, asked.most)
    contexts: dict[int, Context] = {}
    saved = None
    if asked.prune:
        texts = {number: documents.texts[number] for number in order}
        contexts = Pruner(texts, lambda text: len(pipeline.tokenizer.ids(text)), asked.tokens).prune(found)
        whole = sum(documents.candidates[number].tokens for number in order)
        saved = Saved(sum(context.tokens for context in contexts.values()), whole)
    return Answered(kept, found if asked.spans else {}, contexts, saved, below, warnings)


def _reaching(
    pipeline: Pipeline, candidates: Sequence[Candidate], ranking: Ranking, asked: Asked, warnings: list[str]
) -> tuple[list[int], int | None]:
    """The results that reach the score, and how many do not; none where there is no bound.

    The model's results are judged. Of those that it could not score nothing is known, so they stay, unless they have no text. Those
    that it was spared are no results, since what it has judged promises more, and are not among those that do not reach the score.
    """
    least = pipeline.config.min_score if asked.min_score == AUTO else asked.min_score
    if least is None and asked.min_score == AUTO:
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
