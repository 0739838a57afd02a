"""The pre-ranking: the model does not read documents of low prior scores.

A document's prior score is computed from its blocks without the model; see `Prior`. The idea is ranking in stages, each more
expensive than the one before and with fewer candidates (Wang, Lin and Metzler, SIGIR 2011).
"""

import math
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

RESULTS = 10  # the results of a request that does not say how many: the depth of the measures
PRIOR_FEATURES = ("best_block", "top_blocks", "coverage", "similarity", "rare_here")


class Prior(BaseModel):
    """A document's prior score: the sum of weight * feature. It compares documents of one request only.

    `keyblock-prior` learns these weights without the logit; a fusion's weights are learned beside it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)  # NaN gives no order
    best_block: float = Field(0.0, description="weight of the best block's lexical score, as in the fusion")
    top_blocks: float = Field(0.0, description="weight of the mean lexical score of the three best blocks")
    coverage: float = Field(0.0, description="weight of the share of the query's idf mass that occurs in the document")
    similarity: float = Field(0.0, description="weight of how near the best block's tokens are to the query's, 0 to 1")
    rare_here: float = Field(
        0.0,
        description="weight of the best block's lexical score, in which a term counts more if fewer blocks of the request have it; "
        "the score is 0 for all documents if the pipeline has no trained_on, and so keeps no terms",
    )

    @classmethod
    def from_weights(cls, weights: NDArray[np.float64]) -> Self:
        """Build from weights of shape (5,) in the order of PRIOR_FEATURES."""
        return cls(**dict(zip(PRIOR_FEATURES, weights.tolist(), strict=True)))

    @property
    def weights(self) -> NDArray[np.float64]:
        """Shape (5,), in the order of PRIOR_FEATURES."""
        return np.asarray([getattr(self, name) for name in PRIOR_FEATURES], dtype=np.float64)

    def of(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shape (n_documents,), of features of shape (n_documents, 5): see `keyblock.ranking.order.prior_features`."""
        return np.asarray(features @ self.weights)


def in_turns(*priors: NDArray[np.float64]) -> NDArray[np.intp]:
    """Document numbers, shape (n_documents,): the best by each of the prior scores, then the next by each, and so on.

    Args:
        priors: each of shape (n_documents,); if two prior scores give two documents the same place, the first prior score decides.
    """
    places = np.stack([np.argsort(np.argsort(-prior, kind="stable")) for prior in priors])
    return np.lexsort((places.argmin(axis=0), places.min(axis=0)))


class PreRanking(BaseModel):
    """Which documents of a request the model reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    share: float = Field(0.25, gt=0, le=1, description="share of a request's documents that are read, by prior score; 1: all")
    per_result: float = Field(2.0, ge=1, le=1000, description="documents that the model reads for each result, if that is more")
    least: int = Field(20, ge=1, description="documents that the model always reads, if that is more")
    margin: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="how far a document's prior score must lie below the last result's before it is skipped, on its scale",
    )
    prior: Prior | None = Field(
        None,
        description="a second prior score, learned by keyblock-prior: documents below the bar by both are skipped; none: the "
        "fusion's alone decides",
    )

    def reads(self, documents: int, results: int = RESULTS) -> int:
        """How many of a request's documents the model reads, not counting ties with the last of them.

        Args:
            documents: number of documents in the request.
            results: how many results the request is about.
        """
        results = min(results, documents)  # one may ask for any number, and a product with it may be infinite
        return min(max(math.ceil(self.share * documents), math.ceil(self.per_result * results), self.least), documents)

    def below_the_bar(self, prior: NDArray[np.float64], results: int = RESULTS) -> NDArray[np.bool_]:
        """Which documents the pre-ranking skips: the model does not read them.

        Documents with the prior score of the last one read, such as its copies, are all read. Only if no document has a lower one,
        as among documents that share nothing with the query, does the order given decide.

        Args:
            prior: shape (n_documents,), in the order given.
            results: how many results the request is about, at least 1.

        Returns:
            Shape (n_documents,).
        """
        read = self.reads(len(prior), results)
        if read == len(prior):
            return np.zeros(len(prior), np.bool_)
        best_first = np.argsort(-prior, kind="stable")
        below = np.asarray(prior < prior[best_first[results - 1]] - self.margin)
        below[best_first[:read]] = False
        last = prior[best_first[read - 1]]
        if last > prior.min():
            below[prior == last] = False
        return below
