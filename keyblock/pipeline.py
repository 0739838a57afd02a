"""The pipeline of a ranker, described once and built from the description by training, evaluation and the service alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from keyblock.aggregation import AGGREGATORS, PassageAggregator
from keyblock.encoders import ENCODERS, Encoder, vector_of, with_vectors
from keyblock.escalation import Escalation, certainty, spread
from keyblock.evidence import Activation, Fusion, lexical_evidence
from keyblock.packing import Packed, grow, pack, pack_passage, room_beside
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.queries import QUERY_TERMS, LongQuery, long_query
from keyblock.segmenters import SEGMENTERS
from keyblock.selectors import SELECTORS, Need, SelectedBy, idf_of, idf_weights, rank_blocks, term_counts, term_found
from keyblock.text.analyzer import Analyzer, AnalyzerConfig, unique_in_order
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.prompt import Prompt
from keyblock.text.reader import Pause, Reader
from keyblock.text.reading import Reading
from keyblock.text.tokenizer import Tokenizer

TITLE_TOKEN_CHARS = 64  # characters of a title that are tokenized for each token it may have: the rest of a huge one costs nothing
QUERY_VECTOR_TOKENS = 1024  # tokens of a query that its vector is made of, beyond those that the model reads
INSTRUCTION_TOKENS = 64  # of what a request tells a model with a prompt to do


class PackingConfig(BaseModel):
    """How much of what a sequence holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    query_tokens: int = Field(48, ge=1, le=256, description="tokens of the query that are kept at most")
    long_query: LongQuery | None = Field(
        None, description="of a query of more tokens its key sentences are kept, where this says so; none: its first tokens"
    )
    title_tokens: int = Field(16, ge=0, le=128, description="tokens of the title in front of the blocks; 0 leaves it out")
    budget: int = Field(128, ge=16, description="tokens of a sequence by default, specials included")
    budget_range: tuple[int, int] = Field((64, 256), description="budgets the model was measured at: never fed outside")
    grow: bool = Field(
        False,
        description="where each chosen block is a sequence of its own: it takes in whole neighbours as far as the budget goes",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.budget_range
        if not low <= self.budget <= high:
            raise ValueError(f"budget {self.budget} lies outside budget_range {low} to {high}")
        if low < self.longest_query + 8:
            raise ValueError(f"budget_range starts at {low}: no room for a block beside {self.longest_query} query tokens")
        return self

    @property
    def longest_query(self) -> int:
        """Tokens of a query that are kept at most, however long it is."""
        return max(self.query_tokens, self.long_query.tokens if self.long_query else 0)

    def kept_inside(self, asked: float | None) -> int:
        """The tokens a sequence may have: what was asked for, kept inside `budget_range`; `budget` where nothing was."""
        low, high = self.budget_range
        return self.budget if asked is None else int(min(max(asked, low), high))


class PipelineConfig(BaseModel):
    """The whole description; `bundle.json` and a training run carry it as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)  # defaults are written out with their parameters
    analyzer: AnalyzerConfig = AnalyzerConfig()
    segmenter: dict[str, Any] = {"name": "cogltx"}
    selector: dict[str, Any] = {"name": "bm25"}
    encoder: dict[str, Any] | None = Field(None, description="makes the vectors that a selector compares; none: there are none")
    packing: PackingConfig = PackingConfig()
    aggregator: dict[str, Any] = {"name": "joint"}
    evidence: dict[str, Any] = Field(
        {"name": "bm25"},
        description="the lexical selector whose scores fusion adds and deadlines order by; left out, it is the selector itself "
        "where that is lexical (of one that asks the model, the cheap one in front; of a hybrid, its own), else BM25, and the "
        "fusion's weights of block scores are dropped: they were learned on places in the document",
    )
    fusion: Fusion = Fusion()
    activation: Activation = Activation()
    prompt: Prompt | None = Field(None, description="around query and document, for a model that answers in words; none: a pair")
    escalation: Escalation | None = Field(
        None,
        description="when the model is asked to choose blocks, of documents where the selector's evidence is weak; none: never",
    )

    @model_validator(mode="after")
    def _escalates_to_the_model(self) -> Self:
        if self.escalation is None:
            return self
        low, high = self.packing.budget_range
        if self.escalation.budget is not None and not low <= self.escalation.budget <= high:
            raise ValueError(f"escalation.budget {self.escalation.budget} lies outside budget_range {low} to {high}")
        if self.asks_model:
            raise ValueError(f"selector {self.selector['name']!r} asks the model about every document: leave out escalation")
        return self

    @model_validator(mode="before")
    @classmethod
    def _evidence_left_out(cls, description: Any) -> Any:
        """What descriptions from before evidence was declared mean: see `evidence`."""
        if not isinstance(description, Mapping) or "evidence" in description:
            return description
        try:
            selector = SELECTORS.create(description.get("selector", {"name": "bm25"})).cheap
        except ValueError:
            return description  # the selector's own validator says why
        if (terms := selector.terms_by) is not None:
            return {**description, "evidence": terms.describe()}
        fusion = description.get("fusion", {})
        if isinstance(fusion, Fusion):
            fusion = fusion.model_dump()
        without = {"best_block": 0.0, "top_blocks": 0.0}
        return {**description, "fusion": {**fusion, **without}} if isinstance(fusion, Mapping) else description

    @field_validator("segmenter")
    @classmethod
    def _segmenter(cls, description: dict[str, Any]) -> dict[str, Any]:
        return SEGMENTERS.create(description).describe()

    @field_validator("selector")
    @classmethod
    def _selector(cls, description: dict[str, Any]) -> dict[str, Any]:
        return SELECTORS.create(description).describe()

    @field_validator("encoder")
    @classmethod
    def _encoder(cls, description: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if description is None else ENCODERS.create(description).describe()

    @model_validator(mode="after")
    def _encoder_for_vectors(self) -> Self:
        if self.encoder is None and SELECTORS.create(self.selector).compares_vectors:
            known = ", ".join(ENCODERS.names())
            raise ValueError(
                f"selector {self.selector['name']!r} compares vectors: name an encoder that makes them (one of: {known})"
            )
        if self.encoder and SELECTORS.create(self.selector).compares_tokens and not ENCODERS.create(self.encoder).of_tokens:
            raise ValueError(f"selector {self.selector['name']!r} compares tokens, and encoder {self.encoder['name']!r} has none")
        return self

    @field_validator("aggregator")
    @classmethod
    def _aggregator(cls, description: dict[str, Any]) -> dict[str, Any]:
        return AGGREGATORS.create(description).describe()

    @field_validator("evidence")
    @classmethod
    def _evidence(cls, description: dict[str, Any]) -> dict[str, Any]:
        selector = SELECTORS.create(description)
        if not selector.lexical:
            lexical = ", ".join(name for name in SELECTORS.names() if SELECTORS.create(name).lexical)
            raise ValueError(f"selector {selector.name!r} is no evidence, since it does not go by terms; take one of: {lexical}")
        return selector.describe()

    @property
    def asks_model(self) -> bool:
        """Whether the model is asked about single blocks before the selection."""
        return Need.LOGITS in SELECTORS.create(self.selector).needs


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """What the cheap selector leaves to a learned one.

    Attributes:
        scores: shape (n_blocks,), the cheap selector's.
        lexical: shape (n_blocks,), the evidence's.
        blocks: shape (n_shortlisted,), block numbers in document order.
        sequences: as many, each the query with one of these blocks.
    """

    scores: NDArray[np.float64]
    lexical: NDArray[np.float64]
    blocks: NDArray[np.intp]
    sequences: list[Packed]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A document seen through a query.

    Attributes:
        sequences: the model's inputs: one of all chosen blocks where the aggregator is joint; else one for each, in document
            order, and none for a document without blocks.
        taken: shape (n_taken,), the chosen blocks, best first.
        scores: shape (n_blocks,), the selector's score of every block; -inf where a learned one was not asked. See `decided`.
        evidence: shape (3,), the lexical features that fusion adds to the logit.
        reach: shape (n_taken, 2), which blocks each of them stands for: the first, and the one behind the last. Where a block takes
            in neighbours, those that its sequence holds; else the block alone.
        by: what chose the blocks; None where every block is read in full, or there is none.
        doubtful: whether the model is to be asked: the pipeline escalates, and the query's words are not in the chosen blocks.
        asked_tokens: that the model was fed to choose, where it selects.
    """

    sequences: list[Packed]
    taken: NDArray[np.intp]
    scores: NDArray[np.float64]
    evidence: NDArray[np.float64]
    reach: NDArray[np.intp]
    by: SelectedBy | None = None
    doubtful: bool = False
    asked_tokens: int = 0

    @property
    def packed(self) -> Packed:
        """The one sequence of a joint selection."""
        (packed,) = self.sequences
        return packed

    def decided(self, passages: NDArray[np.float32]) -> Self:
        """The same once the model has scored its passages: ordered by that, with that as the scores of the chosen blocks.

        Args:
            passages: shape (n_taken,), of the sequences, which stand in document order; see `keyblock.aggregation.Aggregated`.
        """
        in_document, scores = np.argsort(self.taken), self.scores.copy()
        scores[self.taken[in_document]] = passages
        order = in_document[rank_blocks(np.asarray(passages, dtype=np.float64))]
        return replace(self, taken=self.taken[order], scores=scores, reach=self.reach[order])


class Pipeline:
    """Prepares queries and documents and packs pairs. Safe to use from several threads.

    Args:
        encoder: what the description names; see `keyblock.encoders.open_encoder`.

    Raises ValueError when the description names an unknown component or parameter, or an encoder that is not given.
    """

    def __init__(
        self, config: PipelineConfig, tokenizer: Tokenizer, frequencies: DocumentFrequencies, encoder: Encoder | None = None
    ) -> None:
        if (encoder is None) != (config.encoder is None):
            raise ValueError(f"the description has {config.encoder or 'no'} encoder, and {encoder or 'none'} is given")
        self.config = config
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.frequencies = frequencies
        self.analyzer = Analyzer(config.analyzer)
        self.segmenter = SEGMENTERS.create(config.segmenter)
        self.selector = SELECTORS.create(config.selector)
        self.asks_model = config.asks_model  # `shortlist` then comes before `select`
        self.evidence = SELECTORS.create(config.evidence)
        self._cheap = self.selector.cheap
        self._cheap_goes_by_evidence = self._cheap.terms_by == self.evidence
        self.aggregator = AGGREGATORS.create(config.aggregator)
        self._costs = self.segmenter.cut_costs(tokenizer)
        self.reader = Reader(tokenizer, self.analyzer)

    def prepare_query(self, text: str, instruction: str | None = None) -> PreparedQuery:
        """Token ids up to the cap, and the distinct terms up to QUERY_TERMS (terms beyond the token cap still select blocks).

        Its vector, where there is an encoder, is of all its tokens, up to QUERY_VECTOR_TOKENS. See `keyblock.queries` for what is
        kept of a query beyond the cap where the pipeline has a `long_query`: its vector then is of that.

        Args:
            text: any Unicode.
            instruction: what a model with a prompt is told to do, its first INSTRUCTION_TOKENS; none: what its prompt says.
        """
        ids = self.tokenizer.ids(text)
        cap, long = self.config.packing.query_tokens, self.config.packing.long_query
        if len(ids) > cap and long is not None and self.tokenizer.prompt is None:
            query = long_query(self.reader.read([text])[0], self.analyzer, self._idf, long)
            return self._with_query_vector(query, query.token_ids)
        terms = np.asarray(unique_in_order(self.analyzer.keys(text))[:QUERY_TERMS], dtype=np.int64)
        reads = f"its first {cap} tokens" if len(ids) > cap else ""
        read = self._asked(text, ids, instruction)
        return self._with_query_vector(PreparedQuery(read, terms, len(ids) > cap, reads=reads), ids[:QUERY_VECTOR_TOKENS])

    def _asked(self, text: str, ids: NDArray[np.int32], instruction: str | None) -> NDArray[np.int32]:
        """What the model reads of a query with these ids; where it has a prompt, all of that in front of the document."""
        prompt, cap = self.tokenizer.prompt, self.config.packing.query_tokens
        if prompt is None:
            return ids[:cap]
        asked = None if instruction is None else self.tokenizer.beginning(instruction, INSTRUCTION_TOKENS)
        return prompt.head(self.tokenizer.backend, self.tokenizer.beginning(text, cap), asked)

    def _with_query_vector(self, query: PreparedQuery, ids: NDArray[np.int32]) -> PreparedQuery:
        """The query with what the encoder makes of these tokens, where there is one."""
        if self.encoder is None:
            return query
        similar = self.encoder.similar(ids) if self.selector.compares_tokens else None
        return replace(query, vector=vector_of(ids, self.encoder), similar=similar)

    def _idf(self, terms: NDArray[np.int64]) -> NDArray[np.float64]:
        return idf_of(terms, self.frequencies)

    def prepare_document(self, text: str, title: str = "") -> PreparedDocument:
        """One document; see `prepare_documents`."""
        return self.prepare_documents([text], [title])[0]

    def prepare_documents(
        self, texts: Sequence[str], titles: Sequence[str] | None = None, pause: Pause = int
    ) -> list[PreparedDocument]:
        """Tokenize and cut documents; what follows does not depend on a query.

        Args:
            texts: any Unicode; an empty text has no block.
            titles: as many, or none.
            pause: is called between the steps of reading, which are of bounded length; see `keyblock.text.reader`.
        """
        titles = titles or [""] * len(texts)
        lead = self.tokenizer.prompt.lead if self.tokenizer.prompt else ""
        led = [f"{lead}{text}" if text else text for text in texts] if lead else texts
        documents = [self._document(*parts, len(lead)) for parts in zip(self.reader.read(led, pause), titles, strict=True)]
        return documents if self.encoder is None else with_vectors(documents, self.encoder, pause)

    def check(self, document: PreparedDocument) -> None:
        """Raise ValueError for a document that this pipeline cannot have prepared: a graph would fail on it, or a selector."""
        largest = max(document.token_ids.max(initial=0), document.title_ids.max(initial=0))
        if largest >= self.tokenizer.vocabulary_size:
            raise ValueError(f"has the token {largest}, and the model knows {self.tokenizer.vocabulary_size}")
        due = None if self.encoder is None else (document.n_blocks, self.encoder.dimensions)
        found = None if document.vectors is None else document.vectors.shape
        if found != due:
            raise ValueError(f"has vectors of shape {found}, and the pipeline makes them of {due}")

    def _document(self, reading: Reading, title: str, lead: int) -> PreparedDocument:
        bounds = self.segmenter.ranges(self._costs(reading))
        starts, ends = reading.offsets(bounds)
        # a character of several tokens (Hangul) may be cut in two: it is the first block's, unless the second has no other
        cut_in_two = (bounds[:-1, 1] <= bounds[1:, 0]) & (ends[:-1] < ends[1:])
        starts[1:] = np.where(cut_in_two, np.maximum(starts[1:], ends[:-1]), starts[1:])
        terms = reading.terms(starts, ends)
        if lead:
            starts, ends = np.maximum(starts - lead, 0), np.maximum(ends - lead, 0)
        return PreparedDocument(reading.ids, bounds, starts, ends, terms.keys, terms.bounds, self._title(title))

    def _title(self, title: str) -> NDArray[np.int32]:
        cap = self.config.packing.title_tokens
        title = title[: TITLE_TOKEN_CHARS * cap]
        lead = self.tokenizer.prompt.lead if self.tokenizer.prompt else ""
        return self.tokenizer.ids(f"{lead}{title}")[:cap] if title and cap else np.zeros(0, np.int32)

    def shortlist(self, query: PreparedQuery, document: PreparedDocument, budget: int | None = None) -> Shortlist:
        """The blocks that the model is asked about, each packed with the query.

        Raises ValueError where the pipeline's selector needs no model, or for a budget without room beside the query.
        """
        if not self.asks_model:
            raise ValueError(f"selector {self.selector.name!r} needs no model, so it has no shortlist")
        scores, lexical = self._cheap_scores(query, document)
        blocks = self.selector.shortlist(scores)
        return Shortlist(scores, lexical, blocks, self.block_sequences(query, document, blocks, budget))

    def select(
        self,
        query: PreparedQuery,
        document: PreparedDocument,
        budget: int | None = None,
        asked: tuple[Shortlist, NDArray[np.floating]] | None = None,
    ) -> Selection:
        """Rank the document's blocks for the query and pack the best.

        Args:
            query: the query.
            document: the document.
            budget: tokens a sequence may have; the pipeline's own by default, which may be more where the model was asked in doubt.
            asked: the shortlist and the model's logits of its sequences, shape (n_shortlisted,), where the selector asks for them,
                or the pipeline escalates.

        Raises ValueError for a budget without room beside the query, and where the logits are missing that the selector needs.
        """
        if asked is not None:
            cheap, lexical, scores = asked[0].scores, asked[0].lexical, np.full(document.n_blocks, -np.inf)
            scores[asked[0].blocks] = asked[1]
            budget = self._escalated_budget if budget is None else budget
        elif self.asks_model:
            raise ValueError(f"selector {self.selector.name!r} needs the model's logits of its shortlist")
        else:
            scores, lexical = self._cheap_scores(query, document)
            cheap = scores
        order = np.lexsort((-cheap, -scores))  # blocks that the model was not asked about follow by their cheap score
        sequences, taken, reach = self._pack(query, document, order, scores, budget)
        evidence = lexical_evidence(lexical, term_found(query, document), idf_weights(query, self.frequencies))
        evident = not (whole := _reads_all(document, sequences, reach)) and self._cheap.tells_apart(cheap, lexical, query, document)
        by = None if whole else self._selected_by(evident, document.n_blocks, asked)
        doubtful = by is not None and asked is None and self._doubtful(query, document, held_blocks(reach))
        asked_tokens = 0 if asked is None else sum(len(packed.ids) for packed in asked[0].sequences)
        return Selection(sequences, taken, scores, evidence, reach, by, doubtful, asked_tokens)

    def _doubtful(self, query: PreparedQuery, document: PreparedDocument, read: NDArray[np.intp]) -> bool:
        if self.config.escalation is None:
            return False
        found = term_counts(query, document) > 0
        return certainty(found, idf_weights(query, self.frequencies), read) < self.config.escalation.below

    def question(self, query: PreparedQuery, document: PreparedDocument, count: int, budget: int | None = None) -> Shortlist:
        """So many blocks that escalation asks the model about, see `keyblock.escalation.spread`, each packed with the query."""
        scores, lexical = self._cheap_scores(query, document)
        best = 1 if self.config.escalation is None else self.config.escalation.blocks
        blocks = spread(rank_blocks(scores), best, count)
        return Shortlist(scores, lexical, blocks, self.block_sequences(query, document, blocks, budget))

    def _selected_by(self, evident: bool, n_blocks: int, asked: tuple[Shortlist, NDArray[np.floating]] | None) -> SelectedBy:
        """What chose: the model only where it saw blocks that were shortlisted for a reason, a spread of them, or all."""
        wide = evident or not self.asks_model or (asked is not None and len(asked[0].blocks) == n_blocks)
        if asked is not None and (asked[1] > -np.inf).any() and wide:
            return SelectedBy.MODEL
        return SelectedBy.EVIDENCE if evident else SelectedBy.POSITION

    def _cheap_scores(self, query: PreparedQuery, document: PreparedDocument) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The block scores of the selector that needs no model, and of the evidence; each counts the terms once."""
        lexical = self.evidence.scores(query, document, self.frequencies)
        if self._cheap_goes_by_evidence:
            return self._cheap.combined(lexical, query, document, self.frequencies), lexical
        return self._cheap.scores(query, document, self.frequencies), lexical

    def _pack(
        self,
        query: PreparedQuery,
        document: PreparedDocument,
        order: NDArray[np.intp],
        scores: NDArray[np.float64],
        budget: int | None,
    ) -> tuple[list[Packed], NDArray[np.intp], NDArray[np.intp]]:
        """Sequences, the blocks taken, and the reach of each: see Selection."""
        if isinstance(self.aggregator, PassageAggregator):
            if self.config.packing.grow:
                return self._grown(query, document, order, scores, self._budget(budget))
            taken = order[: self.aggregator.passages or None]
            return self.block_sequences(query, document, np.sort(taken), budget), taken, alone(taken)
        packed = pack(query, document, order, self.tokenizer.template, self._budget(budget))
        return [packed], packed.taken, alone(packed.taken)

    def _grown(
        self, query: PreparedQuery, document: PreparedDocument, order: NDArray[np.intp], scores: NDArray[np.float64], budget: int
    ) -> tuple[list[Packed], NDArray[np.intp], NDArray[np.intp]]:
        """The same where the best blocks take in their neighbours."""
        template, most = self.tokenizer.template, getattr(self.aggregator, "passages", 0)
        _, room = room_beside(query, document, template, budget)
        passages = grow(document.bounds, scores, order, room, most)
        in_document = passages[np.argsort(passages[:, 0])].tolist()
        sequences = [pack_passage(query, document, tuple(passage), template, budget) for passage in in_document]
        return sequences, passages[:, 0], passages[:, 1:]

    def block_sequences(
        self, query: PreparedQuery, document: PreparedDocument, blocks: NDArray[np.intp], budget: int | None = None
    ) -> list[Packed]:
        """The query with each of the blocks, shape (n,), for itself, in the order given."""
        template, tokens = self.tokenizer.template, self._budget(budget)
        return [pack(query, document, blocks[i : i + 1], template, tokens) for i in range(len(blocks))]

    @property
    def _escalated_budget(self) -> int | None:
        return None if self.config.escalation is None else self.config.escalation.budget

    def _budget(self, budget: int | None) -> int:
        return self.config.packing.budget if budget is None else budget


def alone(taken: NDArray[np.intp]) -> NDArray[np.intp]:
    """The reach of blocks that stand for themselves, shape (n_taken, 2): see Selection."""
    return np.stack([taken, taken + 1], axis=1)


def held_blocks(reach: NDArray[np.intp]) -> NDArray[np.intp]:
    """The blocks that sequences of this reach hold, shape (n_held,): see Selection."""
    return np.concatenate([np.arange(first, end) for first, end in reach.tolist()]) if len(reach) else reach[:, 0]


def _reads_all(document: PreparedDocument, sequences: Sequence[Packed], reach: NDArray[np.intp]) -> bool:
    """Whether nothing had to be chosen: every block is read in full, or there is one at most."""
    n_read = int((reach[:, 1] - reach[:, 0]).sum())
    return document.n_blocks < 2 or (n_read == document.n_blocks and not any(packed.cut for packed in sequences))
