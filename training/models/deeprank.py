"""DeepRank (Pang et al., "DeepRank: A New Deep Architecture for Relevance Ranking in Information Retrieval", CIKM 2017).

Wherever a passage has a token of the query, a few tokens around it are a context. A convolution measures each context against the
whole query, a recurrent network reads a query token's contexts in the document's order, and what it makes of them is
weighed by how much that token says.

Of the paper's variants this is the convolution (which KeyB's authors found the better one), the GRU over contexts, and the
reciprocal g(p) of a context's place. Words are a backbone's tokens; stop words are not taken out, their weights must learn
it. A token's weight starts at 1, and not at its inverse document frequency, which a backbone does not know. The place of a
context is counted over what the model reads: passages lie end to end, and of each the first few contexts of a query token count.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.combining import Combining
from training.models.word_vectors import Texts, WordRanker, within

CHANNELS = 3  # a cell's query word and passage word, each as one number, and their cosine
PATCH = 3  # cells that the convolution sees in each direction
FAR = 1 << 20  # a place behind every passage


class DeepRank(Combining, WordRanker):
    """See `training.declarations.DeepRankFamily`. A state is each query token's contexts and weight, and the length.

    Args:
        table: see WordRanker.
        query_tokens: see WordRanker.
        contexts: of a query token in a passage, at most.
        beside: tokens of a context on each side of the one that matches.
        filters: of the convolution.
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
        """Of a state: for each context whether there is one, its place and its measure; each query token's weight; the length."""
        return self.query_tokens * (self.contexts * (2 + self.filters) + 1) + 1

    def features(self, texts: Texts) -> Tensor:
        """See WordRanker."""
        places, real = occurrences(texts, self.contexts)
        measured = self.measured(texts, places, real)
        rows = torch.cat([torch.stack([real, places * real], dim=-1).to(measured.dtype), measured], dim=-1)
        weights = self.weights(texts.query).squeeze(-1) * texts.asked
        return torch.cat([rows.flatten(1), weights, texts.shown.sum(1, keepdim=True)], dim=1)

    def measured(self, texts: Texts, places: Tensor, real: Tensor) -> Tensor:
        """The measure network: features of each context, (batch, query_tokens, contexts, filters), at least 0.

        Args:
            texts: the batch.
            places: (batch, query_tokens, contexts), of the matching tokens in the passage.
            real: of the same shape, bool, whether there is one.
        """
        asked, shown = self.table(texts.query), self.table(texts.passage)
        cosines = F.normalize(asked, dim=-1) @ F.normalize(shown, dim=-1).transpose(1, 2)
        near = places.unsqueeze(-1) + torch.arange(-self.beside, self.beside + 1, device=places.device)
        inside = real.unsqueeze(-1) & (near >= 0) & (near < texts.shown.sum(1)[:, None, None, None])
        flat = within(near, cosines.shape[2]).flatten(1)  # (batch, query_tokens * contexts * width)

        def of_contexts(values: Tensor) -> Tensor:
            rows = values.gather(2, flat.unsqueeze(1).expand(-1, values.shape[1], -1))
            return rows.unflatten(2, near.shape[1:]).permute(0, 2, 3, 1, 4)  # (batch, query_tokens, contexts, rows, width)

        cells = (inside.unsqueeze(3) & texts.asked[:, None, None, :, None]).flatten(0, 2).unsqueeze(1)
        cosine = of_contexts(cosines)
        words = (
            self.asking(asked)[:, None, None].expand_as(cosine),
            of_contexts(self.showing(shown).transpose(1, 2)).expand_as(cosine),
        )
        tensor = torch.stack([*words, cosine], dim=3).flatten(0, 2) * cells
        return (self.measure(tensor).relu() * cells).amax((2, 3)).unflatten(0, (-1, *places.shape[1:]))

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Combining: the aggregation network, over a document's contexts as if it were one text."""
        sizes = [states.shape[-1] - self.query_tokens - 1, self.query_tokens, 1]
        rows, weights, lengths = states.split(sizes, dim=-1)
        contexts = rows.reshape(rows.shape[0], -1, self.query_tokens, self.contexts, 2 + self.filters).transpose(1, 2)
        before = (lengths.cumsum(1) - lengths)[:, None, :, :]  # (docs, 1, passages, 1)
        real, places = contexts[..., 0].flatten(2) > 0, (contexts[..., 1] + before).flatten(2)
        a, b = self.decay.exp()
        read = torch.cat([contexts[..., 2:].flatten(2, 3), (a / (places + b)).unsqueeze(-1)], dim=-1)
        terms = self.head(self.last_state(read, real)).squeeze(-1)
        return (terms * weights[:, 0]).sum(1)  # all passages know the same weights, and the first is real

    def last_state(self, read: Tensor, real: Tensor) -> Tensor:
        """What the recurrent network knows after the last real context, (docs, query_tokens, memory); zeros where there is none.

        Args:
            read: (docs, query_tokens, contexts, filters + 1).
            real: (docs, query_tokens, contexts) bool; the others are passed over, wherever they stand.
        """
        count = real.sum(-1).flatten()
        place = (real | ~real).long().cumsum(-1)  # not an arange, whose length a graph would keep
        order = (place + FAR * ~real).argsort(dim=-1).unsqueeze(-1)
        rows = read.gather(2, order.expand(-1, -1, -1, read.shape[-1])).flatten(0, 1)
        nothing = (0 * rows[:, 0, :1]).expand(-1, self.reader.hidden_size)  # of the rows: plain zeros would freeze a graph's batch
        states, _ = self.reader(rows, nothing.unsqueeze(0).contiguous())
        last = states.gather(1, within(count - 1, real.shape[2])[:, None, None].expand(-1, -1, states.shape[-1])).squeeze(1)
        return (last * (count > 0).unsqueeze(-1)).unflatten(0, (-1, real.shape[1]))


def occurrences(texts: Texts, contexts: int) -> tuple[Tensor, Tensor]:
    """Where the passage has each token of the query: places (batch, query_tokens, contexts) in order, and which are real."""
    same = (texts.query.unsqueeze(2) == texts.passage.unsqueeze(1)) & texts.asked.unsqueeze(2) & texts.shown.unsqueeze(1)
    place = torch.arange(same.shape[2], device=same.device).expand_as(same).masked_fill(~same, FAR)
    places = F.pad(place, (0, contexts), value=FAR).topk(contexts, dim=-1, largest=False).values
    return places, places < FAR
