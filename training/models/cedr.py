"""CEDR (MacAvaney et al. 2019): the interaction matrices of older rankers, from contextual states, beside BERT's own [CLS].

A document's passages share the query; matrices of its passages stand side by side as one matrix of the whole document, and the
[CLS] of the passages are averaged (section 3.3). The features here are those that such a whole matrix has: sums over its columns
are sums over passages. Each layer, the embeddings included, is a matrix of its own.
"""

import torch
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from training.models.token_ranker import TokenRanker, Tokens, mean_cls

MEANS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)  # of the kernels of KNRM; the first is an exact match
EXACT, SOFT = 0.001, 0.1  # widths of the first, and of the others
LEAST = 1e-6  # in logarithms, as in the public code


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
        return torch.stack(kernels, dim=-1)  # kernel by kernel: all at once would take eleven times the matrix's memory


class CedrKnrm(TokenRanker):
    """CEDR-KNRM: see `training.declarations.CedrKnrmFamily`. A state is [CLS], the query's mask, and its soft term frequencies."""

    def __init__(self, encoder: PreTrainedModel, query_tokens: int) -> None:
        super().__init__(encoder, query_tokens)
        self.kernels = Kernels()
        self.head = nn.Linear(encoder.config.hidden_size + self.channels * len(MEANS), 1)

    @property
    def hidden_size(self) -> int:
        """Of a state: [CLS], one number a query token, and the kernels of each layer and query token."""
        return int(self.encoder.config.hidden_size) + self.query_tokens * (1 + self.channels * len(MEANS))

    def features(self, tokens: Tokens) -> Tensor:
        """See TokenRanker."""
        frequencies = self.kernels(tokens.cosines(), tokens.passage)
        return torch.cat([tokens.cls, tokens.query.float(), frequencies.flatten(1)], dim=1)

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See TokenRanker: logarithms of the document's soft term frequencies, summed over the query (KNRM, equation 2)."""
        hidden = states.shape[-1] - self.query_tokens * (1 + self.channels * len(MEANS))
        cls, query, frequencies = states.split([hidden, self.query_tokens, states.shape[-1] - hidden - self.query_tokens], dim=-1)
        by_token = frequencies.sum(1).unflatten(1, (self.channels, self.query_tokens, len(MEANS)))
        logs = (by_token + LEAST).log() * query.amax(1)[:, None, :, None]
        logit: Tensor = self.head(torch.cat([mean_cls(cls, mask), logs.sum(2).flatten(1)], dim=1)).squeeze(-1)
        return logit
