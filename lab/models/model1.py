"""Neural Model 1 (Boytsov and Kolter 2021): the probability that a document, read word by word, translates into the query."""

import torch
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from lab.models.tokens import TokenRanker, Tokens

LEAST = 1e-6  # added in logarithms


class NeuralModel1(TokenRanker):
    """See `lab.families.NeuralModel1Family`. A state holds a mask of the query's tokens, sums of T, and a length.

    ``log P(Q|D) = sum over q of log(sum over d of T(q|d) P(d|D))`` with ``P(d|D) = 1 / |D|``, over all tokens d of all passages:
    their sums and lengths are added before the logarithm. As in the contextual variant, T reads the last layer's states. Nothing
    else adds to the score: no [CLS], no collection probability, no self-translation probability. The authors' code was never
    published; the widths and the number of layers are chosen here.
    """

    def __init__(self, encoder: PreTrainedModel, query_tokens: int, width: int) -> None:
        super().__init__(encoder, query_tokens)
        self.translation = Translation(encoder.config.hidden_size, width)

    @property
    def hidden_size(self) -> int:
        """See RankerModule."""
        return 2 * self.query_tokens + 1

    def features(self, tokens: Tokens) -> Tensor:
        """See TokenRanker."""
        states = tokens.layers[:, -1]
        pairs = self.translation(tokens.of_query(states), states)  # (batch, query_tokens, length)
        sums = (pairs * tokens.passage[:, None]).sum(-1)
        return torch.cat([tokens.query.float(), sums, tokens.passage.sum(-1, keepdim=True).float()], dim=1)

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See TokenRanker; `mask` is not needed, since padding has length 0."""
        query, sums, length = states.split([self.query_tokens, self.query_tokens, 1], dim=-1)
        probability = sums.sum(1) / length.sum(1).clamp(min=1)
        return ((probability + LEAST).log() * query.amax(1)).sum(1)


class Translation(nn.Module):
    """T(q|d), a number from 0 to 1: both tokens are projected; two layers read the projections and their product.

    See Boytsov and Kolter 2021, section 2.

    Args:
        hidden: size of a token's state.
        width: size of the projections and of the layers.
    """

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.query, self.document = nn.Linear(hidden, width), nn.Linear(hidden, width)
        self.of_query, self.of_document, self.of_both = (nn.Linear(width, width) for _ in range(3))
        self.deeper, self.last = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, query: Tensor, document: Tensor) -> Tensor:
        """T of each pair, (batch, query_tokens, length), from states (batch, query_tokens, hidden) and (batch, length, hidden)."""
        q, d = self.query(query).tanh().unsqueeze(2), self.document(document).tanh().unsqueeze(1)
        pairs = (self.of_query(q) + self.of_document(d) + self.of_both(q * d)).relu()
        probability: Tensor = self.last(self.deeper(pairs).relu()).sigmoid().squeeze(-1)
        return probability
