"""Training examples: a query, one relevant document, and negatives from the first-stage list.

Queries come in passes: each one of a collection once, in an order of the pass's own, before any comes again. Which one is next
depends on the seed and on the steps before; all else of step s is drawn from a generator seeded by (seed, s). So a step has the
same batch whether or not the run was interrupted before.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from keyblock.selectors import SELECTORS
from training.collections.types import CollectionError, Run
from training.examples.examples import Examples, Pair, Prepared, Waiting
from training.examples.marking import Labels, no_labels, token_labels
from training.examples.preparation import Preparation
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

    def passes(self, seed: Sequence[int], of_gold: bool) -> Iterator[str]:
        """The queries in passes without end: each once a pass, in a new order.

        Args:
            seed: decides the orders.
            of_gold: whether a relevant document is of use only with a gold passage; a query without any is left out.

        Raises CollectionError when no query is of use.
        """
        for number in itertools.count():
            order = np.random.default_rng((number, *seed)).permutation(len(self.queries))
            usable = (query for query in map(self.queries.__getitem__, order.tolist()) if self.trainable(query, of_gold))
            first = next(usable, None)
            if first is None:
                path = self.preparation.collection.path
                raise CollectionError(f"{path}: no document relevant to a training query has a gold passage to train on")
            yield from itertools.chain((first,), usable)

    def trainable(self, query: str, of_gold: bool) -> list[str]:
        """The query's relevant documents that can be trained on; those with a gold passage where that is trained on."""
        return [d for d in self.relevant[query] if not of_gold or self.preparation.gold(query, d)]

    def group(self, query: str, rng: np.random.Generator, recipe: Recipe, examples: Examples, budget: int) -> "Group":
        """A relevant document of the query, then `negatives.per_query` negatives; some queries have negatives alone."""
        relevant, how = self.trainable(query, examples.of_gold), recipe.negatives
        documents = [relevant[int(rng.integers(len(relevant)))], *self._negatives(rng, how, query)]
        answered = not (recipe.unanswered and rng.random() < recipe.unanswered and len(documents) > 1)
        documents = documents if answered else documents[1:]
        pairs = [self.preparation.pair(query, document) for document in documents]
        prepared = examples.prepare(self.preparation.query(query), pairs, budget, rng)
        labels = self._labels(query, documents, pairs, prepared) if recipe.marks else []
        return Group(query, tuple(documents), prepared, budget * len(documents) * examples.sequences, labels, answered)

    def _labels(self, query: str, documents: Sequence[str], pairs: Sequence[Pair], prepared: Prepared) -> list[Labels]:
        """Of each sequence, in the order of the rows. A relevant document without a gold passage teaches nothing."""
        if isinstance(prepared, Waiting):
            return []
        found: list[Labels] = []
        for row in prepared:
            for name, pair, sequences in zip(documents, pairs, row, strict=True):
                if not pair.gold and name in self.relevant[query]:
                    found += map(no_labels, sequences)
                    continue
                text = self.preparation.collection.document(name).text if pair.gold else ""
                parts = (self.preparation.pipeline, pair.document, text, pair.gold)
                found += [token_labels(*parts, packed) for packed in sequences]
        return found

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
        labels: of the tokens of each sequence, in the order of the rows; none where nothing marks them.
        answered: whether the first document is relevant; else none is.
    """

    query: str
    documents: tuple[str, ...]
    prepared: Prepared
    tokens: int
    labels: Sequence[Labels] = ()
    answered: bool = True


@dataclass(frozen=True)
class StepBatch:
    """What one optimizer step reads.

    Attributes:
        groups: one a query.
        budget: tokens of a sequence.
    """

    groups: list[Group]
    budget: int


class Draws:
    """The batches of a run, by step. Not to be used by several threads at once.

    Args:
        sources: the training queries of each collection.
        recipe: says what is drawn.
        examples: make a group's rows.
    """

    def __init__(self, sources: Mapping[str, Source], recipe: Recipe, examples: Examples) -> None:
        self.sources, self.recipe, self.examples = sources, recipe, examples
        mixture = recipe.mixture or dict.fromkeys(sources, 1.0)
        self._weights = {name: mixture.get(name, 0.0) for name in sources}
        self._begin()

    def step(self, step: int) -> StepBatch:
        """The batch of a step, counted from 0: one budget, queries from the collections in the recipe's mixture.

        The next step is drawn at once. Any other first counts the queries of the steps before it, without their documents.
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
        self._next, gold = 0, self.examples.of_gold
        # (seed, step) seeds a step: a third number that is not 0 keeps the orders apart from those
        self._queries = {
            name: source.passes((self.recipe.seed, place), gold) for place, (name, source) in enumerate(self.sources.items(), 1)
        }

    def _plan(self) -> tuple[np.random.Generator, int, list[tuple[str, str]]]:
        """The next step's generator, its budget, and its queries with their collections."""
        rng = np.random.default_rng((self.recipe.seed, self._next))
        (budget,) = _choose(rng, self.recipe.budgets, 1)
        group = 1 + self.recipe.negatives.per_query
        count = self.recipe.queries_per_step or max(1, self.recipe.tokens_per_step // (budget * group))
        names = _choose(rng, self._weights, count)
        self._next += 1
        return rng, budget, [(name, next(self._queries[name])) for name in names]


def _choose(rng: np.random.Generator, weights: Mapping[K, float], count: int) -> list[K]:
    """So many of the keys, each time by their weights."""
    keys, shares = list(weights), np.asarray(list(weights.values()), dtype=np.float64)
    return [keys[place] for place in rng.choice(len(keys), size=count, p=shares / shares.sum())]
