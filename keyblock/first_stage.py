"""Fusion with the first stage: one order from the model's scores of the candidates and those of the search before it.

A fusion compares the candidates of one query with each other, so a fused score only orders them: it is no probability, and depends
on the other candidates. Equal scores share the better rank, so a first stage that scores all documents the same changes no order.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from keyblock.registry import Component, Registry

Scores = NDArray[np.float64]
MOST_PARAMETERS = 16


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
        return self.weight * z_scores(first) + (1 - self.weight) * z_scores(logits)


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
            raise FirstStageError("fusion", f"must be a name or a mapping, {{name, ...}}, not {type(fusion).__name__}")
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
