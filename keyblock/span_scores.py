"""How likely a span answers the query: a sigmoid of its tokens' marks and of its document's score.

The model reads query and key blocks once and gives two outputs: a logit of the whole, and for each token a logit that it belongs
to the answering passage (as Provence does: Chirkova et al. 2025, "Provence: efficient and robust context pruning for
retrieval-augmented generation"). The mean over a sentence's tokens says how much the sentence stands out in its document. The
document's own score says whether the document answers at all.
"""

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keyblock.evidence import sigmoid


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
