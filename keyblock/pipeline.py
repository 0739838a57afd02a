"""The pipeline of a ranker, built from its description by training, evaluation and the service alike.

`keyblock.preparation` is its half that sees single texts; here queries and documents meet.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keyblock.adaptive import ADAPTIVE, Ranked
from keyblock.aggregation import AGGREGATORS, PassageAggregator
from keyblock.compiled_selection import CompiledSelection, is_compiled
from keyblock.description import PipelineConfig
from keyblock.encoders import Encoder
from keyblock.escalation import certainty, spread
from keyblock.evidence import evidence_of
from keyblock.meeting import Meeting, WeighedQuery
from keyblock.packing import Packed, grow, pack, pack_passage, room_beside
from keyblock.pooled import Shared, knows, shared_terms
from keyblock.preparation import TextPreparer
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selection import BlockScores, Chosen, Selection, Shortlist, alone
from keyblock.selectors import SELECTORS, SelectedBy, rank_blocks
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from keyblock.vector_scores import scored_blocks

LEAST_WEIGHT = 1e-6  # of a sequence without a word of the query: it counts where none has any, and then all count alike
Asked = tuple[Shortlist, NDArray[np.floating]]
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
        self._adaptive = None if config.packing.adaptive is None else ADAPTIVE.create(config.packing.adaptive)

    def shortlist(self, query: PreparedQuery, document: PreparedDocument, budget: int | None = None) -> Shortlist:
        """The blocks that the model is asked about, each packed with the query.

        Raises ValueError where the pipeline's selector needs no model, or for a budget without room beside the query.
        """
        if not self.asks_model:
            raise ValueError(f"selector {self.selector.name!r} needs no model, so it has no shortlist")
        known = self._known(self._meeting(query, document))
        blocks = self.selector.shortlist(known.cheap)
        return Shortlist(known, blocks, self.block_sequences(query, document, blocks, budget))

    def question(self, query: PreparedQuery, document: PreparedDocument, count: int, budget: int | None = None) -> Shortlist:
        """So many blocks that escalation asks the model about, see `keyblock.escalation.spread`, each packed with the query."""
        known = self._known(self._meeting(query, document))
        best = 1 if self.config.escalation is None else self.config.escalation.blocks
        blocks = spread(rank_blocks(known.cheap), best, count)
        return Shortlist(known, blocks, self.block_sequences(query, document, blocks, budget))

    def select(
        self, query: PreparedQuery, document: PreparedDocument, budget: int | None = None, asked: Asked | None = None
    ) -> Selection:
        """Rank the document's blocks for the query and pack the best.

        Args:
            query: the query.
            document: the document.
            budget: tokens a sequence may have; the pipeline's own by default, which may be more where the model was asked in doubt.
            asked: what `shortlist` or `question` gave, and what the model said of it.

        Raises ValueError for a budget without room beside the query, and where the logits are missing that the selector needs.
        """
        return self._select(self._meeting(query, document), self._budget(budget, asked), asked)

    def select_each(
        self, query: PreparedQuery, documents: Sequence[PreparedDocument], budget: int | None = None
    ) -> list[Selection]:
        """What `select` gives for each document, where no model is asked; what is a fact of the query is found once."""
        weighed, tokens = WeighedQuery(query, self.frequencies), self._budget(budget)
        if self._compiled is not None:
            return self._compiled.select(weighed, documents, tokens)
        return [self._select(Meeting(weighed, document), tokens) for document in documents]

    def _compiled_selection(self) -> CompiledSelection | None:
        """What does the work of `select_each` where it is compiled, and knows all of this pipeline's parts."""
        if not is_compiled(self.config, self.selector, self.evidence, self.aggregator):
            return None
        template = self.tokenizer.template
        return CompiledSelection(self.selector, self.evidence, self.aggregator, template, self.frequencies, self._alphabets)

    def _select(self, meeting: Meeting, budget: int, asked: Asked | None = None) -> Selection:
        if asked is not None:
            known, scores = asked[0].known, asked[0].scored(asked[1])
        elif self.asks_model:
            raise ValueError(f"selector {self.selector.name!r} needs the model's logits of its shortlist")
        else:
            known = self._known(meeting)
            scores = known.cheap
        document = meeting.document
        order = np.lexsort((-known.cheap, -scores))  # blocks that the model was not asked about follow by their cheap score
        evident = document.n_blocks > 1 and self._cheap.tells_apart(known.cheap, known.lexical, meeting)
        if asked is None:  # what the model chose is read as far as the budget goes
            order = self._enough(meeting, order, known.lexical, evident)
        chosen = self._weighted(meeting, self._pack(meeting.query, document, order, scores, budget))
        evidence = evidence_of(known.lexical, meeting.found, meeting.idf, known.near)
        if chosen.is_all_of(document):
            by, doubtful = None, False
        else:
            by = self._selected_by(evident, document.n_blocks, asked)
            doubtful = asked is None and self._doubtful(meeting, chosen)
        n_asked = asked[0].n_tokens if asked else 0
        shared = self._shared(meeting)
        return Selection(chosen.sequences, chosen.taken, scores, evidence, chosen.reach, by, doubtful, n_asked, shared)

    def _meeting(self, query: PreparedQuery, document: PreparedDocument) -> Meeting:
        return Meeting(WeighedQuery(query, self.frequencies), document)

    def block_sequences(
        self, query: PreparedQuery, document: PreparedDocument, blocks: NDArray[np.intp], budget: int | None = None
    ) -> list[Packed]:
        """The query with each of the blocks, shape (n,), for itself, in the order given."""
        template, tokens = self.tokenizer.template, self._budget(budget)
        return [pack(query, document, blocks[i : i + 1], template, tokens) for i in range(len(blocks))]

    def _shared(self, meeting: Meeting) -> Shared | None:
        """The query's terms in the document, and whether the model has learned such texts; None where nothing says what it has."""
        if self.config.trained_on is None:
            return None
        foreign = self.is_foreign(meeting.query, meeting.document)
        unknown = not foreign and not knows(self.frequencies, meeting.document)
        return shared_terms(meeting, foreign=foreign, unknown=unknown)

    def _known(self, meeting: Meeting) -> BlockScores:
        """What is known of the blocks without a model. A selector that goes by the evidence compares nothing again."""
        lexical = self.evidence.of(meeting)
        near = None if meeting.query.similar is None else meeting.near
        cheap = self._cheap.combined(lexical, meeting) if self._cheap_goes_by_evidence else self._cheap.of(meeting)
        return BlockScores(cheap, lexical, near)

    def _selected_by(self, evident: bool, n_blocks: int, asked: Asked | None) -> SelectedBy:
        """What chose: the model only where it saw blocks that were shortlisted for a reason, a spread of them, or all."""
        wide = evident or not self.asks_model or (asked is not None and len(asked[0].blocks) == n_blocks)
        if asked is not None and (asked[1] > -np.inf).any() and wide:
            return SelectedBy.MODEL
        return SelectedBy.EVIDENCE if evident else SelectedBy.POSITION

    def _doubtful(self, meeting: Meeting, chosen: Chosen) -> bool:
        if self.config.escalation is None:
            return False
        return certainty(meeting.held, meeting.idf, chosen.held) < self.config.escalation.below

    def _enough(self, meeting: Meeting, order: NDArray[np.intp], lexical: NDArray[np.float64], evident: bool) -> NDArray[np.intp]:
        """The best blocks that may be read, best first: all of `order` where no rule says how many are enough."""
        if self._adaptive is None:
            return order
        bounds = meeting.document.bounds[order]
        ranked = Ranked(bounds[:, 1] - bounds[:, 0], lexical[order], meeting.counts[:, order], meeting.idf)
        return order[: self._adaptive.count(ranked, evident=evident)]

    def _pack(
        self, query: PreparedQuery, document: PreparedDocument, order: NDArray[np.intp], scores: NDArray[np.float64], budget: int
    ) -> Chosen:
        """The best blocks: in one sequence, or each in one of its own, alone or with its neighbours."""
        if not isinstance(self.aggregator, PassageAggregator):
            packed = pack(query, document, order, self.tokenizer.template, budget)
            return Chosen([packed], packed.taken, alone(packed.taken))
        most = self.aggregator.passages
        if self.config.packing.grow:
            return self._grown(query, document, order, scores, budget, most)
        taken = order[: most or None]
        if self.config.cosine_scale is not None:
            return Chosen(scored_blocks(query, document, np.sort(taken), self.config.cosine_scale), taken, alone(taken))
        return Chosen(self.block_sequences(query, document, np.sort(taken), budget), taken, alone(taken))

    def _weighted(self, meeting: Meeting, chosen: Chosen) -> Chosen:
        """The same where sequences are weighed, each by the words of the query that its blocks hold."""
        if not self.aggregator.weighted:
            return chosen
        counts = np.concatenate([[0.0], np.cumsum(meeting.counts.sum(axis=0))])
        reach = chosen.reach[np.argsort(chosen.taken)]  # as the sequences stand
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
        """At most so many blocks (0: as many as there are) that take in their neighbours."""
        template = self.tokenizer.template
        _, room = room_beside(query, document, template, budget)
        passages = grow(document.bounds, scores, order, room, most)
        in_document = passages[np.argsort(passages[:, 0])].tolist()
        sequences = [pack_passage(query, document, tuple(passage), template, budget) for passage in in_document]
        return Chosen(sequences, passages[:, 0], passages[:, 1:])

    def _budget(self, budget: int | None, asked: Asked | None = None) -> int:
        """Tokens that a sequence may have; where the model was asked in doubt, that may be more."""
        if budget is not None:
            return budget
        escalated = None if asked is None or self.config.escalation is None else self.config.escalation.budget
        return self.config.packing.budget if escalated is None else escalated
