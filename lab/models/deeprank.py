"""DeepRank (Pang et al., "DeepRank: A New Deep Architecture for Relevance Ranking in Information Retrieval", CIKM 2017).

Each place where a passage has a token of the query is the centre of a context of a few tokens. A convolution measures each context
against the whole query, a recurrent network reads a query token's contexts in document order, and its result is weighted by the
token's importance.

Of the paper's variants this uses the convolution (which KeyB's authors found better), the GRU over contexts, and the reciprocal
g(p) of a context's place. Words are a backbone's tokens. Stop words are not removed; their weights must learn to be small.
A token's weight starts at 1, not at its inverse document frequency, which a backbone does not know. A context's place is counted
over the text that the model reads, with the passages end to end. In each passage the first few contexts of a query token count.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lab.models.tokens import Combining
from lab.models.words import Texts, WordRanker, clamped

CHANNELS = 3  # of a cell: its query word and passage word, each as one number, and their cosine
PATCH = 3  # cells in each direction of the convolution's window
FAR = 1 << 20  # a place after the end of every passage


class DeepRank(Combining, WordRanker):
    """See `lab.families.DeepRankFamily`. A state holds each query token's contexts and weight, and the passage's length.

    Args:
        table: see WordRanker.
        query_tokens: see WordRanker.
        contexts: the largest number of contexts of a query token in a passage.
        beside: tokens of a context on each side of the matching token.
        filters: filters of the convolution.
        memory: size of the recurrent network's state.
    """

    def __init__(self, table: Tensor, query_tokens: int, contexts: int, beside: int, filters: int, memory: int) -> None:
        super().__init__(table, query_tokens)
        self.contexts, self.beside, self.filters = contexts, beside, filters
        self.asking, self.showing = nn.Linear(table.shape[1], 1, bias=False), nn.Linear(table.shape[1], 1, bias=False)
        self.measure = nn.Conv2d(CHANNELS, filters, PATCH, padding=PATCH // 2)
        self.decay = nn.Parameter(torch.zeros(2))  # logarithms of a and b of g(p) = a / (p + b)
        self.reader = nn.GRU(filters + 1, memory, batch_first=True)
        self.head = nn.Linear(memory, 1, bias=False)
        self.weights = nn.Embedding.from_pretrained(torch.ones(len(table), 1), freeze=False)

    @property
    def hidden_size(self) -> int:
        """The size of a state: for each context its existence, place and measure; each query token's weight; the length."""
        return self.query_tokens * (self.contexts * (2 + self.filters) + 1) + 1

    def features(self, texts: Texts) -> Tensor:
        """See WordRanker."""
        places, real = occurrences(texts, self.contexts)
        measured = self.measured(texts, places, real)
        rows = torch.cat([torch.stack([real, places * real], dim=-1).to(measured.dtype), measured], dim=-1)
        weights = self.weights(texts.query).squeeze(-1) * texts.query_mask
        return torch.cat([rows.flatten(1), weights, texts.passage_mask.sum(1, keepdim=True)], dim=1)

    def measured(self, texts: Texts, places: Tensor, real: Tensor) -> Tensor:
        """The measure network: features of each context, (batch, query_tokens, contexts, filters), at least 0.

        Args:
            texts: the batch.
            places: (batch, query_tokens, contexts), places of the matching tokens in the passage.
            real: the same shape, bool, whether the context exists.
        """
        query, passage = self.table(texts.query), self.table(texts.passage)
        cosines = F.normalize(query, dim=-1) @ F.normalize(passage, dim=-1).transpose(1, 2)
        near = places.unsqueeze(-1) + torch.arange(-self.beside, self.beside + 1, device=places.device)
        inside = real.unsqueeze(-1) & (near >= 0) & (near < texts.passage_mask.sum(1)[:, None, None, None])
        flat = clamped(near, cosines.shape[2]).flatten(1)  # (batch, query_tokens * contexts * width)

        def of_contexts(values: Tensor) -> Tensor:
            rows = values.gather(2, flat.unsqueeze(1).expand(-1, values.shape[1], -1))
            return rows.unflatten(2, near.shape[1:]).permute(0, 2, 3, 1, 4)  # (batch, query_tokens, contexts, rows, width)

        cells = (inside.unsqueeze(3) & texts.query_mask[:, None, None, :, None]).flatten(0, 2).unsqueeze(1)
        cosine = of_contexts(cosines)
        words = (
            self.asking(query)[:, None, None].expand_as(cosine),
            of_contexts(self.showing(passage).transpose(1, 2)).expand_as(cosine),
        )
        tensor = torch.stack([*words, cosine], dim=3).flatten(0, 2) * cells
        return (self.measure(tensor).relu() * cells).amax((2, 3)).unflatten(0, (-1, *places.shape[1:]))

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Combining: the aggregation network reads a document's contexts as if it were one text."""
        sizes = [states.shape[-1] - self.query_tokens - 1, self.query_tokens, 1]
        rows, weights, lengths = states.split(sizes, dim=-1)
        contexts = rows.reshape(rows.shape[0], -1, self.query_tokens, self.contexts, 2 + self.filters).transpose(1, 2)
        before = (lengths.cumsum(1) - lengths)[:, None, :, :]  # (docs, 1, passages, 1)
        real, places = contexts[..., 0].flatten(2) > 0, (contexts[..., 1] + before).flatten(2)
        a, b = self.decay.exp()
        read = torch.cat([contexts[..., 2:].flatten(2, 3), (a / (places + b)).unsqueeze(-1)], dim=-1)
        terms = self.head(self.last_state(read, real)).squeeze(-1)
        return (terms * weights[:, 0]).sum(1)  # all passages have the same weights, and the first is never padding

    def last_state(self, read: Tensor, real: Tensor) -> Tensor:
        """The recurrent network's state after the last real context, (docs, query_tokens, memory); zeros without a context.

        Args:
            read: (docs, query_tokens, contexts, filters + 1).
            real: (docs, query_tokens, contexts) bool; other contexts are skipped, wherever they stand.
        """
        count = real.sum(-1).flatten()
        place = (real | ~real).long().cumsum(-1)  # not an arange: an exported graph would fix its length
        order = (place + FAR * ~real).argsort(dim=-1).unsqueeze(-1)
        rows = read.gather(2, order.expand(-1, -1, -1, read.shape[-1])).flatten(0, 1)
        nothing = (0 * rows[:, 0, :1]).expand(
            -1, self.reader.hidden_size
        )  # from the rows: plain zeros would fix the batch size of an exported graph
        states, _ = self.reader(rows, nothing.unsqueeze(0).contiguous())
        last = states.gather(1, clamped(count - 1, real.shape[2])[:, None, None].expand(-1, -1, states.shape[-1])).squeeze(1)
        return (last * (count > 0).unsqueeze(-1)).unflatten(0, (-1, real.shape[1]))


def occurrences(texts: Texts, contexts: int) -> tuple[Tensor, Tensor]:
    """The places of each query token in the passage, in order, and which of them are real: (batch, query_tokens, contexts) each."""
    same = (
        (texts.query.unsqueeze(2) == texts.passage.unsqueeze(1)) & texts.query_mask.unsqueeze(2) & texts.passage_mask.unsqueeze(1)
    )
    place = torch.arange(same.shape[2], device=same.device).expand_as(same).masked_fill(~same, FAR)
    places = F.pad(place, (0, contexts), value=FAR).topk(contexts, dim=-1, largest=False).values
    return places, places < FAR
