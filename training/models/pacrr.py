"""CEDR-PACRR (MacAvaney et al. 2019 over Hui et al. 2018): the best matching n-grams of each query token in the document."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import PreTrainedModel

from training.models.cedr import Cedr
from training.models.token_ranker import Tokens

GRAMS = 3  # the longest n-gram
FILTERS = 32  # filters of each n-gram length
BEST = 2  # best places of a document that count for a query token
HIDDEN = 32  # width of both hidden layers


class CedrPacrr(Cedr):
    """CEDR-PACRR: see `training.declarations.CedrPacrrFamily`. The features of a query token are the BEST signals of each length.

    The best places of a document are the best among its passages' best places. No n-gram reaches from one passage into the next;
    the public code allows this. A signal is at least 0, so 0 can fill missing places without displacing a real one.
    """

    def __init__(self, encoder: PreTrainedModel, query_tokens: int) -> None:
        super().__init__(encoder, query_tokens)
        self.grams = nn.ModuleList(nn.Conv2d(self.channels, FILTERS, size) for size in range(1, GRAMS + 1))
        wide = encoder.config.hidden_size + query_tokens * self.numbers
        self.head = nn.Sequential(nn.Linear(wide, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    @property
    def numbers(self) -> int:
        """See Cedr."""
        return GRAMS * BEST

    def by_query_token(self, tokens: Tokens) -> Tensor:
        """See Cedr."""
        cosines = tokens.cosines()
        real = tokens.query[:, :, None] & tokens.passage[:, None]
        return torch.cat([best_places(signals(gram, cosines), real) for gram in self.grams], dim=-1)

    def logits(self, cls: Tensor, passages: Tensor, real: Tensor) -> Tensor:
        """See Cedr; `real` is not needed, since the signals of the query's padding are 0."""
        signals = passages.unflatten(-1, (GRAMS, BEST)).permute(0, 2, 3, 1, 4).flatten(3)  # (docs, query_tokens, GRAMS, all)
        best = signals.topk(BEST, dim=-1).values
        logit: Tensor = self.head(torch.cat([cls, best.flatten(1)], dim=1)).squeeze(-1)
        return logit


def signals(gram: nn.Module, cosines: Tensor) -> Tensor:
    """The strongest filter response to the n-grams that begin at each pair of tokens, at least 0: (batch, query_tokens, length).

    Args:
        gram: a convolution with a window of n by n.
        cosines: (batch, channels, query_tokens, length), 0 where the query's or the passage's place holds no token.
    """
    behind = gram.get_parameter("weight").shape[-1] - 1
    answers: Tensor = gram(F.pad(cosines, (0, behind, 0, behind)))
    return answers.amax(1).relu()


def best_places(signals: Tensor, real: Tensor) -> Tensor:
    """The BEST signals of each row, (batch, query_tokens, BEST), among the places in `real`, (batch, query_tokens, length)."""
    return signals.masked_fill(~real, 0.0).topk(BEST, dim=-1).values
