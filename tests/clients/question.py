"""What the clients rank: the example of the README, each of its documents lost in pages of something else."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from running import ROOT

EXAMPLE = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
QUERY: str = EXAMPLE["query"]
MINUTES = "".join(f"Item {n}: the committee heard the report on the car park and thanked the treasurer. " for n in range(1, 101))
DOCUMENTS: list[str] = [f"{MINUTES}\n\n{document['text']}\n\n{MINUTES}" for document in EXAMPLE["documents"]]  # 3,200 words each
ORDER = [2, 0, 1]  # the lease, whose fifth paragraph answers; a letters page about tenants; a gym's terms


def check(ranked: Sequence[tuple[int, float]], top_n: int = len(ORDER)) -> None:
    """The documents' numbers, best first, with their scores, are as many as asked for, and right."""
    assert [number for number, _ in ranked] == ORDER[:top_n]
    scores = [score for _, score in ranked]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)


def pairs(results: Iterable[Any]) -> list[tuple[int, float]]:
    """The numbers and scores of results as most clients have them."""
    return [(result.index, result.relevance_score) for result in results]


def of_logits(ranked: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """The same with probabilities."""
    return [(number, 1 / (1 + math.exp(-logit))) for number, logit in ranked]
