"""CEDR (MacAvaney et al. 2019): the interaction matrices of older rankers, computed from contextual states, beside BERT's [CLS].

A document's passages share the query. Their matrices stand side by side as one matrix of the whole document, and the [CLS] of the
passages are averaged (section 3.3). The features here equal those of the whole matrix, since sums over its columns are sums over
passages. Each layer, the embeddings included, has a matrix of its own.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import PreTrainedModel

from lab.models.tokens import TokenRanker, Tokens

MEANS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)  # of the kernels of KNRM; the first is an exact match
EXACT, SOFT = 0.001, 0.1  # widths of the first kernel, and of the others
LEAST = 1e-6  # added in KNRM's logarithms, as in the public code
BINS, EPSILON = 11, 1e-6  # bins of DRMM's histograms, the last for cosines of 1; what is added to a cosine against rounding
LEAST_COUNT = 1e-5  # added in DRMM's logarithms, as in the public code
TERM = 5  # width of DRMM's hidden layer
GRAMS = 3  # PACRR: the longest n-gram
FILTERS = 32  # filters of each n-gram length
BEST = 2  # best places of a document that count for a query token
HIDDEN = 32  # width of both hidden layers


class Cedr(TokenRanker):
    """Base of the CEDR rankers. A state holds [CLS], a mask of the query's tokens, and `numbers` features of each query token."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """How many features a query token has."""

    @property
    def hidden_size(self) -> int:
        """See RankerModule."""
        return int(self.encoder.config.hidden_size) + self.query_tokens * (1 + self.numbers)

    def features(self, tokens: Tokens) -> Tensor:
        """See TokenRanker."""
        return torch.cat([tokens.cls, tokens.query.float(), self.by_query_token(tokens).flatten(1)], dim=1)

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See TokenRanker."""
        hidden, places = int(self.encoder.config.hidden_size), self.query_tokens
        cls, query, numbers = states.split([hidden, places, places * self.numbers], dim=-1)
        by_token = numbers.unflatten(-1, (places, self.numbers))
        mean_cls = cls.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)  # padding is zero (CEDR section 3)
        return self.logits(mean_cls, by_token, query.amax(1).unsqueeze(-1))

    @abstractmethod
    def by_query_token(self, tokens: Tokens) -> Tensor:
        """The features of each query token, (batch, query_tokens, numbers)."""

    @abstractmethod
    def logits(self, cls: Tensor, passages: Tensor, real: Tensor) -> Tensor:
        """Logits of documents, (docs,).

        Args:
            cls: (docs, hidden), the mean of the passages' [CLS].
            passages: (docs, passages, query_tokens, numbers); padding passages are 0.
            real: (docs, query_tokens, 1), 1 for the query's tokens, 0 for padding.
        """


class Kernels(nn.Module):
    """KNRM's kernel pooling (Xiong et al. 2017, equations 3 and 4), up to the sum over the passage's tokens."""

    def __init__(self) -> None:
        super().__init__()
        widths = torch.tensor([EXACT] + [SOFT] * (len(MEANS) - 1))
        self.register_buffer("means", torch.tensor(MEANS), persistent=False)
        self.register_buffer("scale", 0.5 / widths.square(), persistent=False)

    def forward(self, cosines: Tensor, passage: Tensor) -> Tensor:
        """Soft term frequencies (batch, channels, query_tokens, kernels).

        Args:
            cosines: (batch, channels, query_tokens, length).
            passage: (batch, length) bool, the tokens that count.
        """
        real = passage[:, None, None].to(cosines.dtype)
        means, scale = self.get_buffer("means").unbind(), self.get_buffer("scale").unbind()
        kernels = [(-(cosines - mean).square() * by).exp().mul(real).sum(-1) for mean, by in zip(means, scale, strict=True)]
        return torch.stack(kernels, dim=-1)  # one by one: all kernels at once would need eleven times the matrix's memory


class CedrKnrm(Cedr):
    """CEDR-KNRM: see `lab.families.CedrKnrmFamily`. The features of a query token are its soft term frequencies.

    As in CEDR's public code, their logarithms are not scaled (K-NRM's multiplies them by 0.01). A fresh head's logits are large.
    """

    def __init__(self, encoder: PreTrainedModel, query_tokens: int) -> None:
        super().__init__(encoder, query_tokens)
        self.kernels = Kernels()
        self.head = nn.Linear(encoder.config.hidden_size + self.numbers, 1)

    @property
    def numbers(self) -> int:
        """See Cedr."""
        return self.channels * len(MEANS)

    def by_query_token(self, tokens: Tokens) -> Tensor:
        """See Cedr."""
        return self.kernels(tokens.cosines(), tokens.passage).transpose(1, 2).flatten(2)

    def logits(self, cls: Tensor, passages: Tensor, real: Tensor) -> Tensor:
        """See Cedr: the logarithms of the document's soft term frequencies are summed over the query (KNRM, equation 2)."""
        logs = (passages.sum(1) + LEAST).log() * real
        logit: Tensor = self.head(torch.cat([cls, logs.sum(1)], dim=1)).squeeze(-1)
        return logit


class CedrDrmm(Cedr):
    """CEDR-DRMM: see `lab.families.CedrDrmmFamily`. The features of a query token are histograms of its cosines by layer.

    Counting has no gradient, as in the original, so that the encoder learns through [CLS] alone. The public code also sums the
    scores of the query's padding; here only tokens count.
    """

    def __init__(self, encoder: PreTrainedModel, query_tokens: int) -> None:
        super().__init__(encoder, query_tokens)
        self.term = nn.Sequential(nn.Linear(encoder.config.hidden_size + self.numbers, TERM), nn.ReLU(), nn.Linear(TERM, 1))

    @property
    def numbers(self) -> int:
        """See Cedr."""
        return self.channels * BINS

    @torch.no_grad()
    def by_query_token(self, tokens: Tokens) -> Tensor:
        """See Cedr."""
        return histograms(tokens.cosines(), tokens.passage).transpose(1, 2).flatten(2)

    def logits(self, cls: Tensor, passages: Tensor, real: Tensor) -> Tensor:
        """See Cedr: each term is scored by the logarithms of its counts in the document and by [CLS]; the scores are summed."""
        logs = (passages.sum(1) + LEAST_COUNT).log()
        repeated = cls.unsqueeze(1).expand(-1, self.query_tokens, -1)
        terms: Tensor = self.term(torch.cat([logs, repeated], dim=-1))
        return (terms * real).sum((1, 2))


def histograms(cosines: Tensor, passage: Tensor) -> Tensor:
    """The number of cosines of each row in each of BINS bins from -1 to 1 (DRMM, Guo et al. 2016, section 3.2).

    Args:
        cosines: (batch, channels, query_tokens, length).
        passage: (batch, length) bool, the tokens that count.

    Returns:
        (batch, channels, query_tokens, BINS); bin b begins at ``-1 + b / 5``, and the last bin holds only cosines of 1.
    """
    places = ((cosines + 1 + EPSILON) * ((BINS - 1) / 2)).floor()
    return torch.stack([((places == bin) & passage[:, None, None]).sum(-1) for bin in range(BINS)], dim=-1).float()


class CedrPacrr(Cedr):
    """CEDR-PACRR: see `lab.families.CedrPacrrFamily`. The features of a query token are the BEST signals of each length.

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
