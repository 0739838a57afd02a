"""The run of keyblock-vectors: makes a file of token vectors from collections.

RUN holds: recipe.json, checkpoint.pt, log.jsonl, token_vectors.npz (see `keyblock.encoders`) and vectors.json (the measures, and
the hybrid selector's weights).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from keyblock.bundle import Bundle, write_bundle
from keyblock.encoders import ENCODERS, TokenTable
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selectors import SELECTORS, Selector, rank_blocks
from keyblock.text.tokenizer import Tokenizer
from lab.token_vectors import (
    Draws,
    Passages,
    Projection,
    StaticVectors,
    Teacher,
    Training,
    VectorsRecipe,
    quantised,
    rarity,
)
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import CollectionError
from training.evaluate.evaluate import sample
from training.evaluate.ranking import changed
from training.evaluate.selection import segmented
from training.learn.tracking import Tracker
from training.model.sentence_encoder import SentenceEncoder

TABLE_FILE, FIGURES_FILE, RECIPE_FILE = "token_vectors.npz", "vectors.json", "recipe.json"
HELD = 20  # every 20th training document is held out from the table: the hybrid's weights are learned on it
PARTS = ("terms", "vectors", "exact", "soft")  # weights of the hybrid selector
BEST = 3  # blocks: about what the default budget reads of a document
DECILE = 10


class Judged(NamedTuple):
    """A query and a document that holds its gold passage, with the scores of some selectors.

    Attributes:
        right: shape (n_blocks,), which blocks hold the passage; at least one does.
        scores: shape (n_selectors, n_blocks).
        overlap: share of the query's terms that occur in a right block.
    """

    right: NDArray[np.bool_]
    scores: NDArray[np.float64]
    overlap: float


class Found(NamedTuple):
    """Shares of queries with a right block among the BEST.

    Attributes:
        queries: the number of queries.
        of_all: the share among all queries.
        of_least_overlap: the share among the tenth of the queries whose terms overlap least with the passage.
    """

    queries: int
    of_all: float
    of_least_overlap: float


def term_overlap(query: PreparedQuery, document: PreparedDocument, right: NDArray[np.bool_]) -> float:
    """The share of the query's terms that occur in a block marked in `right`, shape (n_blocks,); 0 without terms."""
    bounds = np.stack([document.term_bounds[:-1], document.term_bounds[1:]], axis=1)
    found = [document.terms[first:last] for first, last in bounds[right]]
    return float(np.isin(query.terms, np.concatenate(found)).mean()) if len(query.terms) else 0.0


def judge(preparation: Preparation, queries: Sequence[str], selectors: Sequence[Selector]) -> list[Judged]:
    """The queries with a block that holds their passage, and the blocks' scores by selectors that need no model."""
    judged = []
    for query_id, doc_id, right in segmented(preparation, queries):
        query, document = preparation.query(query_id), preparation.document(doc_id)
        scores = [selector.scores(query, document, preparation.pipeline.frequencies) for selector in selectors]
        judged.append(Judged(right, np.stack(scores), term_overlap(query, document, right)))
    return judged


