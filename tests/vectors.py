"""Token tables made by hand, in which words that mean the same point the same way."""

from collections.abc import Sequence

import numpy as np

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
