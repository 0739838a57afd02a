"""CEDR-PACRR (MacAvaney et al. 2019 over Hui et al. 2018): n-grams of query and passage that match, each query token's best."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import PreTrainedModel

from training.models.cedr import Cedr
from training.models.token_ranker import Tokens

GRAMS = 3  # the longest n-gram
FILTERS = 32  # of each length
BEST = 2  # places of a document that count for a query token
HIDDEN = 32  # width of both hidden layers


class CedrPacrr(Cedr):
    """CEDR-PACRR: see `training.declarations.CedrPacrrFamily`. Of a query token there are the BEST signals of each length.

    The best places of a document are the best of its passages' best ones. No n-gram reaches from one passage into the next, where
    the public code lets it. A signal is at least 0, so 0 is what stands where there is no place to take, and nothing loses to it.
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
        """See Cedr; `real` is not asked, for the signals of the query's padding are 0."""
        signals = passages.unflatten(-1, (GRAMS, BEST)).permute(0, 2, 3, 1, 4).flatten(3)  # (docs, query_tokens, GRAMS, all)
        best = signals.topk(BEST, dim=-1).values
        logit: Tensor = self.head(torch.cat([cls, best.flatten(1)], dim=1)).squeeze(-1)
        return logit


def signals(gram: nn.Module, cosines: Tensor) -> Tensor:
    """The strongest filter's answer to the n-grams that begin at each pair of tokens, at least 0: (batch, query_tokens, length).

    Args:
        gram: a convolution over squares of n by n.
        cosines: (batch, channels, query_tokens, length), 0 where a token is none of the query's or the passage's.
    """
    behind = gram.get_parameter("weight").shape[-1] - 1
    answers: Tensor = gram(F.pad(cosines, (0, behind, 0, behind)))
    return answers.amax(1).relu()


def best_places(signals: Tensor, real: Tensor) -> Tensor:
    """The BEST signals of each row, (batch, query_tokens, BEST), of places that `real` (batch, query_tokens, length) has."""
    return signals.masked_fill(~real, 0.0).topk(BEST, dim=-1).values
