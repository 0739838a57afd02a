"""Query-directed attention: a document's tokens attend to their neighbours; the query attends to all, and all attend to it.

QDS-Transformer (Jiang et al. 2020, "Long Document Ranking with Query-Directed Sparse Transformer", section 3) gives its attention
four parts: a local window, [CLS], the query's tokens, and a token in front of each sentence; the last three are global. In the
paper each sentence gets a token of its own, [SOS]. Here the sentence's first token has that role, so that sequences are the same as
for other rankers. The pattern is a mask for an encoder with full attention: it shows the effect on quality, and saves no time.
"""

import torch
from torch import Tensor

from training.declarations import QueryDirected

FULL = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""Encoders, by transformers' names, whose layers all accept one mask over pairs of tokens."""


def query_tokens(types: Tensor, mask: Tensor) -> Tensor:
    """A mask of [CLS], the query and its separators: (batch, length), bool.

    Args:
        types: (batch, length), segment types; 0 for the query's.
        mask: (batch, length), not 0 for real tokens.
    """
    return (types == 0) & (mask != 0)


def sentence_starts(input_ids: Tensor, types: Tensor, ends: tuple[int, ...]) -> Tensor:
    """A mask of the document's first token and of those after the end of a sentence: (batch, length), bool; empty without `ends`.

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
    """The mask added to attention scores: (batch, 1, length, length) in fp32, 0 where the row's token attends to the column's.

    Every token attends to itself, so that padding has something to attend to.

    Args:
        pattern: the window, and the tokens that end a sentence.
        input_ids: (batch, length), token ids.
        types: (batch, length), 1 for the document's tokens.
        mask: (batch, length), not 0 for real tokens.
    """
    places = torch.arange(mask.shape[1], device=mask.device)
    distance = (places[:, None] - places).abs()  # (length, length)
    everywhere = query_tokens(types, mask) | sentence_starts(input_ids, types, pattern.sentence_ends)
    near = distance <= pattern.window
    seen = (near | everywhere[:, :, None] | everywhere[:, None, :]) & (mask != 0)[:, None, :] | (distance == 0)
    return torch.zeros(seen.shape, device=mask.device).masked_fill(~seen, torch.finfo(torch.float32).min).unsqueeze(1)
