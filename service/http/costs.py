"""The cost of an answer, in the headers of text-embeddings-inference; the answers of every dialect have them."""

from keyblock.ranking.order import Ranking
from service.call import Call

# the stages that each of its names covers: our "select" is inference too, and "compute" and "total" are both the total
TIMES = {
    "compute": ["total"],
    "total": ["total"],
    "tokenization": ["prepare"],
    "queue": ["queue"],
    "inference": ["select", "model", "upstream"],
}
COST_HEADERS = ("X-Compute-Tokens", "X-Compute-Characters", *(f"X-{name.capitalize()}-Time" for name in TIMES))


def cost_headers(call: Call, ranking: Ranking, timings_ms: dict[str, float]) -> dict[str, str]:
    """Tokens, characters, and times in whole milliseconds; and whether the answer is degraded."""
    times = {f"x-{name}-time": sum(timings_ms.get(stage, 0.0) for stage in stages) for name, stages in TIMES.items()}
    characters = len(call.query) + sum(map(len, call.documents.texts))
    headers = {name: str(round(milliseconds)) for name, milliseconds in times.items()}
    headers |= {"x-compute-tokens": str(ranking.n_tokens), "x-compute-characters": str(characters)}
    return headers | ({"x-degraded": "true"} if ranking.degraded else {})
