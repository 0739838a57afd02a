"""What an answer cost, in the headers that text-embeddings-inference answers with; every dialect's answers have them."""

from keyblock.order import Ranking
from service.call import Call

# its name for each of our stages; what the model selects is inference too. "compute" and "total" are one to it as well
TIMES = {
    "compute": ["total"],
    "total": ["total"],
    "tokenization": ["prepare"],
    "queue": ["queue"],
    "inference": ["select", "model", "upstream"],
}
COST_HEADERS = ("X-Compute-Tokens", "X-Compute-Characters", *(f"X-{name.capitalize()}-Time" for name in TIMES))


def cost_headers(call: Call, ranking: Ranking, timings_ms: dict[str, float]) -> dict[str, str]:
    """Tokens, characters, and times in whole milliseconds; and whether a deadline cost something."""
    times = {f"x-{name}-time": sum(timings_ms.get(stage, 0.0) for stage in stages) for name, stages in TIMES.items()}
    characters = len(call.query) + sum(map(len, call.documents.texts))
    headers = {name: str(round(milliseconds)) for name, milliseconds in times.items()}
    headers |= {"x-compute-tokens": str(ranking.n_tokens), "x-compute-characters": str(characters)}
    return headers | ({"x-degraded": "true"} if ranking.degraded else {})
