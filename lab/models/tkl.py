"""TKL (Hofstätter et al., "Local Self-Attention over Long Text for Efficient Document Retrieval", SIGIR 2020).

Word vectors attend to their neighbours within short windows. The query's vectors are compared with the passage's by cosines.
Kernels softly count the tokens of a region (of 30) by their cosine with a query token, a learned saturation flattens the counts,
and the document's best regions give its logit. Windows, strides, the number of kernels and initial values are those of the authors'
code (matchmaker, sigir20_tkl), whether the paper gives a size or none. The differences, and their reasons:

- The document is read as passages: a region does not reach over the end of a passage, and regions of two passages never overlap.
- Word vectors are the backbone's, words are its word pieces, and learned positions start near zero: BERT's vectors are ten times
  shorter than the sinusoids that the authors add to GloVe's.
- The saturation reads a region's length as a share of a full region. The authors' layer norm over salience and length would keep
  only which of the two is larger.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lab.models.cedr import MEANS, SOFT
from lab.models.tokens import Combining
from lab.models.words import Texts, WordRanker, clamped
from training.model.aggregators import STD, attended, bert_layers

WINDOW, OVERLAP = 40, 5  # tokens of a local window, and further tokens on each side that it attends to
STRIDE = 2  # tokens between the starts of regions
AROUND = (0, -1, 1, -2, 2)  # offsets of a best region and its neighbours, which are scored with it
LEAST = 1e-10  # lower bound of a soft count, before its root
FLAT = 100.0  # a * x ** (1 / b) - c is close to ln x if a, b and c are 100
SMALL = 0.014  # weights start between -0.014 and 0.014


class Tkl(Combining, WordRanker):
    """See `lab.families.TklFamily`. A state holds the passage's best regions: for each its existence and its scores.

    Args:
        table: see WordRanker.
        query_tokens: see WordRanker.
        layers: layers of the local transformer.
        heads: attention heads of a layer.
        ffn: inner size of a layer.
        region: tokens of a region.
        regions: best regions of a document that count.

    Raises ValueError if the heads do not divide the word vectors' size.
    """

    def __init__(self, table: Tensor, query_tokens: int, layers: int, heads: int, ffn: int, region: int, regions: int) -> None:
        super().__init__(table, query_tokens)
        size = table.shape[1]
        if size % heads:
            raise ValueError(f"tkl: {heads} heads do not divide the word vectors' size of {size}; set heads")
        self.region, self.regions = region, regions
        self.layers = bert_layers(layers, size, heads, ffn)
        self.places = nn.Parameter(torch.randn(WINDOW + 2 * OVERLAP, size) * STD)
        self.own = nn.Parameter(torch.tensor(0.5))  # the share of the word's own vector
        self.salience = nn.Linear(size, 1, bias=False)
        self.saturation = nn.Linear(2, 3)
        self.kernels = nn.Linear(len(MEANS), 1, bias=False)
        for weights in (self.saturation.weight, self.kernels.weight):
            nn.init.uniform_(weights, -SMALL, SMALL)
        nn.init.constant_(self.saturation.bias, FLAT)
        self.shares = nn.Parameter(torch.ones(regions, len(AROUND)))

    @property
    def hidden_size(self) -> int:
        """The size of a state: for each region its existence, its score, and its neighbours' scores."""
        return self.regions * (1 + len(AROUND))

    def features(self, texts: Texts) -> Tensor:
        """See WordRanker."""
        query, passage = self.local(texts.query, texts.query_mask), self.local(texts.passage, texts.passage_mask)
        cosines = F.normalize(query, dim=-1) @ F.normalize(passage, dim=-1).transpose(1, 2)
        counts, lengths = regional(cosines, texts.passage_mask, self.region)
        saturated = self.saturated(counts, lengths, self.salience(query)) * texts.query_mask[:, :, None, None]
        scores = self.kernels(saturated.sum(1)).squeeze(-1)
        return best_regions(scores, lengths > 0, self.regions, self.region).flatten(1)

    def local(self, ids: Tensor, real: Tensor) -> Tensor:
        """Word vectors mixed with their neighbours in a window, (batch, length, size); zero for padding."""
        words = self.table(ids) * real.unsqueeze(-1)
        length = ids.shape[1]
        starts = torch.arange(0, length, WINDOW, device=ids.device)
        places = starts.unsqueeze(1) + torch.arange(-OVERLAP, WINDOW + OVERLAP, device=ids.device)  # (windows, span)
        inside = (places >= 0) & (places < length)
        places = clamped(places, length)
        windows, mask = words[:, places], real[:, places] & inside  # (batch, windows, span, size) and without the size
        mixed = attended(self.layers, (windows + self.places).flatten(0, 1), mask.flatten(0, 1))
        mixed = mixed[:, OVERLAP:-OVERLAP].reshape(ids.shape[0], -1, words.shape[-1])[:, :length]
        return (self.own * words + (1 - self.own) * mixed) * real.unsqueeze(-1)

    def saturated(self, counts: Tensor, lengths: Tensor, salience: Tensor) -> Tensor:
        """The learned saturation a * count ** (1 / b) - c: a, b and c depend on the query's token and the region's length.

        Args:
            counts: (batch, query_tokens, regions, kernels).
            lengths: (batch, regions), real tokens of each.
            salience: (batch, query_tokens, 1).
        """
        full = (lengths / self.region)[:, None].expand(counts.shape[:3])
        a, b, c = self.saturation(torch.stack([salience.expand(counts.shape[:3]), full], dim=-1)).unsqueeze(-2).unbind(-1)
        return a * counts.clamp(min=LEAST) ** (1 / b) - c

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Combining: the scores of the document's best regions, weighted by rank."""
        rows = states.unflatten(-1, (self.regions, 1 + len(AROUND))).flatten(1, 2)
        ranked = rows[..., 1].masked_fill(rows[..., 0] == 0, torch.finfo(rows.dtype).min).topk(self.regions, dim=1).indices
        best = rows.gather(1, ranked.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))
        return (best[..., 1:] * self.shares).sum((1, 2))


