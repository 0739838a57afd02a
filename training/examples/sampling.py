"""Training examples: a query, one relevant document, and negatives from the first-stage list.

Step s of a run draws from a generator seeded by (seed, s): the same batch whether or not the run was interrupted before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selectors import SELECTORS, Selector
from training.collections.collection import Collection
from training.collections.types import CollectionError, Document, Run, Span
from training.examples.examples import Examples, Pair, Prepared
from training.recipe import Negatives, Recipe

K = TypeVar("K")
KEPT = 100_000  # prepared documents in memory: a long run sees more of MS MARCO's than there is room for
TRIES = 10_000  # relevant documents in a row of which none can be trained on


class Preparation:
    """The pipeline over one collection; prepared queries and the last prepared documents are kept."""

    def __init__(
        self, collection: Collection, pipeline: Pipeline, prepare: Callable[[Document], PreparedDocument] | None = None
    ) -> None:
        self.collection = collection
        self.pipeline = pipeline
        self._prepare = prepare or (lambda document: pipeline.prepare_document(document.text, document.title))
        self._documents: dict[str, PreparedDocument] = {}
        self._queries: dict[str, PreparedQuery] = {}

    def document(self, doc_id: str) -> PreparedDocument:
        """The prepared document. Raises CollectionError when the corpus lacks it."""
        found = self._documents.get(doc_id)
        if found is None:
            found = self._documents[doc_id] = self._prepare(self.collection.document(doc_id))
            if len(self._documents) > KEPT:
                self._documents.pop(next(iter(self._documents)), None)
        return found

    def query(self, query_id: str) -> PreparedQuery:
        """The prepared query. Raises CollectionError when the queries lack it."""
        if query_id not in self._queries:
            self._queries[query_id] = self.pipeline.prepare_query(self.collection.query(query_id))
        return self._queries[query_id]

    def pack(self, query_id: str, doc_id: str, budget: int) -> Packed:
        """The model's input for a pair."""
        return self.pipeline.select(self.query(query_id), self.document(doc_id), budget).packed

    def pair(self, query_id: str, doc_id: str) -> Pair:
        """The prepared document with its gold passages for the query."""
        return Pair(self.document(doc_id), self.gold(query_id, doc_id))

    def gold(self, query_id: str, doc_id: str) -> list[Span]:
        """The document's gold passages for the query."""
        return [span for span in self.collection.spans.get(query_id, ()) if span.doc_id == doc_id]

    def best_block(self, query_id: str, doc_id: str, selector: Selector) -> float:
        """A selector's score of the document's best block; 0 for a document without blocks."""
        scores = selector.scores(self.query(query_id), self.document(doc_id), self.pipeline.frequencies)
        return float(scores.max()) if len(scores) else 0.0


@dataclass(frozen=True)
class Source:
    """One collection's training queries: those with a relevant document and a negative in their first-stage list."""

    preparation: Preparation
    queries: Sequence[str]
    relevant: Mapping[str, list[str]]
    negatives: Mapping[str, list[str]]

    @classmethod
    def build(cls, preparation: Preparation, split: str, run: Run, depth: int) -> "Source":
        """Keep the split's usable queries. Raises CollectionError when none is left, or when a query or a negative has no text."""
        collection = preparation.collection
        relevant, negatives = {}, {}
        for query in collection.split(split):
            grades = collection.qrels.get(query, {})
            positive = collection.present([d for d, grade in grades.items() if grade > 0])
            others = [d for d in list(run.get(query, ()))[:depth] if grades.get(d, 0) <= 0]
            if positive and others:
                collection.query(query)  # what is not there is said now, not after an hour of steps
                relevant[query] = positive
                negatives[query] = collection.require(others)
        if not relevant:
            raise CollectionError(f"{collection.path}: no query of split {split} has a relevant document and a negative")
        return cls(preparation, list(relevant), relevant, negatives)

    def draw(self, rng: np.random.Generator, how: Negatives, examples: Examples, budget: int) -> "Group":
        """One group: a relevant document, then `how.per_query` negatives.

        Raises CollectionError where gold passages are trained on and hardly a document has one.
        """
        query, relevant = self._relevant(rng, examples.of_gold)
        documents = [relevant, *self._negatives(rng, how, query)]
        pairs = [self.preparation.pair(query, document) for document in documents]
        prepared = examples.prepare(self.preparation.query(query), pairs, budget, rng)
        return Group(query, tuple(documents), prepared, budget * len(documents) * examples.sequences)

    def _relevant(self, rng: np.random.Generator, of_gold: bool) -> tuple[str, str]:
        """A query and a document relevant to it; one with a gold passage where that is trained on."""
        for _ in range(TRIES):
            query = self.queries[int(rng.integers(len(self.queries)))]
            document = self.relevant[query][int(rng.integers(len(self.relevant[query])))]
            if not of_gold or self.preparation.gold(query, document):
                return query, document
        path = self.preparation.collection.path
        raise CollectionError(f"{path}: of {TRIES:,} relevant documents drawn, none has a gold passage to train on")

    def _negatives(self, rng: np.random.Generator, how: Negatives, query: str) -> list[str]:
        pool = self.negatives[query]
        shuffled = [pool[i] for i in rng.permutation(len(pool))]
        hardest: list[str] = []
        if how.hard:
            sample = shuffled[: how.hard_sample]
            selector = SELECTORS.create(how.hard_by)
            hardest = sorted(sample, key=lambda d: -self.preparation.best_block(query, d, selector))[: how.hard]
        chosen = hardest + [d for d in shuffled if d not in hardest]
        # a short list is drawn from again rather than leaving the group short
        return [chosen[i % len(chosen)] for i in range(how.per_query)]


@dataclass(frozen=True)
class Group:
    """A query with its documents, the relevant one first.

    Attributes:
        query: its id.
        documents: their ids.
        prepared: what the examples' rows are made from.
        tokens: that go through the model with gradients, about.
    """

    query: str
    documents: tuple[str, ...]
    prepared: Prepared
    tokens: int


@dataclass(frozen=True)
class StepBatch:
    """What one optimizer step reads.

    Attributes:
        groups: one a query.
        budget: tokens of a sequence.
    """

    groups: list[Group]
    budget: int


def draw_step(sources: Mapping[str, Source], recipe: Recipe, examples: Examples, step: int) -> StepBatch:
    """The batch of a step: one budget, queries from the collections in the recipe's mixture."""
    rng = np.random.default_rng((recipe.seed, step))
    budget = int(_choose(rng, recipe.budgets))
    group = 1 + recipe.negatives.per_query
    n_queries = recipe.queries_per_step or max(1, recipe.tokens_per_step // (budget * group))
    mixture = recipe.mixture or dict.fromkeys(sources, 1.0)
    weights = {name: mixture.get(name, 0.0) for name in sources}
    draws = [sources[_choose(rng, weights)].draw(rng, recipe.negatives, examples, budget) for _ in range(n_queries)]
    return StepBatch(draws, budget)


def _choose(rng: np.random.Generator, weights: Mapping[K, float]) -> K:
    keys, shares = list(weights), np.asarray(list(weights.values()), dtype=np.float64)
    return keys[rng.choice(len(keys), p=shares / shares.sum())]
