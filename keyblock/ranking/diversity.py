"""An order in which results differ from those before them: maximal marginal relevance."""

import numpy as np
from numpy.typing import NDArray

from keyblock.ranking.pruning import Late, Steps, never


def by_marginal_relevance(
    relevance: NDArray[np.float64], vectors: NDArray[np.int8], diversity: float, late: Late = never, most: int | None = None
) -> Steps[list[int]]:
    """The numbers of results, each the most relevant one that is unlike those before it; ties keep the order given.

    The next result has the highest ``(1 - diversity) * relevance / best relevance - diversity * nearest``, where ``nearest`` is its
    greatest cosine with a result before it: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering
    documents and producing summaries" (SIGIR 1998), with lambda ``1 - diversity``. Relevance is divided by the best, since both
    terms need one scale, and all probabilities of a query may be small.

    Args:
        relevance: shape (n,), not below 0, best first.
        vectors: shape (n, dimensions), what the results say, of any length.
        diversity: 0 to 1.
        late: once it is, the list ends; it has at least one result.
        most: how many numbers are wanted; none: all.
    """
    whole = vectors.astype(np.float64)  # products of integers are exact: equal vectors tie
    lengths = np.maximum(np.linalg.norm(whole, axis=1), 1.0)
    gain = (1 - diversity) * relevance / max(float(relevance.max(initial=0.0)), np.finfo(np.float64).tiny)
    worth, nearest = gain.copy(), np.full(len(gain), -np.inf)
    chosen: list[int] = []
    while len(chosen) < min(len(gain), most or len(gain)) and not (chosen and late()):
        best = int(np.argmax(worth))
        chosen.append(best)
        nearest = np.maximum(nearest, whole @ whole[best] / (lengths * lengths[best]))
        worth = gain - diversity * nearest
        worth[chosen] = -np.inf
        yield
    return chosen
