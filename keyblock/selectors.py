"""Which blocks of a document matter for a query: the cheap local pre-ranking of the KeyB paper (section 4).

``TF-IDF``: sum over shared terms of (ln tf + 1) * ln((N + 1) / (df + 1)).
``BM25``: sum over shared terms of ln((N + 1) / (df + 0.5)) * tf / (k1 * (1 - b + b * len / avg_len) + tf), Lucene's variant without
the constant (k1 + 1); avg_len is the mean block length of that document. N and df count documents, or blocks if BM25's `idf` says
so, since no frequency table covers every language.
"""

import math
import zlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from keyblock.prepared import PreparedDocument, PreparedQuery, QueryDocument, WeighedQuery, weighted_sum
from keyblock.registry import Component, Registry
from keyblock.text.analyzer import DocumentFrequencies

NEAR_COSINE, NEAR_TOKENS = 0.25, 0.38  # what a new description takes for `near`: on dev they best tell documents with the answer


class Need(StrEnum):
    """What a selector needs in addition to the query and the document."""

    TERMS = "terms"  # the terms of query and block alone
    FREQUENCIES = "frequencies"  # document frequencies of terms
    VECTORS = "vectors"  # vectors of the query and the blocks: the pipeline needs an encoder
    LOGITS = "logits"  # the model's logits of single blocks, computed in a round before the selection


class SelectedBy(StrEnum):
    """What chose the blocks of a document that are read, if not all are."""

    EVIDENCE = "evidence"  # the selector's scores tell its blocks apart
    MODEL = "model"  # the model scored single blocks
    POSITION = "position"  # no clear evidence tells them apart for this query, or the selector uses positions


class Selector(Component):
    """Scores the blocks of one document for one query; higher is better.

    A selector that needs LOGITS has no scores of its own: its `cheap` and `shortlist` decide which blocks the model scores.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()

    @property
    def lexical(self) -> bool:
        """Whether its scores are lexical evidence: they come only from the terms that a block shares with the query."""
        return bool(self.needs) and self.needs <= {Need.TERMS, Need.FREQUENCIES}

    def tells_apart(self, scores: NDArray[np.float64], lexical: NDArray[np.float64], pair: QueryDocument) -> bool:
        """Whether its scores tell a document's blocks apart for the query.

        Args:
            scores: shape (n_blocks,), the selector's scores.
            lexical: shape (n_blocks,), the scores of the pipeline's evidence.
            pair: the query and the document.
        """
        return bool(self.needs) and differ(scores)

    @property
    def cheap(self) -> "Selector":
        """The selector that needs no model: itself, or the one before the model."""
        return self

    @property
    def terms_by(self) -> "Selector | None":
        """The lexical selector whose scores it uses: itself, one inside it, or none."""
        return self if self.lexical else None

    def combined(self, lexical: NDArray[np.float64], pair: QueryDocument) -> NDArray[np.float64]:
        """The scores of `of`, from the known scores of `terms_by`: `lexical`, shape (n_blocks,)."""
        return lexical

    @property
    def compares_vectors(self) -> bool:
        """Whether it needs vectors, or the cheap selector before the model does."""
        return Need.VECTORS in self.needs | self.cheap.needs

    @property
    def compares_tokens(self) -> bool:
        """Whether it also compares vectors of single tokens, or the cheap selector before the model does."""
        return self.cheap is not self and self.cheap.compares_tokens

    @property
    def near_tokens(self) -> float:
        """How near a block's tokens must be to the query's to be evidence, see `Hybrid.near`; infinite if none are compared."""
        return math.inf if self.cheap is self else self.cheap.near_tokens

    def shortlist(self, cheap_scores: NDArray[np.float64]) -> NDArray[np.intp]:
        """The blocks that the model scores, in document order, from the cheap selector's scores of shape (n_blocks,)."""
        raise TypeError(f"{type(self).__name__} does not say what the model is asked")

    def scores(self, query: PreparedQuery, document: PreparedDocument, frequencies: DocumentFrequencies) -> NDArray[np.float64]:
        """Block scores of shape (n_blocks,), for a query and a document without a QueryDocument."""
        return self.of(QueryDocument(WeighedQuery(query, frequencies), document))

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """Block scores of shape (n_blocks,)."""
        raise TypeError(f"{type(self).__name__} does not say how it scores")


