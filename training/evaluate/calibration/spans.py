"""Fits on dev the probability that a sentence answers, from the mean mark of its tokens and its document's fused logit.

A sentence answers if more than half of it lies in a gold passage of the query; no sentence of another document answers. The fused
logit is that after a second look, as in the service. The sentences are those of the first look alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from tqdm import tqdm

from keyblock.fusion import SpanScores
from keyblock.ranking.order import Candidate, candidate
from keyblock.ranking.spans import Read, Sentence, marked_sentences
from training.data.types import Run, Span
from training.evaluate.calibration.fit import minimized
from training.evaluate.ranking import LocalRanker


@dataclass(frozen=True, eq=False)
class ReadDocument:
    """A candidate of a query, with the sentences that the model read.

    Attributes:
        query: the query's id.
        document: the document's id.
        logit: its fused logit, after a second look if there is one.
        sentences: the sentences of its key blocks, in document order.
        gold: its gold passages for the query.
        tokens: the number of tokens of its text.
    """

    query: str
    document: str
    logit: float
    sentences: list[Sentence]
    gold: Sequence[Span]
    tokens: int

    @property
    def marks(self) -> NDArray[np.float64]:
        """The sentences' marks, shape (n_sentences,)."""
        return np.asarray([one.mark for one in self.sentences], dtype=np.float64)

    @property
    def labels(self) -> NDArray[np.float64]:
        """Whether each sentence answers, shape (n_sentences,)."""
        return np.asarray([float(answers(one, self.gold)) for one in self.sentences])

    @property
    def logits(self) -> NDArray[np.float64]:
        """The document's fused logit, repeated for each sentence: shape (n_sentences,)."""
        return np.full(len(self.sentences), self.logit)

    @classmethod
    def of(
        cls, ranker: LocalRanker, query: str, document: str, one: Candidate, logit: float, marks: Sequence[NDArray[np.float32]]
    ) -> Self:
        """Build from a document's candidate, fused logit and token marks."""
        preparation = ranker.preparation
        text = preparation.collection.document(document).text
        places = np.asarray([block[:2] for block in one.blocks], np.int32).reshape(-1, 2)
        read = Read(text, one.sequences, places, np.asarray(one.lengths, np.int32), one.title)
        found = [sentence for sentence in marked_sentences(preparation.pipeline, read, marks) if sentence.tokens]
        return cls(query, document, logit, found, preparation.gold(query, document), one.tokens)


def answers(sentence: Sentence, gold: Sequence[Span]) -> bool:
    """Whether more than half of a sentence's code points lie in gold passages."""
    inside = sum(max(min(sentence.end, span.end) - max(sentence.start, span.start), 0) for span in gold)
    return 2 * inside > sentence.end - sentence.start


def read_documents(
    ranker: LocalRanker, candidates: Mapping[str, Sequence[str]], fused: Run, budget: int | None = None
) -> list[ReadDocument]:
    """Read the candidates of each query with a gold passage in one of them.

    Args:
        ranker: the ranker, whose model may mark tokens.
        candidates: the document ids, by query.
        fused: the fused logits of at least these documents.
        budget: tokens of a sequence.

    Returns:
        The documents with at least one sequence; empty for a model that marks no tokens.
    """
    preparation, found = ranker.preparation, list[ReadDocument]()
    for query, documents in tqdm(candidates.items(), desc=f"{preparation.collection.name}, sentences", disable=None):
        if not any(preparation.gold(query, document) for document in documents):
            continue
        _, selections, marks = ranker.score(query, documents, budget)
        if marks is None:
            return []
        for document, selection, token_marks in zip(documents, selections, marks, strict=True):
            if selection.sequences:
                one = candidate(preparation.document(document), selection)
                found.append(ReadDocument.of(ranker, query, document, one, fused[query][document], token_marks))
    return found


def fit_spans(collections: Sequence[Sequence[ReadDocument]]) -> SpanScores:
    """The logistic regression of "answers" on mark and fused logit; every collection counts the same.

    A collection without a sentence teaches nothing. Raises ValueError if no sentence answers.
    """
    rows, labels, weights = [], [], []
    for documents in (of for of in collections if any(one.sentences for one in of)):
        marks = np.concatenate([one.marks for one in documents])
        rows.append(np.stack([marks, np.concatenate([one.logits for one in documents])], axis=1))
        labels.append(np.concatenate([one.labels for one in documents]))
        weights.append(np.full(len(marks), 1 / len(marks)))
    inputs, answering, share = (torch.from_numpy(np.concatenate(parts)) for parts in (rows, labels, weights))
    if not answering.any():
        raise ValueError("spans: no sentence that was read lies in a gold passage; ask for more queries or depth")
    center, spread = inputs.mean(dim=0), inputs.std(dim=0, correction=0)
    spread[spread == 0] = 1.0
    inputs = (inputs - center) / spread  # a second look may make logits a hundred times as large

    def loss(parameters: torch.Tensor) -> torch.Tensor:
        logits = parameters[0] + inputs @ parameters[1:].abs()
        return (F.binary_cross_entropy_with_logits(logits, answering, reduction="none") * share).sum()

    parameters = minimized(loss, torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64))
    slopes = parameters[1:].abs() / spread
    mark, document = slopes.tolist()
    return SpanScores(bias=float(parameters[0] - center @ slopes), mark=mark, document=document)


def span_probabilities(documents: Sequence[ReadDocument], scores: SpanScores) -> list[NDArray[np.float64]]:
    """The probability that each sentence answers: an array of shape (n_sentences,) for each document."""
    return [scores.probabilities(one.marks, one.logits) for one in documents]
