"""Token tables made by hand, in which words that mean the same point the same way."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keyblock.encoders import TokenTable
from keyblock.text.tokenizer import Tokenizer

CONCEPTS = (
    ("ill", "sick", "sickness", "disease"),
    ("tell", "inform", "report"),
    ("boss", "manager", "employer"),
    ("river", "stream", "water"),
    ("bridge", "crossing"),
    ("error", "failure"),
)


def concept_table(tokenizer: Tokenizer, concepts: Sequence[Sequence[str]] = CONCEPTS) -> TokenTable:
    """A direction of its own for each concept, which all its words have; any other token counts nothing."""
    table = np.zeros((tokenizer.vocabulary_size, len(concepts)), np.int8)
    scales = np.zeros(tokenizer.vocabulary_size, np.float32)
    for concept, words in enumerate(concepts):
        for word in words:
            (token,) = tokenizer.ids(word).tolist()
            table[token, concept], scales[token] = 127, 1 / 127
    return TokenTable(table, scales)


class GivenSimilar:
    """How near tokens are to a query's, as given: a row for each token."""

    compiled = None

    def __init__(self, rows: ArrayLike) -> None:
        self._rows = np.asarray(rows, np.float32)

    def of(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """See `keyblock.prepared.Similar`."""
        return np.asarray(self._rows[np.minimum(token_ids, len(self._rows) - 1)])