SELECTORS: Registry[Selector] = Registry("selector", "keyblock.selectors")


def differ(scores: NDArray[np.float64]) -> bool:
    """Whether the scores are not all the same."""
    return len(scores) > 0 and bool(scores.max() > scores.min())


def rank_blocks(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Block numbers, best first; equal scores (all zero if no query term occurs) stay in document order."""
    return np.argsort(-scores, kind="stable")


@SELECTORS.register("first")
class First(Selector):
    """The blocks the document opens with: what a ranker that truncates reads (FirstP)."""

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """Minus the block's number, shape (n_blocks,)."""
        return 0.0 - np.arange(pair.document.n_blocks, dtype=np.float64)  # 0, not -0


@SELECTORS.register("last")
class Last(Selector):
    """The blocks the document closes with: shows whether position gives away a collection's relevant passages."""

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """The block's number, shape (n_blocks,)."""
        return np.arange(pair.document.n_blocks, dtype=np.float64)


def drawn(pair: QueryDocument, seed: int) -> NDArray[np.float64]:
    """Uniform numbers of shape (n_blocks,), seeded by content so that training and serving draw the same."""
    content = zlib.crc32(pair.document.token_ids.tobytes(), zlib.crc32(pair.query.token_ids.tobytes()))
    return np.random.default_rng((seed, content)).random(pair.document.n_blocks)


@SELECTORS.register("spread")
class Spread(Selector):
    """The first block, the last, then others at random: what PARADE reads of a document of too many passages (KeyB section 4.2)."""

    seed: int = Field(0, ge=0, description="seed of the draw")

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """3 for the first, 2 for the last, uniform numbers below 1 for the others, shape (n_blocks,)."""
        scores = drawn(pair, self.seed)
        scores[-1:], scores[:1] = 2.0, 3.0
        return scores


@SELECTORS.register("tfidf")
class TfIdf(Selector):
    """TF-IDF of the block for the query."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.FREQUENCIES})

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """TF-IDF, shape (n_blocks,)."""
        weighed, counts = pair.weighed, pair.counts
        idf = np.log((weighed.n_documents + 1) / (weighed.in_documents + 1))
        weights = np.zeros_like(counts)
        np.log(counts, out=weights, where=pair.held)
        return weighted_sum(idf, np.where(pair.held, weights + 1, 0))


@SELECTORS.register("bm25")
class Bm25(Selector):
    """BM25 of the block for the query."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.FREQUENCIES})
    k1: float = Field(0.9, ge=0, description="how slowly repeated terms stop counting")
    b: float = Field(0.4, ge=0, le=1, description="how much a long block is discounted")
    idf: Literal["documents", "blocks"] = Field(
        "documents",
        description="what makes a term rare: documents: the frequency table; blocks: how few of the document's own blocks have it, "
        "in any language",
    )

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """BM25, shape (n_blocks,)."""
        if not pair.document.n_blocks:
            return np.zeros(0)
        idf = block_idf(pair.counts) if self.idf == "blocks" else pair.idf
        return weighted_sum(idf, self.saturated(pair))

    def saturated(self, pair: QueryDocument) -> NDArray[np.float64]:
        """The weight of each term in each block without its idf, 0 to 1, shape (n_query_terms, n_blocks)."""
        counts, lengths = pair.counts, np.diff(pair.document.term_bounds)
        average = (lengths.mean() if len(lengths) else 0.0) or 1.0
        saturation = self.k1 * (1 - self.b + self.b * lengths / average)
        # a block without terms has counts 0, and with k1 = 0 that gives 0 / 0: leave such cells 0
        return np.divide(counts, saturation + counts, out=np.zeros_like(counts), where=pair.held)


@SELECTORS.register("vectors")
class Vectors(Selector):
    """How near the block's vector is to the query's: finds paraphrases."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.VECTORS})
    near: float = Field(NEAR_COSINE, ge=0, le=1, description="cosine of the best block below which there is no evidence")

    def tells_apart(self, scores: NDArray[np.float64], lexical: NDArray[np.float64], pair: QueryDocument) -> bool:
        """See Selector: the best cosine must reach `near`, since cosines always differ a little."""
        return differ(scores) and float(scores.max()) >= self.near

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """Cosines, shape (n_blocks,); 0 if the encoder knows nothing in the query or the block."""
        return pair.cosines


@SELECTORS.register("hybrid")
class Hybrid(Selector):
    """A weighted sum of terms and vectors, in which a rare term that occurs in few blocks decides.

    ``terms * t + (vectors + low_confidence * d) * cosine + soft * s + exact * e``: t is the score of the lexical selector `by`,
    divided as `scale` says; d is the share of the query's idf that the best block lacks, so that vectors count more if words match
    less; s sums, over the query's tokens, the similarity of the block's nearest token, so that a related word is a partial match; e
    is the block's share of the idf of the query's rare terms that the document has. Cosines of two blocks differ by less than 1 in
    practice, and s by 1 at most, so with ``exact >= vectors + low_confidence + soft`` neither outweighs the rare terms. A name that
    occurs all over a document does not decide: with `exact_blocks`, e counts only terms that occur in few blocks.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.FREQUENCIES, Need.VECTORS})
    by: dict[str, Any] = Field({"name": "bm25"}, description="the lexical selector", validate_default=True)
    terms: float = Field(1.0, ge=0, description="weight of its score")
    scale: Literal["mass", "none"] = Field(
        "mass", description="mass: divide it by the summed idf of the query's terms, so that queries of any length compare"
    )
    vectors: float = Field(1.0, ge=0, description="weight of the cosine of query and block")
    low_confidence: float = Field(
        0.0, ge=0, description="added to `vectors`, by the share of the query's idf mass that the best block lacks"
    )
    soft: float = Field(0.0, ge=0, description="weight of the nearest tokens; 0: tokens are not compared")
    exact: float = Field(1.0, ge=0, description="weight of rare terms that occur in the block")
    rare: float = Field(0.001, ge=0, le=1, description="a term is rare in at most this share of the training documents")
    exact_blocks: int = Field(
        0,
        ge=0,
        description="a rare term in more places of the document than this is ignored; adjacent blocks are one place; 0: none is "
        "ignored",
    )
    near: float = Field(
        NEAR_COSINE,
        ge=0,
        le=1,
        description="how near the best block must be to the query to be evidence if no term tells blocks apart: by the nearest "
        f"tokens if these are compared (by default {NEAR_TOKENS}), else by the cosine (by default {NEAR_COSINE})",
    )

    @model_validator(mode="before")
    @classmethod
    def _near(cls, parameters: Any) -> Any:
        if isinstance(parameters, Mapping) and parameters.get("soft") and "near" not in parameters:
            return {**parameters, "near": NEAR_TOKENS}
        return parameters

    @field_validator("by")
    @classmethod
    def _lexical(cls, description: dict[str, Any]) -> dict[str, Any]:
        selector = SELECTORS.create(description)
        if not selector.lexical:
            raise ValueError(f"{selector.name!r} does not go by terms")
        return selector.describe()

    @property
    def compares_tokens(self) -> bool:
        """See Selector."""
        return self.soft > 0

    @property
    def terms_by(self) -> Selector:
        """The selector that `by` describes."""
        return SELECTORS.create(self.by)

    def tells_apart(self, scores: NDArray[np.float64], lexical: NDArray[np.float64], pair: QueryDocument) -> bool:
        """See Selector: terms do, or a block that is near enough and nearer than another, since cosines always differ a little."""
        if differ(lexical) or not differ(scores):
            return differ(lexical)
        similarity = pair.near if self.soft else pair.cosines
        return differ(similarity) and float(similarity.max()) >= self.near

    @property
    def near_tokens(self) -> float:
        """See Selector."""
        return self.near if self.soft else math.inf

    def rare_weights(self, weighed: WeighedQuery) -> NDArray[np.float64]:
        """The idf of the rare terms, shape (n_query_terms,); 0 for all other terms."""
        return np.where(weighed.in_documents <= self.rare * weighed.n_documents, weighed.idf, 0.0)

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """The weighted sum, shape (n_blocks,)."""
        return self.combined(self.terms_by.of(pair), pair)

    def combined(self, lexical: NDArray[np.float64], pair: QueryDocument) -> NDArray[np.float64]:
        """See Selector."""
        idf = pair.idf
        share = lexical / (idf.sum() or 1.0) if self.scale == "mass" else lexical
        vectors = self.vectors + (self.low_confidence * lacking(idf, pair.held) if self.low_confidence else 0.0)
        scores = self.terms * share + vectors * pair.cosines
        if self.soft:
            scores += self.soft * pair.near
        rare = self.rare_weights(pair.weighed)
        if not (self.exact and rare.any()):
            return scores
        return scores + self.exact * held_share(rare, pair.held, self.exact_blocks or pair.document.n_blocks)


