"""The rerank APIs of upstreams: writes a query with passages as a body, and reads an answer as logits, or rejects it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from service.settings import UpstreamKind, UpstreamScores

LONGEST_SHOWN = 60  # characters of an answer that a message repeats
HUGE = 1e30  # no score, and no NaN, is less
MOST_LOGIT = 30.0  # for a probability of 0 or 1


class NonsenseError(Exception):
    """The answer makes no sense; the message is one line with its contents."""


class Shape(NamedTuple):
    """The shape of one API.

    Attributes:
        texts: the field of the passages.
        score: the field of a result's score.
        bare: whether the answer is the list of results itself.
        options: sent with every request.
        scores: the scale of the scores.
        instruction: the field of the instruction; empty if there is none, so that the query begins with it, as Voyage has it.
    """

    texts: str
    score: str
    bare: bool
    options: Mapping[str, Any]
    scores: UpstreamScores
    instruction: str = ""


SHAPES = {
    UpstreamKind.COHERE: Shape("documents", "relevance_score", False, {}, UpstreamScores.PROBABILITY),
    UpstreamKind.JINA: Shape(
        "documents", "relevance_score", False, {"return_documents": False}, UpstreamScores.PROBABILITY, "instruction"
    ),
    UpstreamKind.TEI: Shape("texts", "score", True, {"raw_scores": True, "truncate": True}, UpstreamScores.LOGIT),
}


def written(shape: Shape, model: str, query: str, passages: Sequence[str], instruction: str = "") -> bytes:
    """The body of a request; an empty model and an empty instruction are left out."""
    named = {"model": model} if model else {}
    if instruction and shape.instruction:
        named[shape.instruction] = instruction
    elif instruction:
        query = f"{instruction}\n{query}"
    return orjson.dumps({**named, "query": query, shape.texts: list(passages), **shape.options})


def read(shape: Shape, content: bytes, passages: int, scores: UpstreamScores = UpstreamScores.AUTO) -> NDArray[np.float32]:
    """The logit of each passage, shape (passages,).

    Args:
        shape: of the answer.
        content: the answer's body.
        passages: number of passages that were sent.
        scores: the scale; auto is the API's own.

    Raises NonsenseError unless the answer holds one finite score for each passage.
    """
    values = np.full(passages, np.nan)
    for result in _results(shape, content, passages):
        index, score = (result.get("index"), result.get(shape.score)) if isinstance(result, dict) else (None, None)
        if type(index) is not int or not 0 <= index < passages:
            raise NonsenseError(f"a result with index {_shown(index)}, where {passages} passages were sent")
        if not np.isnan(values[index]):
            raise NonsenseError(f"two results with index {index}")
        if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < HUGE:
            raise NonsenseError(f"{_shown(score)} as the {shape.score} of passage {index}")
        values[index] = score
    if (shape.scores if scores is UpstreamScores.AUTO else scores) is UpstreamScores.LOGIT:
        return values.astype(np.float32)
    if ((values < 0) | (values > 1)).any():
        wrong = float(values[(values < 0) | (values > 1)][0])
        raise NonsenseError(f"the score {wrong:.6g}, no probability; if its scores are logits, set upstream_scores to logit")
    return logits(values)


def logits(probabilities: NDArray[np.float64]) -> NDArray[np.float32]:
    """The logits of probabilities, limited to MOST_LOGIT."""
    with np.errstate(divide="ignore"):
        values = np.log(probabilities) - np.log1p(-probabilities)
    return np.asarray(np.clip(values, -MOST_LOGIT, MOST_LOGIT), dtype=np.float32)


def _results(shape: Shape, content: bytes, passages: int) -> list[Any]:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        shown = content[:LONGEST_SHOWN].decode("utf-8", "replace")
        raise NonsenseError(f"no JSON: {shown!r}") from None
    results = answer if shape.bare else answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise NonsenseError(f"no list of results: {_shown(answer)}")
    if len(results) != passages:
        raise NonsenseError(f"{len(results)} results for {passages} passages")
    return results


def _shown(value: object) -> str:
    """The beginning of a value in JSON."""
    try:
        return orjson.dumps(value)[:LONGEST_SHOWN].decode("utf-8", "replace")
    except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
        return f"a {type(value).__name__} of too many levels"
