"""Draws training examples: a query, one relevant document, and negatives from the first-stage list.

Queries come in passes: every query of a collection comes once, in a random order, before any comes again. The next query depends on
the seed and on the number of steps before; everything else of step s is drawn from a generator seeded by (seed, s). So a step has
the same batch whether or not the run was interrupted.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from keyblock.selectors import SELECTORS
from training.data.examples import Examples, Labels, Pair, Preparation, Prepared, Waiting, no_labels, token_labels
from training.data.types import CollectionError, Run
from training.recipe import Negatives, Recipe

K = TypeVar("K")


@dataclass(frozen=True)
class Source:
    """One collection's training queries: those with a relevant document and a negative in their first-stage list."""

    preparation: Preparation
    queries: Sequence[str]
    relevant: Mapping[str, list[str]]
    negatives: Mapping[str, list[str]]

    @classmethod
    def build(cls, preparation: Preparation, split: str, run: Run, depth: int) -> "Source":
        """Keep the split's usable queries. Raises CollectionError if there are none, or if a query or a negative has no text."""
        collection = preparation.collection
        relevant, negatives = {}, {}
        for query in collection.split(split):
            grades = collection.qrels.get(query, {})
            positive = collection.present([d for d, grade in grades.items() if grade > 0])
            negative = [d for d in list(run.get(query, ()))[:depth] if grades.get(d, 0) <= 0]
            if positive and negative:
                collection.query(query)  # a missing text is an error now, not after an hour of steps
                relevant[query] = positive
                negatives[query] = collection.require(negative)
        if not relevant:
            raise CollectionError(f"{collection.path}: no query of split {split} has a relevant document and a negative")
        return cls(preparation, list(relevant), relevant, negatives)

    def passes(self, seed: Sequence[int], needs_gold: bool) -> Iterator[str]:
        """The queries in endless passes: each query once a pass, every pass in a new order.

        Args:
            seed: decides the orders.
            needs_gold: whether only relevant documents with a gold passage can be used; queries without one are left out.

        Raises CollectionError if no query can be used.
        """
        for number in itertools.count():
            order = np.random.default_rng((number, *seed)).permutation(len(self.queries))
            usable = (query for query in map(self.queries.__getitem__, order.tolist()) if self.trainable(query, needs_gold))
            first = next(usable, None)
            if first is None:
                path = self.preparation.collection.path
                raise CollectionError(f"{path}: no document relevant to a training query has a gold passage to train on")
            yield from itertools.chain((first,), usable)

    def trainable(self, query: str, needs_gold: bool) -> list[str]:
        """The query's relevant documents that can be trained on: with `needs_gold`, those with a gold passage."""
        return [d for d in self.relevant[query] if not needs_gold or self.preparation.gold(query, d)]

    def group(self, query: str, rng: np.random.Generator, recipe: Recipe, examples: Examples, budget: int) -> "Group":
        """A relevant document of the query, then `negatives.per_query` negatives; unanswered queries have negatives alone."""
        relevant = self.trainable(query, examples.needs_gold)
        documents = [relevant[int(rng.integers(len(relevant)))], *self._negatives(rng, recipe.negatives, query)]
        answered = not (recipe.unanswered and rng.random() < recipe.unanswered and len(documents) > 1)
        documents = documents if answered else documents[1:]
        pairs = [self.preparation.pair(query, document) for document in documents]
        prepared = examples.prepare(self.preparation.query(query), pairs, budget, rng)
        labels = self._labels(query, documents, pairs, prepared, recipe) if recipe.marks else []
        return Group(query, tuple(documents), prepared, budget * len(documents) * examples.sequences, labels, answered)

    def _labels(
        self, query: str, documents: Sequence[str], pairs: Sequence[Pair], prepared: Prepared, recipe: Recipe
    ) -> list[Labels]:
        """Labels of each sequence, in the order of the rows.

        All are left out for a relevant document whose gold passage is unknown, or is not marked by the recipe.
        """
        if isinstance(prepared, Waiting):
            return []
        found: list[Labels] = []
        marked = not recipe.marked or self.preparation.collection.name in recipe.marked
        for row in prepared:
            for name, pair, sequences in zip(documents, pairs, row, strict=True):
                if name in self.relevant[query] and not (pair.gold and marked):
                    found += map(no_labels, sequences)
                    continue
                text = self.preparation.collection.document(name).text if pair.gold else ""
                arguments = (self.preparation.pipeline, pair.document, text, pair.gold)
                found += [token_labels(*arguments, packed) for packed in sequences]
        return found

    def _negatives(self, rng: np.random.Generator, settings: Negatives, query: str) -> list[str]:
        pool = self.negatives[query]
        shuffled = [pool[i] for i in rng.permutation(len(pool))]
        hardest: list[str] = []
        if settings.hard:
            sample = shuffled[: settings.hard_sample]
            selector = SELECTORS.create(settings.hard_by)
            hardest = sorted(sample, key=lambda d: -self.preparation.best_block(query, d, selector))[: settings.hard]
        chosen = hardest + [d for d in shuffled if d not in hardest]
        # negatives of a short list repeat, so that every group has the same size
        return [chosen[i % len(chosen)] for i in range(settings.per_query)]


