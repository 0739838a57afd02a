"""The pipeline of a ranker; training, evaluation and the service all build it from the same description.

`keyblock.preparation` is the half that sees single texts; here queries and documents meet.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import AGGREGATORS, PassageAggregator
from keyblock.description import PipelineConfig
from keyblock.encoders import Encoder
from keyblock.fusion import evidence_of
from keyblock.packing import Packed, grow, pack, pack_passage, room_beside
from keyblock.pooled import Shared, knows_language, shared_terms
from keyblock.preparation import TextPreparer
from keyblock.prepared import PreparedDocument, PreparedQuery, QueryDocument, WeighedQuery
from keyblock.selection import BlockScores, Chosen, CompiledSelection, Selection, Shortlist, is_compiled, single_reach
from keyblock.selectors import SELECTORS, SelectedBy
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from keyblock.vector_scores import scored_blocks

LEAST_WEIGHT = 1e-6  # of a sequence without a query word: if no sequence has one, all count the same
ScoredShortlist = tuple[Shortlist, NDArray[np.floating]]
"""A shortlist, and the model's logits of its sequences, shape (n_shortlisted,)."""


class Pipeline(TextPreparer):
    """Prepares queries and documents, chooses blocks and packs them. Safe to use from several threads; see TextPreparer."""

    def __init__(
        self, config: PipelineConfig, tokenizer: Tokenizer, frequencies: DocumentFrequencies, encoder: Encoder | None = None
    ) -> None:
        super().__init__(config, tokenizer, frequencies, encoder)
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
        query = query.beside(document)
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
        return self._select(self._meeting(query.beside(document), document), self._budget(budget), shortlisted)

    def select_each(
        self, query: PreparedQuery, documents: Sequence[PreparedDocument], budget: int | None = None
    ) -> list[Selection]:
        """The result of `select` for each document without a model; values that depend only on the query are computed once."""
        if query.mended is not None:
            return self._select_beside(query, documents, budget)
        weighed, tokens = WeighedQuery(query, self.frequencies), self._budget(budget)
        if self._compiled is not None:
            return self._compiled.select(weighed, documents, tokens)
        return [self._select(QueryDocument(weighed, document), tokens) for document in documents]

    def _select_beside(self, query: PreparedQuery, documents: Sequence[PreparedDocument], budget: int | None) -> list[Selection]:
        """The result of `select` for each document, of a query with typing errors."""
        read = [query.beside(document) for document in documents]
        found: dict[int, Selection] = {}
        for one in {id(each): each for each in read}.values():
            numbers = [number for number, each in enumerate(read) if each is one]
            plain = replace(one, mended=None)
            found.update(zip(numbers, self.select_each(plain, [documents[n] for n in numbers], budget), strict=True))
        return [found[number] for number in range(len(documents))]

    def _compiled_selection(self) -> CompiledSelection | None:
        """The compiled part for `select_each`, if it is installed and supports all parts of this pipeline; else None."""
        if not is_compiled(self.config, self.selector, self.evidence, self.aggregator):
            return None
        template = self.tokenizer.template
        return CompiledSelection(self.selector, self.evidence, self.aggregator, template, self.frequencies, self._alphabets)

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
