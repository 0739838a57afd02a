"""Query-directed attention: a document's tokens see their neighbours, and the query sees and is seen by all.

QDS-Transformer (Jiang et al. 2020, "Long Document Ranking with Query-Directed Sparse Transformer", section 3) gives its attention
four parts: a local window, [CLS], the query's tokens, and a token in front of each sentence; the last three are global. There each
sentence gets a token of its own, [SOS]; here its first token takes that part, so that sequences are those of every other ranker.
The mask says so to an encoder with full attention: it shows what the pattern does to quality, and saves no time.
"""

import torch
from torch import Tensor

from training.declarations import QueryDirected

FULL = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""Encoders, by transformers' names, whose layers all take one mask of pairs of tokens."""


def query_tokens(types: Tensor, mask: Tensor) -> Tensor:
    """[CLS], the query and its separators: (batch, length), bool, from (batch, length) segment types and mask of real tokens."""
    return (types == 0) & (mask != 0)


def sentence_starts(input_ids: Tensor, types: Tensor, ends: tuple[int, ...]) -> Tensor:
    """The document's first token and those behind the end of a sentence: (batch, length), bool; none where no end is known.

    Args:
        input_ids: (batch, length).
        types: (batch, length), 1 for the document's tokens.
        ends: ids of the tokens that end a sentence.
    """
    starts = torch.zeros_like(types, dtype=torch.bool)
    if ends:
        ended = torch.isin(input_ids, torch.tensor(ends, device=input_ids.device))
        starts[:, 1:] = (types[:, 1:] == 1) & (ended[:, :-1] | (types[:, :-1] == 0))
    return starts


def directed_mask(pattern: QueryDirected, input_ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
    """What is added to the scores of attention: (batch, 1, length, length) in fp32, 0 where the row's token sees the column's.

    Every token sees itself, so that padding, which nobody reads, has something to see.

    Args:
        pattern: the window, and what ends a sentence.
        input_ids, types, mask: (batch, length) integers each; of types, 1 is the document's.
    """
    places = torch.arange(mask.shape[1], device=mask.device)
    distance = (places[:, None] - places).abs()  # (length, length)
    everywhere = query_tokens(types, mask) | sentence_starts(input_ids, types, pattern.sentence_ends)
    near = distance <= pattern.window
    seen = (near | everywhere[:, :, None] | everywhere[:, None, :]) & (mask != 0)[:, None, :] | (distance == 0)
    return torch.zeros(seen.shape, device=mask.device).masked_fill(~seen, torch.finfo(torch.float32).min).unsqueeze(1)
