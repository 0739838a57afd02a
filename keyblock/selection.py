"""The blocks of a document that the model reads for a query, with their scores; and `keyblock_native`, which chooses them.

`CompiledSelection` selects for many documents at once, without the GIL. The Python code of `keyblock.pipeline` is the reference:
each score is the same sum in the same order, so that the same blocks tie.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.aggregation import Aggregator, PassageAggregator
from keyblock.description import PipelineConfig
from keyblock.packing import Packed, room_in
from keyblock.pooled import FEWEST, KEPT, KNOWN, LOOKED_UP, TERMS_BY, Shared
from keyblock.prepared import PRODUCT, PreparedDocument, PreparedQuery, WeighedQuery, similar_tokens, whole_numbers
from keyblock.selectors import Bm25, Hybrid, SelectedBy, Selector, rank_blocks
from keyblock.text.alphabets import CLEARLY, Alphabets
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import PairTemplate

BY = (None, SelectedBy.EVIDENCE, SelectedBy.POSITION)  # in the order of keyblock_native's numbers
NO_VECTOR = np.zeros(0)


class BlockScores(NamedTuple):
    """Scores of a document's blocks that need no model, each of shape (n_blocks,).

    Attributes:
        cheap: scores of the selector that needs no model.
        lexical: scores of the pipeline's evidence.
        near: how near the blocks' tokens are to the query's, see `nearest_tokens`; none: tokens are not compared.
    """

    cheap: NDArray[np.float64]
    lexical: NDArray[np.float64]
    near: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """The blocks that the cheap selector leaves to a learned one.

    Attributes:
        known: scores of every block that need no model.
        blocks: shape (n_shortlisted,), block numbers in document order.
        sequences: one for each of these blocks: the query with the block.
    """

    known: BlockScores
    blocks: NDArray[np.intp]
    sequences: list[Packed]

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences, query and specials included."""
        return sum(len(packed.ids) for packed in self.sequences)

    def scored(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """A score for every block, shape (n_blocks,): the model's logits, shape (n_shortlisted,), and -inf for all other blocks."""
        scores = np.full(len(self.known.cheap), -np.inf)
        scores[self.blocks] = logits
        return scores


class Chosen(NamedTuple):
    """The blocks that the model reads: see Selection.

    Attributes:
        sequences: the model's inputs.
        taken: shape (n_taken,), the chosen blocks, best first.
        reach: shape (n_taken, 2), the range of blocks that each of them stands for.
    """

    sequences: list[Packed]
    taken: NDArray[np.intp]
    reach: NDArray[np.intp]

    def is_all_of(self, document: PreparedDocument) -> bool:
        """Whether nothing had to be chosen: the model reads every block in full, or there is at most one block."""
        n_read = int((self.reach[:, 1] - self.reach[:, 0]).sum())
        return document.n_blocks < 2 or (n_read == document.n_blocks and not any(packed.cut for packed in self.sequences))


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A document's blocks as chosen for a query.

    Attributes:
        sequences: the model's inputs: one of all chosen blocks if the aggregator is joint; else one for each, in document order,
            and none for a document without blocks.
        taken: shape (n_taken,), the chosen blocks, best first.
        scores: shape (n_blocks,), the selector's score of every block; -inf for a block that a learned selector did not score. See
            `decided`.
        evidence: shape (5,), the features that fusion adds to the logit.
        reach: shape (n_taken, 2), the range of blocks that each of them stands for: the first, and the one after the last. If
            passages grow, the blocks that its sequence holds; else the block alone.
        by: what chose the blocks; None if every block is read in full, or there is none.
        selection_tokens: tokens that the model read to choose, if it chose.
        shared: the query's terms in the blocks, and whether the model has learned such texts, if the pipeline says what the model
            was trained on; see `keyblock.pooled`.
    """

    sequences: list[Packed]
    taken: NDArray[np.intp]
    scores: NDArray[np.float64]
    evidence: NDArray[np.float64]
    reach: NDArray[np.intp]
    by: SelectedBy | None = None
    selection_tokens: int = 0
    shared: Shared | None = None

    @property
    def packed(self) -> Packed:
        """The only sequence of a joint selection."""
        (packed,) = self.sequences
        return packed

    def decided(self, passages: NDArray[np.float32]) -> Self:
        """The same, with the chosen blocks scored and ordered by the model's scores of their passages.

        Args:
            passages: shape (n_taken,), scores of the sequences in document order; see `keyblock.aggregation.Aggregated`.
        """
        in_document, scores = np.argsort(self.taken), self.scores.copy()
        scores[self.taken[in_document]] = passages
        order = in_document[rank_blocks(np.asarray(passages, dtype=np.float64))]
        return replace(self, taken=self.taken[order], scores=scores, reach=self.reach[order])


def single_reach(taken: NDArray[np.intp]) -> NDArray[np.intp]:
    """The reach of blocks without neighbours, each block alone, shape (n_taken, 2): see Selection."""
    return np.stack([taken, taken + 1], axis=1)


def is_compiled(config: PipelineConfig, selector: Selector, evidence: Selector, aggregator: Aggregator) -> bool:
    """Whether the compiled part is installed and supports everything that such a pipeline does when it selects."""
    lexical = evidence, selector.terms_by
    one_by_one = isinstance(aggregator, PassageAggregator)
    return (
        native.core is not None
        and isinstance(selector, Bm25 | Hybrid)
        and all(isinstance(one, Bm25) and one.idf == "documents" for one in lexical)
        and not (one_by_one and (config.packing.grow or aggregator.weighted or config.cosine_scale is not None))
    )


class CompiledSelection:
    """Selects blocks of several documents at once. Safe to use from several threads, which do not wait for each other.

    Args:
        selector: BM25, or a hybrid with BM25.
        evidence: BM25.
        aggregator: decides whether the chosen blocks share a sequence.
        template: the special tokens.
        frequencies: document frequencies of terms.
        alphabets: the scripts that the model has learned; None if the bundle does not name them.
    """

    def __init__(
        self,
        selector: Selector,
        evidence: Selector,
        aggregator: Aggregator,
        template: PairTemplate,
        frequencies: DocumentFrequencies,
        alphabets: Alphabets | None,
    ) -> None:
        self._hybrid = selector if isinstance(selector, Hybrid) else None
        self._template, self._alphabets = template, alphabets
        self._rules = native.core.SelectionRules(
            evidence=_bm25(evidence),
            terms=_bm25(selector.terms_by),
            hybrid=None if self._hybrid is None else _described(self._hybrid),
            joint=aggregator.joint,
            passages=getattr(aggregator, "passages", 0),
            shared=None if alphabets is None else _shared_rules(frequencies, alphabets),
        )

    def select(self, weighed: WeighedQuery, documents: Sequence[PreparedDocument], budget: int) -> list[Selection]:
        """The pipeline's selection of each document.

        Args:
            weighed: the query.
            documents: documents that this pipeline has prepared.
            budget: tokens that a sequence may have.

        Raises ValueError for a budget without room beside the query, and for arrays that this pipeline cannot have made.
        """
        query, template, hybrid = weighed.query, self._template, self._hybrid
        head = [*template.before, *query.token_ids.tolist(), *template.between]
        native_query = native.core.Query(
            weighed.query.terms,
            weighed.idf,
            weighed.idf if hybrid is None else hybrid.rare_weights(weighed),
            float(weighed.idf.sum()),
            NO_VECTOR if hybrid is None else whole_numbers(query),
            _near(query, needed=hybrid is not None and hybrid.compares_tokens),
            self._alphabets is not None and self._alphabets.foreign(query.token_ids),
            head,
            list(template.after),
            room_in(query, template, budget),
            PRODUCT,
        )
        return list(_selections(self._rules.select(native_query, list(documents)), documents, len(head)))


def _bm25(selector: Any) -> Any:
    return native.core.Bm25(**selector.model_dump(include={"k1", "b"}))


def _near(query: PreparedQuery, *, needed: bool) -> Any:
    """How near tokens are to the query's. Raises ValueError if they are needed and the query was prepared without."""
    return None if query.similar is None and not needed else similar_tokens(query).compiled


def _described(hybrid: Hybrid) -> Any:
    weights = {name: getattr(hybrid, name) for name in ("terms", "vectors", "low_confidence", "soft", "exact", "exact_blocks")}
    return native.core.Hybrid(near=hybrid.near, mass=hybrid.scale == "mass", **weights)


def _shared_rules(frequencies: DocumentFrequencies, alphabets: Alphabets) -> Any:
    terms = _bm25(TERMS_BY), KEPT, LOOKED_UP, FEWEST, KNOWN
    return native.core.SharedRules(*terms, CLEARLY, alphabets.kinds, frequencies.known)


def _selections(found: dict[str, NDArray[Any]], documents: Sequence[PreparedDocument], split: int) -> Iterator[Selection]:
    """Each document's selection, from arrays that hold the selections of all documents."""
    sequences = _sequences(found, split)
    shared = _shared(found, documents)
    scores = pairwise(accumulate((one.n_blocks for one in documents), initial=0))
    taken = pairwise(accumulate(found["n_taken"].tolist(), initial=0))
    reach, counts, by = single_reach(found["taken"]), found["sequences"].tolist(), found["by"].tolist()
    for number, (first, end) in enumerate(taken):
        yield Selection(
            [next(sequences) for _ in range(counts[number])],
            found["taken"][first:end],
            found["scores"][slice(*next(scores))],
            found["evidence"][number],
            reach[first:end],
            BY[by[number]],
            shared=next(shared, None),
        )


def _sequences(found: dict[str, NDArray[Any]], split: int) -> Iterator[Packed]:
    """The sequences of all documents."""
    ids, blocks = found["ids"], found["blocks"]
    start = first = 0
    for end, last, cut in zip(*(found[name].tolist() for name in ("sequence_ends", "block_ends", "cut")), strict=True):
        yield Packed(ids[start:end], split, blocks[first:last], bool(cut))
        start, first = end, last


def _shared(found: dict[str, NDArray[Any]], documents: Sequence[PreparedDocument]) -> Iterator[Shared]:
    """The query's terms in each document; nothing if the pipeline does not say what the model has learned."""
    start, block_counts = 0, found["having"].reshape(len(found["kept"]) or 1, -1)
    flags = zip(*(found[name].tolist() for name in ("kept", "foreign", "unknown")), strict=True)
    for number, (kept, foreign, unknown) in enumerate(flags):
        end = start + block_counts.shape[1] * kept
        counts = found["counts"][start:end].reshape(block_counts.shape[1], kept)
        yield Shared(counts, block_counts[number], documents[number].n_blocks, bool(foreign), bool(unknown))
        start = end
