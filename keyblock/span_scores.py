"""How likely a span answers the query: its document's probability times a sigmoid of its tokens' marks.

The model reads query and key blocks once and gives two outputs: a logit of the whole, and for each token a logit that it belongs
to the answering passage (as Provence does: Chirkova et al. 2025, "Provence: efficient and robust context pruning for
retrieval-augmented generation"). The mean over a sentence's tokens says whether the sentence answers if the document does. The
document's own score says whether the document answers at all. So no span is more likely to answer than its document.
"""

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from keyblock.evidence import sigmoid


class SpanScores(BaseModel):
    """``sigmoid(fused logit) * sigmoid(bias + mark * mean token logit)``; fitted on the sentences of dev documents."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    bias: float = Field(0.0, description="added once")
    mark: float = Field(1.0, ge=0, description="weight of the mean of the token logits of a sentence")

    def probabilities(self, marks: NDArray[np.floating], fused: NDArray[np.floating]) -> NDArray[np.float64]:
        """How likely each sentence answers, 0 to the probability of its document.

        Args:
            marks: shape (n_sentences,), the mean token logit of each.
            fused: shape (n_sentences,), the fused logit of its document.
        """
        return sigmoid(np.asarray(fused, np.float64)) * sigmoid(self.bias + self.mark * np.asarray(marks, np.float64))