def regional(cosines: Tensor, passage_mask: Tensor, region: int) -> tuple[Tensor, Tensor]:
    """Soft counts in each region, (batch, query_tokens, regions, kernels), and its number of tokens, (batch, regions).

    Regions start at every second token, and the last ones reach beyond the passage.

    Args:
        cosines: (batch, query_tokens, length).
        passage_mask: (batch, length) bool, the passage's real tokens.
        region: tokens of a region.
    """

    def summed(values: Tensor) -> Tensor:
        return F.avg_pool1d(F.pad(values, (0, region)), region, STRIDE) * region

    real = passage_mask.unsqueeze(1).to(cosines.dtype)
    near = [summed((-(cosines - mean).square() / (2 * SOFT**2)).exp() * real) for mean in MEANS]
    return torch.stack(near, dim=-1), summed(real).squeeze(1).round()


def best_regions(scores: Tensor, real: Tensor, regions: int, region: int) -> Tensor:
    """The best regions that do not overlap, best first: (batch, regions, 1 + 5), each with its existence, score and neighbours'.

    Args:
        scores: (batch, places), the score of the region at each place.
        real: (batch, places) bool, which regions hold a token.
        regions: how many regions to return; missing ones are zeros.
        region: tokens of a region.
    """
    floor = torch.finfo(scores.dtype).min
    places = scores.shape[1]
    place = torch.arange(places, device=scores.device)
    around = torch.tensor(AROUND, device=scores.device)
    remaining, rows = scores.masked_fill(~real, floor), []
    scores = scores * real
    for _ in range(regions):
        best = remaining.argmax(1, keepdim=True)
        found = remaining.gather(1, best) > floor
        near = best + around
        inside = (near >= 0) & (near < places) & found
        rows.append(torch.cat([found, scores.gather(1, clamped(near, places)) * inside], dim=1))
        remaining = remaining.masked_fill((place - best).abs() * STRIDE < region, floor)
    return torch.stack(rows, dim=1)