def lacking(weights: NDArray[np.float64], held: NDArray[np.bool_]) -> float:
    """The share of the terms' weight that the best block lacks, from 0 to 1; 1 without weights or blocks.

    Args:
        weights: shape (n_query_terms,), none negative.
        held: shape (n_query_terms, n_blocks), whether each block has each term.
    """
    total = float(weights.sum())
    return max(1.0 - float(weighted_sum(weights, held).max(initial=0.0)) / total, 0.0) if total else 1.0


def held_share(weights: NDArray[np.float64], held: NDArray[np.bool_], most: int) -> NDArray[np.float64]:
    """For each block the weight of its terms that occur in few places, as a share of the weight of all terms that the document has.

    Args:
        weights: shape (n_query_terms,), none negative.
        held: shape (n_query_terms, n_blocks), whether each block has each term.
        most: the most places of a term that counts; adjacent blocks are one place.

    Returns:
        Shape (n_blocks,), 0 to 1.
    """
    places = (held & ~np.pad(held, ((0, 0), (1, 0)))[:, :-1]).sum(axis=1)
    return weighted_sum(weights * (places <= most), held) / (weights[places > 0].sum() or 1.0)


@SELECTORS.register("learned")
class Learned(Selector):
    """The model itself scores (query, block) pairs: BinB (KeyB section 5.1), or a cascade if a cheap selector keeps few blocks."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGITS})
    keep: int = Field(0, ge=0, description="blocks that the cheap selector leaves to the model; 0 for all of them (BinB)")
    by: dict[str, Any] = Field({"name": "bm25"}, description="the cheap selector", validate_default=True)

    @field_validator("by")
    @classmethod
    def _cheap(cls, description: dict[str, Any]) -> dict[str, Any]:
        selector = SELECTORS.create(description)
        if Need.LOGITS in selector.needs:
            raise ValueError(f"the cheap selector cannot be {selector.name!r}: that needs the model itself")
        return selector.describe()

    @property
    def cheap(self) -> Selector:
        """The selector that `by` describes."""
        return SELECTORS.create(self.by)

    def shortlist(self, cheap_scores: NDArray[np.float64]) -> NDArray[np.intp]:
        """The best `keep` of them."""
        return np.sort(rank_blocks(cheap_scores)[: self.keep or None])


def block_idf(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25's inverse frequency of terms among a document's blocks, shape (n_terms,); above 0 if there is a block.

    Args:
        counts: shape (n_terms, n_blocks), how often each block has each term.
    """
    return np.asarray(np.log((counts.shape[1] + 1) / ((counts > 0).sum(axis=1) + 0.5)))
