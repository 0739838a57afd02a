"""The cascade: documents that promise too little are spared the model, which reads the others.

What a document promises is what its blocks say of the query without the model; see `keyblock.evidence.Fusion.promise`. The idea is
that of ranking in stages, each dearer than the one before and with fewer candidates (Wang, Lin and Metzler, SIGIR 2011).
"""

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

RESULTS = 10  # that a request is about which does not say: the depth of the measures


class Cascade(BaseModel):
    """Which documents of a request the model reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    share: float = Field(0.3, gt=0, le=1, description="of a request's documents, those that promise most; 1: all of them")
    per_result: float = Field(2.0, ge=1, le=1000, description="documents that the model reads for each result, if that is more")
    least: int = Field(20, ge=1, description="documents that it reads in any case: a request of no more is not cut")
    margin: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="how far below the last result's a document's promise must lie before it is spared, on the fused logit's scale",
    )

    def spared(self, promise: NDArray[np.float64], results: int = RESULTS) -> NDArray[np.bool_]:
        """Which documents the model does not read; none of those that promise as much as the last result does.

        Args:
            promise: shape (n_documents,), in the order given, which decides among equals.
            results: that the request is about, at least 1.

        Returns:
            Shape (n_documents,).
        """
        read = max(math.ceil(self.share * len(promise)), math.ceil(self.per_result * results), self.least)
        if read >= len(promise):
            return np.zeros(len(promise), np.bool_)
        best_first = np.argsort(-promise, kind="stable")
        left = np.asarray(promise < promise[best_first[results - 1]] - self.margin)
        left[best_first[:read]] = False
        return left
