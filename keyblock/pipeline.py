"""The pipeline of a ranker; training, evaluation and the service all build it from the same description.

`keyblock.preparation` is the half that sees single texts. Here queries and documents meet: a selection is the blocks of a document
that the model reads for a query, with their scores. `CompiledSelection` selects with `keyblock_native`, for many documents at once
and without the GIL. The Python code of Pipeline is the reference: each score is the same sum in the same order, so that the same
blocks tie.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyblock import native
from keyblock.aggregation import AGGREGATORS, Aggregator, PassageAggregator
from keyblock.description import PipelineConfig
from keyblock.encoders import Encoder
from keyblock.fusion import evidence_of
from keyblock.packing import Packed, grow, pack, pack_passage, room_beside, room_in
from keyblock.pooled import FEWEST, KEPT, KNOWN, LOOKED_UP, TERMS_BY, Shared, knows_language, shared_terms
from keyblock.preparation import TextPreparer
from keyblock.prepared import PRODUCT, PreparedDocument, PreparedQuery, QueryDocument, WeighedQuery, similar_tokens, whole_numbers
from keyblock.selectors import SELECTORS, Bm25, Hybrid, SelectedBy, Selector, rank_blocks
from keyblock.text.alphabets import CLEARLY, Alphabets
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import PairTemplate, Tokenizer
from keyblock.vector_scores import scored_blocks

LEAST_WEIGHT = 1e-6  # of a sequence without a query word: if no sequence has one, all count the same
BY = (None, SelectedBy.EVIDENCE, SelectedBy.POSITION)  # in the order of keyblock_native's numbers
NO_VECTOR = np.zeros(0)


class BlockScores(NamedTuple):
    """Scores of a document's blocks that need no model, each of shape (n_blocks,).

    Attributes:
        cheap: scores of the selector that needs no model.
        lexical: scores of the pipeline's evidence.
        near: how near the blocks' tokens are to the query's, see `QueryDocument.near`; none: tokens are not compared.
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
        meaning: the cosine of the query's meaning and that of the nearest block; None for a document that is not understood.
    """

    sequences: list[Packed]
    taken: NDArray[np.intp]
    scores: NDArray[np.float64]
    evidence: NDArray[np.float64]
    reach: NDArray[np.intp]
    by: SelectedBy | None = None
    selection_tokens: int = 0
    shared: Shared | None = None
    meaning: float | None = None

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


ScoredShortlist = tuple[Shortlist, NDArray[np.floating]]
"""A shortlist, and the model's logits of its sequences, shape (n_shortlisted,)."""