@dataclass(frozen=True)
class Group:
    """A query with its documents, the relevant one first.

    Attributes:
        query: the query's id.
        documents: the documents' ids.
        prepared: the rows, or the documents that they are made from.
        tokens: about how many tokens go through the model with gradients.
        labels: token labels of each sequence, in the order of the rows; empty if no marker is trained.
        answered: whether the first document is relevant; else no document is.
    """

    query: str
    documents: tuple[str, ...]
    prepared: Prepared
    tokens: int
    labels: Sequence[Labels] = ()
    answered: bool = True


@dataclass(frozen=True)
class StepBatch:
    """The input of one optimizer step.

    Attributes:
        groups: one group for each query.
        budget: tokens of a sequence.
    """

    groups: list[Group]
    budget: int


class Draws:
    """Draws the batches of a run, by step. Not safe to use from several threads at once.

    Args:
        sources: the training queries of each collection.
        recipe: says what is drawn.
        examples: makes a group's rows.
    """

    def __init__(self, sources: Mapping[str, Source], recipe: Recipe, examples: Examples) -> None:
        self.sources, self.recipe, self.examples = sources, recipe, examples
        mixture = recipe.mixture or dict.fromkeys(sources, 1.0)
        self._weights = {name: mixture.get(name, 0.0) for name in sources}
        self._begin()

    def step(self, step: int) -> StepBatch:
        """The batch of a step, counted from 0: one budget, queries from the collections in the recipe's mixture.

        The next step is drawn directly. Before any other step, the queries of the steps before it are drawn, without documents.
        """
        if step < self._next:
            self._begin()
        while self._next < step:
            self._plan()
        rng, budget, queries = self._plan()
        groups = [self.sources[name].group(query, rng, self.recipe, self.examples, budget) for name, query in queries]
        return StepBatch(groups, budget)

    def _begin(self) -> None:
        """Go back to step 0."""
        self._next, gold = 0, self.examples.needs_gold
        # steps are seeded by (seed, step): the third number is not 0, so that orders have other seeds
        self._queries = {
            name: source.passes((self.recipe.seed, place), gold) for place, (name, source) in enumerate(self.sources.items(), 1)
        }

    def _plan(self) -> tuple[np.random.Generator, int, list[tuple[str, str]]]:
        """The next step's generator, its budget, and its queries with their collections."""
        rng = np.random.default_rng((self.recipe.seed, self._next))
        (budget,) = _choose(rng, self.recipe.budgets, 1)
        names = _choose(rng, self._weights, self.recipe.queries_at(budget))
        self._next += 1
        return rng, budget, [(name, next(self._queries[name])) for name in names]


def _choose(rng: np.random.Generator, weights: Mapping[K, float], count: int) -> list[K]:
    """Draw `count` keys with replacement, in proportion to their weights."""
    keys, shares = list(weights), np.asarray(list(weights.values()), dtype=np.float64)
    return [keys[place] for place in rng.choice(len(keys), size=count, p=shares / shares.sum())]
