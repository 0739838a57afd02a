"""From the model's logit to a relevance score: a linear fusion with lexical evidence, calibrated on held-out queries.

The best block's lexical score ranks far better than a document's BM25 and adds to the model. If the selector compares tokens, so
does how near the best block's tokens are to the query's, which also counts related words. Features depend on one query and one
document only, never on the other candidates, so a score does not depend on the rest of the request. The calibration of a bundle
measures how far scores of different queries compare (training.evaluate.calibration.fit).
"""

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

FEATURES = ("logit", "best_block", "top_blocks", "coverage", "similarity", "mass")
LEXICAL, SIMILARITY = slice(0, 3), 3  # among the features that need no model: those of shared terms, and the similarity of tokens


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
        """How documents compare by their blocks alone, shape (n_documents,): by the fusion's weights if any, else the best block.

        Args:
            evidence: as for `fuse`.
        """
        weights = self.weights[1:-1]  # without the last feature, the query's mass, which is the same for all documents
        return np.asarray(evidence[:, :-1] @ weights if weights.any() else evidence[:, 0])


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
        near: shape (n_blocks,), see `keyblock.query_document.nearest_tokens`; none: tokens are not compared.

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