def figures(judged: Sequence[Judged], weights: NDArray[np.float64]) -> Found:
    """The figures of a weighted sum of the selectors' scores, shape (n_selectors,). Raises ValueError without queries."""
    if not judged:
        raise ValueError("no query has a gold passage (spans.jsonl) that a block holds: selection cannot be measured")
    hits = np.asarray([bool(right[rank_blocks(weights @ scores)[:BEST]].any()) for right, scores, _ in judged])
    least = np.argsort([one.overlap for one in judged], kind="stable")[: max(1, len(judged) // DECILE)]
    return Found(len(hits), float(hits.mean()), float(hits[least].mean()))


def learned_weights(judged: Mapping[str, Sequence[Judged]]) -> NDArray[np.float64]:
    """Weights of the selectors' scores, shape (n_selectors,), that make the right blocks most likely.

    A softmax over a document's blocks gives the probability of each block. The weights maximise the mean logarithm of the right
    blocks' total probability; every collection counts the same (a conditional logit; McFadden 1974). Only the proportions of the
    weights matter for an order, and none is negative. `judged` holds the judged queries by collection; no list is empty.
    """
    from scipy.optimize import minimize

    groups = [(right, scores, 1 / len(group)) for group in judged.values() for right, scores, _ in group]
    count = len(groups[0][1])

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        total, slope = 0.0, np.zeros(count)
        for right, scores, share in groups:
            logits = weights @ scores
            exponents = np.exp(logits - logits.max())
            of_right = np.where(right, exponents, 0.0)
            total -= share * float(np.log(of_right.sum() / exponents.sum()))
            slope -= share * (scores @ (of_right / of_right.sum() - exponents / exponents.sum()))
        return total, slope

    fitted = minimize(loss, np.ones(count), jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * count)
    return np.asarray(fitted.x)


@dataclass(frozen=True)
class Chosen:
    """A collection's training queries in two parts, which share no document.

    Attributes:
        trained: queries for the table.
        held: queries for the hybrid's weights.
    """

    trained: list[str]
    held: list[str]

    @classmethod
    def of(cls, collection: Collection, split: str, recipe: VectorsRecipe) -> "Chosen":
        """Divide the split's queries with a gold passage, by document, in a random order that the recipe's seed decides.

        Raises CollectionError if there are none.
        """
        by_document: dict[str, list[str]] = {}
        for query in collection.split(split):
            for span in collection.spans.get(query, ())[:1]:
                by_document.setdefault(span.doc_id, []).append(query)
        if not by_document:
            raise CollectionError(f"{collection.path}: no query of split {split} has a gold passage (spans.jsonl)")
        names = sorted(by_document)
        order = [names[i] for i in np.argsort(np.random.default_rng(recipe.seed).permutation(len(names)))]
        groups = [by_document[name][: recipe.questions_per_document] for name in order]
        held, trained = groups[::HELD], [group for i, group in enumerate(groups) if i % HELD]
        limited = [query for group in trained for query in group][: recipe.questions]
        return cls(limited, [query for group in held for query in group][: max(1, recipe.questions // HELD)])


@dataclass(frozen=True)
class VectorsRun:
    """A run of keyblock-vectors.

    Attributes:
        bundle: gives the tokenizer, the blocks and the terms.
        collections: collections with gold passages.
        splits: names of the train and dev splits.
        recipe: decides the table.
        path: RUN.
        dev_queries: how many dev queries of each collection are measured; None: all.
    """

    bundle: Bundle
    collections: Sequence[Collection]
    splits: tuple[str, str]
    recipe: VectorsRecipe
    path: Path
    dev_queries: int | None = None

    def figures(self, teacher: str, weights: Mapping[str, float] | None = None) -> dict[str, Any]:
        """Train the table, learn the hybrid's weights, measure both on dev, and write vectors.json. Finished work in RUN is reused.

        Args:
            teacher: the path or hub name of a sentence encoder.
            weights: the hybrid's weights, in place of learned ones; they are measured anew.

        Raises CollectionError for a split without gold passages, ValueError for a RUN of another recipe and for unknown weights.
        """
        if unknown := set(weights or ()) - set(PARTS):
            raise ValueError(f"the hybrid has no weight {min(unknown)!r}; it has {', '.join(PARTS)}")
        self._begin()
        if weights is None and (self.path / FIGURES_FILE).exists():
            known: dict[str, Any] = json.loads((self.path / FIGURES_FILE).read_text(encoding="utf-8"))
            return known
        if not (self.path / TABLE_FILE).exists():
            self._train(teacher)
        pipeline = changed(self.bundle.pipeline, hybrid(self.path, dict.fromkeys(PARTS, 1.0)), self.bundle.path)
        chosen = self._learned(pipeline) if weights is None else np.asarray([weights.get(part, 0.0) for part in PARTS], np.float64)
        dev = self._judged(pipeline, {c.name: sample(c.split(self.splits[1]), self.dev_queries) for c in self.collections})
        figures = {"weights": dict(zip(PARTS, chosen.tolist(), strict=True)), "dev": measured(dev, chosen)}
        (self.path / FIGURES_FILE).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        return figures

    def _learned(self, pipeline: Pipeline) -> NDArray[np.float64]:
        """The learned weights of the parts, scaled so that the weight of `terms` is 1 (or 0)."""
        learned = learned_weights(self._judged(pipeline, {c.name: self._chosen(c).held for c in self.collections}))
        return np.asarray([round(weight / (learned[0] or 1.0), 2) for weight in learned.tolist()])

    def _begin(self) -> None:
        """Write RUN/recipe.json. Raises ValueError if RUN has another recipe."""
        self.path.mkdir(parents=True, exist_ok=True)
        file, own = self.path / RECIPE_FILE, self.recipe.model_dump()
        if file.exists() and json.loads(file.read_text(encoding="utf-8")) != own:
            raise ValueError(f"{self.path}: is a run with other numbers ({RECIPE_FILE}); choose another --out, or remove it")
        file.write_text(json.dumps(own, indent=1) + "\n", encoding="utf-8")

    def _chosen(self, collection: Collection) -> Chosen:
        return Chosen.of(collection, self.splits[0], self.recipe)

    def _judged(self, pipeline: Pipeline, queries: Mapping[str, Sequence[str]]) -> dict[str, list[Judged]]:
        """The scores of the hybrid's parts for each collection's queries, by the collection's name."""
        return {c.name: judge(Preparation(c, pipeline), queries[c.name], parts_of_hybrid()) for c in self.collections}

    def _train(self, teacher: str) -> None:
        passages = Passages()
        for collection in self.collections:
            passages.add(collection.name, Preparation(collection, self.bundle.pipeline), self._chosen(collection).trained)
        model, known = start(passages, SentenceEncoder(teacher), self.bundle.tokenizer, self.recipe)
        training, tracker = Training(model, Draws(passages, known, self.recipe), self.path), Tracker(self.path)
        training.run(lambda step, loss: tracker.record(step, loss=round(loss, 4)))
        partial = self.path / f"partial-{TABLE_FILE}"  # a truncated table would count as finished
        TokenTable(*quantised(model.folded())).write(partial)
        partial.replace(self.path / TABLE_FILE)


def start(
    passages: Passages, encoder: SentenceEncoder, tokenizer: Tokenizer, recipe: VectorsRecipe
) -> tuple[StaticVectors, Teacher]:
    """The table that training starts from, and the teacher's vectors of the texts that it reads."""
    read = teacher_texts(passages, recipe.teacher_blocks)
    vectors = encoder.encode(encoder.rows([passages.texts[i] for i in read]))
    tokens = encoder.encode(token_rows(encoder, tokenizer.backend))
    projection = Projection.of(vectors if len(vectors) > recipe.dimensions else tokens, recipe.dimensions)
    return first_table(tokens, projection, passages), Teacher.of(len(passages.texts), read, vectors, projection)


def token_rows(encoder: SentenceEncoder, vocabulary: tokenizers.Tokenizer) -> list[list[int]]:
    """The encoder's ids for each token of a vocabulary: the same token between special tokens, or the encoding of its text."""
    own, rows = encoder.tokenizer, list[list[int]]()
    first, *_, last = own.encode("a").ids
    for number in range(1 + max(vocabulary.get_vocab().values())):
        name = vocabulary.id_to_token(number)
        same = None if name is None else own.token_to_id(name)
        rows.append([first, same, last] if same is not None else own.encode(vocabulary.decode([number])).ids)
    return rows


def teacher_texts(passages: Passages, blocks: int) -> NDArray[np.int64]:
    """Numbers of the texts that the teacher reads: each collection's first documents, up to `blocks` blocks, and their queries."""
    chosen: set[int] = set()
    for questions in passages.questions.values():
        documents: dict[int, int] = {}
        for question in questions:
            if question.first in documents or sum(documents.values()) < blocks:
                documents[question.first] = len(question.right)
                chosen.update(question.blocks.tolist(), (question.query,))
    return np.asarray(sorted(chosen), dtype=np.int64)


def first_table(tokens: NDArray[np.float32], projection: Projection, passages: Passages) -> StaticVectors:
    """The table that training starts from.

    Args:
        tokens: shape (vocabulary, width), the teacher's vector of each single token.
        projection: the projection of the teacher's vectors; the tokens' own mean is subtracted, since it carries no meaning.
        passages: the texts that give each token's frequency.
    """
    table = projection._replace(mean=tokens.mean(0))(tokens)
    table /= np.sqrt((table**2).sum(1).mean())
    return StaticVectors(table.astype(np.float32), rarity(passages.tokens, len(tokens)))


def hybrid(run: Path, weights: Mapping[str, float]) -> dict[str, Any]:
    """The changes of a pipeline that gets the hybrid selector and RUN's table.

    The lexical evidence stays the same, since the fusion's weights were learned with it.
    """
    encoder = {"name": "static", "file": str((run / TABLE_FILE).absolute())}
    return {"selector": {"name": "hybrid", **weights}, "encoder": encoder}


def parts_of_hybrid() -> list[Selector]:
    """A selector for each of the hybrid's parts, with weight 1."""
    return [SELECTORS.create({"name": "hybrid", **{other: float(other == part) for other in PARTS}}) for part in PARTS]


def measured(judged: Mapping[str, Sequence[Judged]], weights: NDArray[np.float64]) -> dict[str, dict[str, Any]]:
    """Figures by selector and collection, for some parts alone and for the hybrid with these weights."""
    alone = dict(zip(PARTS, np.eye(len(PARTS)), strict=True))
    kinds = {"bm25": alone["terms"], "vectors": alone["vectors"], "soft": alone["soft"], "hybrid": weights}
    return {kind: {name: figures(group, one)._asdict() for name, group in judged.items()} for kind, one in kinds.items()}


def write_hybrid_bundle(bundle: Bundle, run: Path, path: Path) -> None:
    """Write the bundle with the hybrid selector, its weights and RUN's table, to a new directory or over another bundle.

    Raises BundleError for a directory that holds something else.
    """
    figures = json.loads((run / FIGURES_FILE).read_text(encoding="utf-8"))
    described = hybrid(run, figures["weights"])
    pipeline = changed(bundle.pipeline, described, bundle.path).config
    encoder = ENCODERS.create(described["encoder"])
    update = {
        "pipeline": pipeline.model_copy(update={"encoder": encoder.carried().describe()}),
        "quality": {**bundle.manifest.quality, "selection": figures["dev"]},
    }
    files = {name: bundle.path / name for name in bundle.manifest.files} | {encoder.carried_as: bundle.path / encoder.file}
    write_bundle(path, bundle.manifest.model_copy(update=update), files, overwrite=True)
