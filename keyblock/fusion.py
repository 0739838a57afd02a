"""How scores are made: the model's logit fused with lexical evidence, and that with a second look and with the first stage.

The best block's lexical score ranks far better than a document's BM25 and adds to the model. If the selector compares tokens, so
does how near the best block's tokens are to the query's, which also counts related words. Features depend on one query and one
document only, never on the other candidates; of the rest of the request depends only which documents a second look reads. The
calibration of a bundle measures how far scores of different queries compare (training.evaluate.calibration.fit).

A fusion with the first stage makes one order from the model's scores of the candidates and those of the search before it. It
compares the candidates of one query with each other, so a fused score only orders them: it is no probability, and depends on the
other candidates. Equal scores share the better rank, so a first stage that scores all documents the same changes no order.

How likely a span answers the query is a sigmoid of its tokens' marks and of its document's score. The model reads query and key
blocks once and gives two outputs: a logit of the whole, and for each token a logit that it belongs to the answering passage (as
Provence does: Chirkova et al. 2025, "Provence: efficient and robust context pruning for retrieval-augmented generation"). The mean
over a sentence's tokens says how much the sentence stands out in its document. The document's own score says whether the document
answers at all.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keyblock.registry import Component, Registry

FEATURES = ("logit", "best_block", "top_blocks", "coverage", "similarity", "mass")
LEXICAL, SIMILARITY = slice(0, 3), 3  # among the features that need no model: those of shared terms, and the similarity of tokens
Scores = NDArray[np.float64]
MOST_PARAMETERS = 16  # of a fusion with the first stage
DECIMALS = 12  # of a sum of z-scores: rounding errors are smaller, and must not order documents that tie


class Fusion(BaseModel):
    """``fused = bias + sum of weight * feature``; the relevance score is its sigmoid."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)  # NaN gives no order
    bias: float = Field(0.0, description="added once; set so that the sigmoid averages to the share of relevant candidates on dev")
    logit: float = Field(1.0, description="weight of the model's logit")
    best_block: float = Field(0.0, description="weight of the best block's lexical score: see PipelineConfig.evidence")
    top_blocks: float = Field(0.0, description="weight of the mean lexical score of the three best blocks")
    coverage: float = Field(0.0, description="weight of the share of the query's idf mass that occurs in the document")
    similarity: float = Field(
        0.0,
        description="weight of how near the best block's tokens are to the query's, 0 to 1; 0 if tokens are not compared",
    )
    mass: float = Field(
        0.0,
        description="weight of the query's idf mass. The mass is the same for all documents, so it does not order them: long "
        "queries find more in any document, and short queries less in the right one",
    )

    @classmethod
    def from_weights(cls, bias: float, weights: NDArray[np.float64]) -> Self:
        """Build from weights of shape (n_features,) in the order of FEATURES."""
        return cls(bias=bias, **{name: float(weight) for name, weight in zip(FEATURES, weights, strict=True)})

    @property
    def weights(self) -> NDArray[np.float64]:
        """Shape (n_features,), in the order of FEATURES."""
        return np.asarray([getattr(self, name) for name in FEATURES], dtype=np.float64)

    def fuse(self, logits: NDArray[np.floating], evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fused scores.

        Args:
            logits: shape (n_documents,), the model's logits.
            evidence: shape (n_documents, n_features - 1), each document's features that need no model (see `evidence_of`).

        Returns:
            Shape (n_documents,), on the logit scale.
        """
        return np.asarray(self.bias + self.logit * logits.astype(np.float64) + evidence @ self.weights[1:])

    def prior(self, evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """How documents compare by their blocks alone, shape (n_documents,): by `prior_weights`.

        Args:
            evidence: as for `fuse`.
        """
        return np.asarray(evidence[:, :-1] @ self.prior_weights)

    @property
    def prior_weights(self) -> NDArray[np.float64]:
        """Weights of the evidence where there is no logit, shape (n_features - 2,): those above 0 if any, else the best block's.

        A weight below 0 corrects the logit, of a text that repeats the query; alone, it would put what shares nothing first. The
        query's mass has none: it is the same for all documents.
        """
        weights = np.maximum(self.weights[1:-1], 0.0)
        return weights if weights.any() else np.eye(1, len(weights)).ravel()


class Activation(BaseModel):
    """Maps the fused logit to a document's score; it grows with the logit, so it does not change the order."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Literal["sigmoid", "identity"] = Field("sigmoid", description="sigmoid: scores from 0 to 1; identity: logits")
    scale: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False, description="multiplies the logit first")

    def scores(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores, in the shape of the logits."""
        scaled = self.scale * logits
        return sigmoid(scaled) if self.name == "sigmoid" else scaled


def evidence_of(
    lexical: NDArray[np.float64], term_found: NDArray[np.bool_], idf: NDArray[np.float64], near: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The features that need no model.

    Args:
        lexical: shape (n_blocks,), the scores of a lexical selector.
        term_found: shape (n_query_terms,), whether the document has the term.
        idf: shape (n_query_terms,).
        near: shape (n_blocks,), see `keyblock.prepared.QueryDocument.near`; none: tokens are not compared.

    Returns:
        Shape (5,): best_block, top_blocks, coverage, similarity, mass; zeros for a document without blocks.
    """
    if not len(lexical):
        return np.zeros(len(FEATURES) - 1)
    top, mass = np.sort(lexical)[-3:], idf.sum()
    coverage = (idf * term_found).sum() / mass if mass else 0.0
    return np.asarray([top[-1], top.sum() / 3, coverage, 0.0 if near is None else near.max(), mass])


def has_evidence(evidence: NDArray[np.float64], near: float) -> NDArray[np.bool_]:
    """Whether a document's blocks share a term with the query, or have tokens that are near enough; shape (n_documents,).

    Args:
        evidence: shape (n_documents, 5), see `evidence_of`.
        near: the similarity from which on it counts, see `keyblock.selectors.Selector.near_tokens`.
    """
    return np.asarray(evidence[:, LEXICAL].any(axis=1) | (evidence[:, SIMILARITY] >= near))


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logistic function, without overflow at either end, and precise near 0, where the values of long queries are."""
    small = np.exp(-np.abs(values))
    return np.asarray(np.where(values < 0, small, 1.0) / (1 + small))


BEHIND = 1e-9  # a logit that keeps two documents from a tie, and shows in no score


class SecondLook(BaseModel):
    """The model reads on in the documents with the best scores: how far, and ``bias + first * fused + further * logit`` after it.

    The first look reads two or three blocks of each document, as one sequence. The second reads the next best blocks, each alone:
    they tell more than the first blocks read again, alone (lab/notes/second-look.md). `fused` is the fused logit before it, and
    `logit` that of the best further block; of a document with none, that of the first look.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    documents: int = Field(5, ge=1, description="how many documents it reads, those with the best scores")
    blocks: int = Field(4, ge=1, description="how many further blocks of a document it reads")
    margin: float = Field(
        2.0,
        ge=0,
        description="documents whose fused logit is further below the best one's are not read: it hardly changes the order",
    )
    bias: float = Field(0.0, description="added once")
    first: float = Field(1.0, gt=0, description="weight of the fused logit before it")
    further: float = Field(0.4, ge=0, description="weight of the best further block's logit")

    def chosen(self, order: NDArray[np.intp], fused: NDArray[np.float64]) -> NDArray[np.intp]:
        """The numbers of the documents that it reads.

        Args:
            order: document numbers, best first.
            fused: shape (n_documents,), their fused logits.
        """
        best = order[: self.documents]
        return np.asarray(best[fused[best] >= fused[best].max(initial=-np.inf) - self.margin])

    def fuse(self, fused: NDArray[np.float64], logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fused logits after it; all arrays have shape (n_documents,)."""
        return self.bias + self.first * fused + self.further * logits

    @staticmethod
    def joined(fused: NDArray[np.float64], read: Sequence[int], after: Sequence[float]) -> NDArray[np.float64]:
        """All fused logits after it: documents that it has not read were behind those that it has, and stay there, as far apart.

        Args:
            fused: shape (n_documents,), before it.
            read: the numbers of the documents that it has read, which were the best ones.
            after: the fused logit of each of these after it.
        """
        others = np.delete(fused, read)
        above = others.max(initial=-np.inf) - min(after, default=np.inf)
        joined = fused - (above + BEHIND if above >= 0 else 0.0)
        joined[read] = after
        return joined


class SpanScores(BaseModel):
    """``sigmoid(bias + mark * mean token logit + document * fused logit)``; fitted on the sentences of dev documents."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    bias: float = Field(0.0, description="added once")
    mark: float = Field(1.0, ge=0, description="weight of the mean of the token logits of a sentence")
    document: float = Field(0.0, ge=0, description="weight of the fused logit of its document")

    def probabilities(self, marks: NDArray[np.floating], fused: NDArray[np.floating]) -> NDArray[np.float64]:
        """How likely each sentence answers, 0 to 1.

        Args:
            marks: shape (n_sentences,), the mean token logit of each.
            fused: shape (n_sentences,), the fused logit of its document.
        """
        return sigmoid(self.bias + self.mark * np.asarray(marks, np.float64) + self.document * np.asarray(fused, np.float64))


class FirstStageFusion(Component, ABC):
    """Fuses two systems, the first stage and the model."""

    model_config = ConfigDict(strict=True)  # requests carry these parameters
    first_stage: Literal["scores", "order"] = Field(
        "scores",
        description="what the fusion reads of the first stage: the scores that are sent, or only the order of the documents",
    )

    def fuse(self, logits: NDArray[np.floating], first: NDArray[np.floating]) -> Scores:
        """Fused scores of one query's candidates.

        Args:
            logits: shape (documents,), the model's logits (with the lexical evidence fused in).
            first: shape (documents,), the first stage's scores, higher is better; `scores_of_order` makes them from an order.

        Returns:
            Shape (documents,), higher is better.

        Raises ValueError for scores that are not finite, and for two different shapes.
        """
        of_model, of_first = np.asarray(logits, dtype=np.float64), np.asarray(first, dtype=np.float64)
        if of_model.shape != of_first.shape or of_model.ndim != 1:
            raise ValueError(f"a fusion takes one score a document of both: the shapes are {of_model.shape} and {of_first.shape}")
        if not (np.isfinite(of_model).all() and np.isfinite(of_first).all()):
            raise ValueError("a fusion takes finite scores: leave out the documents that have none")
        return self._fused(of_model, of_first)

    @abstractmethod
    def _fused(self, logits: Scores, first: Scores) -> Scores: ...


FIRST_STAGE_FUSIONS: Registry[FirstStageFusion] = Registry("fusion with the first stage")


@FIRST_STAGE_FUSIONS.register("mapfuse")
class MapFuse(FirstStageFusion):
    """``first_stage_map / rank in the first stage + model_map / rank by the model``.

    MAPFuse (Lillis et al. 2010; equation 8 of Santos, "Sentence-level representations for document ranking").
    """

    first_stage_map: float = Field(1.0, ge=0, le=1, description="mean average precision of the first stage, on held-out queries")
    model_map: float = Field(1.0, ge=0, le=1, description="mean average precision of the model, on the same queries")

    def _fused(self, logits: Scores, first: Scores) -> Scores:
        return self.first_stage_map / ranks(first) + self.model_map / ranks(logits)


@FIRST_STAGE_FUSIONS.register("linear")
class Linear(FirstStageFusion):
    """``weight * z(first stage) + (1 - weight) * z(model)``, with the z-scores of the query's candidates (`z_scores`)."""

    weight: float = Field(0.5, ge=0, le=1, description="weight of the first stage; the model has the rest")

    def _fused(self, logits: Scores, first: Scores) -> Scores:
        fused = self.weight * z_scores(first) + (1 - self.weight) * z_scores(logits)
        return np.round(fused, DECIMALS) + 0.0  # 0, not -0


@FIRST_STAGE_FUSIONS.register("reciprocal_rank")
class ReciprocalRank(FirstStageFusion):
    """``first_stage_weight / (k + rank in the first stage) + model_weight / (k + rank by the model)``.

    Reciprocal rank fusion (Cormack, Clarke and Buettcher 2009, section 2), which gives both the same weight.
    """

    k: float = Field(60.0, ge=0, le=1e6, description="added to each rank: the larger, the less the first places stand out")
    first_stage_weight: float = Field(1.0, ge=0, le=1e6, description="weight of the first stage")
    model_weight: float = Field(1.0, ge=0, le=1e6, description="weight of the model")

    def _fused(self, logits: Scores, first: Scores) -> Scores:
        return self.first_stage_weight / (self.k + ranks(first)) + self.model_weight / (self.k + ranks(logits))


def ranks(scores: Scores) -> Scores:
    """The rank of each score, from 1 for the best; equal scores share the better rank. Shapes (documents,)."""
    return np.asarray(1 + np.searchsorted(np.sort(-scores), -scores), dtype=np.float64)


def z_scores(scores: Scores) -> Scores:
    """Standard deviations above the mean of the candidates; zeros if all are equal. Shapes (documents,)."""
    if not len(scores) or scores.min() == scores.max():
        return np.zeros(len(scores))
    scaled = scores / np.abs(scores).max()  # squares of very large or very small scores would be inf or 0
    centred = scaled - scaled.mean()
    return np.asarray(centred / (centred.std() or 1.0))


def scores_of_order(n_documents: int) -> Scores:
    """Scores that represent the order given, shape (n_documents,): n_documents for the first, 1 for the last."""
    return np.arange(n_documents, 0, -1, dtype=np.float64)


class FirstStageError(ValueError):
    """A call's field about the first stage is wrong.

    Attributes:
        field: the wrong field: ``first_stage_scores`` or ``fusion``.
        problem: what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.problem)  # else a pool of processes breaks where one of them raises it


@dataclass(frozen=True, slots=True)
class FirstStage:
    """A call's fields about the first stage.

    Attributes:
        scores: shape (documents,), finite; none if the call sends none.
        requested: the fusion that the call requests, with the parameters that it names; none: the bundle's.
    """

    scores: Scores | None = None
    requested: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, scores: Sequence[float] | None, fusion: Mapping[str, Any] | str | None, n_documents: int) -> Self:
        """Check a call's fields. Raises FirstStageError."""
        known = None if scores is None else _read_scores(scores, n_documents)
        if fusion is None:
            return cls(known)
        if not isinstance(fusion, str | Mapping):
            raise FirstStageError("fusion", f"must be a name or a mapping, {{name, ...}}, not {shown(fusion)}")
        if isinstance(fusion, Mapping) and len(fusion) > MOST_PARAMETERS:
            raise FirstStageError("fusion", f"has {len(fusion)} parameters, and no fusion has more than {MOST_PARAMETERS}")
        try:
            reads = FIRST_STAGE_FUSIONS.create(fusion).first_stage
        except ValueError as error:
            raise FirstStageError("fusion", str(error)) from None
        if known is None and reads == "scores":
            problem = "needs first_stage_scores, which are not there: send them, or fuse with the order given (first_stage: order)"
            raise FirstStageError("fusion", problem)
        return cls(known, {"name": fusion} if isinstance(fusion, str) else dict(fusion))

    def fusion(self, described: Mapping[str, Any] | None) -> FirstStageFusion | None:
        """The fusion to use; none: the order is the model's.

        Args:
            described: the bundle's fusion. It is used if scores come without a fusion, and fills in parameters that a call omits.
        """
        if self.requested is None:
            return None if described is None or self.scores is None else FIRST_STAGE_FUSIONS.create(described)
        learned = described if described is not None and described["name"] == self.requested["name"] else {}
        return FIRST_STAGE_FUSIONS.create({**learned, **self.requested})

    def evidence(self, fusion: FirstStageFusion, n_documents: int) -> Scores:
        """The first-stage scores that the fusion reads, shape (n_documents,)."""
        return scores_of_order(n_documents) if self.scores is None or fusion.first_stage == "order" else self.scores


NOT_SENT = FirstStage()


def _read_scores(scores: Sequence[float], n_documents: int) -> Scores:
    try:
        given = np.asarray(scores)
    except ValueError:  # lists of several lengths
        given = np.asarray(None)
    if given.dtype.kind not in "iuf" or given.ndim != 1:
        raise FirstStageError("first_stage_scores", "must be a list of numbers, one for each document")
    if len(given) != n_documents:
        raise FirstStageError("first_stage_scores", f"has {len(given)} scores for {n_documents} documents: send one for each")
    known = given.astype(np.float64)
    if not np.isfinite(known).all():
        number = int(np.flatnonzero(~np.isfinite(known))[0])
        raise FirstStageError("first_stage_scores", f"must be finite numbers: that of document {number} is {known[number]}")
    return known