class Pipeline(TextPreparer):
    """Prepares queries and documents, chooses blocks and packs them. Safe to use from several threads; see TextPreparer."""

    def __init__(
        self,
        config: PipelineConfig,
        tokenizer: Tokenizer,
        frequencies: DocumentFrequencies,
        encoder: Encoder | None = None,
        open_meaning: Callable[[], Encoder] | None = None,
    ) -> None:
        super().__init__(config, tokenizer, frequencies, encoder, open_meaning)
        self.asks_model = config.asks_model  # `shortlist` then comes before `select`
        self.evidence = SELECTORS.create(config.evidence)
        self.aggregator = AGGREGATORS.create(config.aggregator)
        self._cheap = self.selector.cheap
        self._cheap_goes_by_evidence = self._cheap.terms_by == self.evidence
        self._compiled = self._compiled_selection()

    def shortlist(self, query: PreparedQuery, document: PreparedDocument, budget: int | None = None) -> Shortlist:
        """The blocks that the model scores for the selector, each packed with the query.

        Raises ValueError if the pipeline's selector needs no model, and for a budget without room beside the query.
        """
        if not self.asks_model:
            raise ValueError(f"selector {self.selector.name!r} needs no model, so it has no shortlist")
        query = self.beside(query, document)
        known = self._known(self._meeting(query, document))
        blocks = self.selector.shortlist(known.cheap)
        return Shortlist(known, blocks, self.block_sequences(query, document, blocks, budget))

    def select(
        self,
        query: PreparedQuery,
        document: PreparedDocument,
        budget: int | None = None,
        shortlisted: ScoredShortlist | None = None,
    ) -> Selection:
        """Rank the document's blocks for the query and pack the best.

        Args:
            query: the query.
            document: the document.
            budget: tokens a sequence may have; by default the pipeline's.
            shortlisted: the result of `shortlist`, with the model's logits.

        Raises ValueError for a budget without room beside the query, and if the selector needs logits and has none.
        """
        return self._select(self._meeting(self.beside(query, document), document), self._budget(budget), shortlisted)

    def select_each(
        self, query: PreparedQuery, documents: Sequence[PreparedDocument], budget: int | None = None
    ) -> list[Selection]:
        """The result of `select` for each document without a model; values that depend only on the query are computed once."""
        alike: dict[tuple[bool, bool], list[int]] = {}  # numbers of the documents that meet the query in the same form
        for number, document in enumerate(documents):
            alike.setdefault((query.beside(document) is query, self._understands(document)), []).append(number)
        found: dict[int, Selection] = {}
        for numbers in alike.values():
            own = [documents[number] for number in numbers]
            found.update(zip(numbers, self._select_alike(self.beside(query, own[0]), own, self._budget(budget)), strict=True))
        return [found[number] for number in range(len(documents))]

    def beside(self, query: PreparedQuery, document: PreparedDocument) -> PreparedQuery:
        """The query as it meets a document, which may have a word that the query spells wrongly, and may be understood."""
        query = query.beside(document)
        return self.understanding.beside(query) if self.understanding and self._understands(document) else query

    def _understands(self, document: PreparedDocument) -> bool:
        return self.understanding is not None and self.understanding.has_read(document)

    def _select_alike(self, query: PreparedQuery, documents: Sequence[PreparedDocument], budget: int) -> list[Selection]:
        """The selections of documents that meet the query in the form given."""
        weighed = WeighedQuery(query, self.frequencies)
        if self._compiled is not None:
            found = self._compiled.select(weighed, documents, budget)
        else:
            found = [self._select(QueryDocument(weighed, document), budget) for document in documents]
        if self.understanding is None or not self._understands(documents[0]):
            return found
        meanings = self.understanding.nearest(query, documents)
        return [replace(one, meaning=meaning) for one, meaning in zip(found, meanings, strict=True)]

    def _compiled_selection(self) -> "CompiledSelection | None":
        """The compiled part for `select_each`, if it is installed and supports all parts of this pipeline; else None."""
        selector, evidence, aggregator = self.selector, self.evidence, self.aggregator
        lexical = all(isinstance(one, Bm25) and one.idf == "documents" for one in (evidence, selector.terms_by))
        plain = not (self.config.packing.grow or aggregator.weighted or self.config.cosine_scale is not None)
        packs = plain or not isinstance(aggregator, PassageAggregator)
        if native.core is None or not (isinstance(selector, Bm25 | Hybrid) and lexical and packs):
            return None
        return CompiledSelection(selector, evidence, aggregator, self.tokenizer.template, self.frequencies, self._alphabets)

    def _select(self, pair: QueryDocument, budget: int, shortlisted: ScoredShortlist | None = None) -> Selection:
        if shortlisted is not None:
            known, scores = shortlisted[0].known, shortlisted[0].scored(shortlisted[1])
        elif self.asks_model:
            raise ValueError(f"selector {self.selector.name!r} needs the model's logits of its shortlist")
        else:
            known = self._known(pair)
            scores = known.cheap
        document = pair.document
        order = np.lexsort((-known.cheap, -scores))  # blocks that the model did not score follow by their cheap score
        evident = document.n_blocks > 1 and self._cheap.tells_apart(known.cheap, known.lexical, pair)
        chosen = self._weighted(pair, self._pack(pair.query, document, order, scores, budget))
        evidence = evidence_of(known.lexical, pair.found, pair.idf, known.near)
        by = None if chosen.is_all_of(document) else self._selected_by(evident, document.n_blocks, shortlisted)
        n_asked = shortlisted[0].n_tokens if shortlisted else 0
        shared = self._shared(pair)
        return Selection(chosen.sequences, chosen.taken, scores, evidence, chosen.reach, by, n_asked, shared)

    def _meeting(self, query: PreparedQuery, document: PreparedDocument) -> QueryDocument:
        return QueryDocument(WeighedQuery(query, self.frequencies), document)

    def block_sequences(
        self, query: PreparedQuery, document: PreparedDocument, blocks: NDArray[np.intp], budget: int | None = None
    ) -> list[Packed]:
        """One sequence of the query and the block for each of the blocks, shape (n,), in the order given."""
        template, tokens = self.tokenizer.template, self._budget(budget)
        return [pack(query, document, blocks[i : i + 1], template, tokens) for i in range(len(blocks))]

    def _shared(self, pair: QueryDocument) -> Shared | None:
        """The query's terms in the document, and whether the model has learned such texts; None if the bundle does not say."""
        if self.config.trained_on is None:
            return None
        foreign = self.is_foreign(pair.query, pair.document)
        unknown = not foreign and not knows_language(self.frequencies, pair.document)
        return shared_terms(pair, foreign=foreign, unknown=unknown)

    def _known(self, pair: QueryDocument) -> BlockScores:
        """Scores of the blocks that need no model. A selector that uses the evidence's scores does not compute them again."""
        lexical = self.evidence.of(pair)
        near = None if pair.query.similar is None else pair.near
        cheap = self._cheap.combined(lexical, pair) if self._cheap_goes_by_evidence else self._cheap.of(pair)
        return BlockScores(cheap, lexical, near)

    def _selected_by(self, evident: bool, n_blocks: int, shortlisted: ScoredShortlist | None) -> SelectedBy:
        """What chose the blocks: the model only if it saw blocks shortlisted by evidence, or all."""
        wide = evident or (shortlisted is not None and len(shortlisted[0].blocks) == n_blocks)
        if shortlisted is not None and (shortlisted[1] > -np.inf).any() and wide:
            return SelectedBy.MODEL
        return SelectedBy.EVIDENCE if evident else SelectedBy.POSITION

    def _pack(
        self, query: PreparedQuery, document: PreparedDocument, order: NDArray[np.intp], scores: NDArray[np.float64], budget: int
    ) -> Chosen:
        """The best blocks in one sequence, or one sequence for each block, alone or with its neighbours."""
        if not isinstance(self.aggregator, PassageAggregator):
            packed = pack(query, document, order, self.tokenizer.template, budget)
            return Chosen([packed], packed.taken, single_reach(packed.taken))
        most = self.aggregator.passages
        if self.config.packing.grow:
            return self._grown(query, document, order, scores, budget, most)
        taken = order[: most or None]
        if self.config.cosine_scale is not None:
            return Chosen(scored_blocks(query, document, np.sort(taken), self.config.cosine_scale), taken, single_reach(taken))
        return Chosen(self.block_sequences(query, document, np.sort(taken), budget), taken, single_reach(taken))

    def _weighted(self, pair: QueryDocument, chosen: Chosen) -> Chosen:
        """The same with weights, if the aggregator weighs sequences: the number of query words in a sequence's blocks."""
        if not self.aggregator.weighted:
            return chosen
        counts = np.concatenate([[0.0], np.cumsum(pair.counts.sum(axis=0))])
        reach = chosen.reach[np.argsort(chosen.taken)]  # in the order of the sequences
        weights = np.maximum(counts[reach[:, 1]] - counts[reach[:, 0]], LEAST_WEIGHT)
        sequences = [replace(one, weight=weight) for one, weight in zip(chosen.sequences, weights.tolist(), strict=True)]
        return chosen._replace(sequences=sequences)

    def _grown(
        self,
        query: PreparedQuery,
        document: PreparedDocument,
        order: NDArray[np.intp],
        scores: NDArray[np.float64],
        budget: int,
        most: int,
    ) -> Chosen:
        """Passages grown from the best blocks, at most `most` (0: no limit)."""
        template = self.tokenizer.template
        _, room = room_beside(query, document, template, budget)
        passages = grow(document.bounds, scores, order, room, most)
        in_document = passages[np.argsort(passages[:, 0])].tolist()
        sequences = [pack_passage(query, document, tuple(passage), template, budget) for passage in in_document]
        return Chosen(sequences, passages[:, 0], passages[:, 1:])

    def _budget(self, budget: int | None) -> int:
        """Tokens that a sequence may have."""
        return self.config.packing.budget if budget is None else budget


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
