"""vLLM's dialect for scores: a query and texts, or as many queries as texts; the answer has the scores in the order given."""

from typing import Any

from keyblock.ranking.answer import Answered
from keyblock.ranking.warnings import first_few
from keyblock.wire import PairScore, ScoreOptions
from service.call import Call
from service.errors import RequestError
from service.http.dialects import native
from service.http.dialects.common import About, Payload, PiecesResponse, read_documents, read_options, read_query, unknown_fields
from service.settings import Limits

NAME = "score"
NAMES = (("queries", "documents"), ("text_1", "text_2"))  # of the two members, in newer and in older versions
error = native.error


def read(payload: Payload, limits: Limits) -> Call:
    """Read a request. Raises RequestError 422."""
    warnings: list[str] = []
    queries, texts = next((names for names in NAMES if any(payload.get(name) is not None for name in names)), NAMES[-1])
    documents = read_documents(payload, texts, limits, warnings)
    options = read_options(ScoreOptions, payload, {queries, texts})
    if unknown := unknown_fields(options):
        warnings.append(f"unknown fields, not used: {first_few(unknown)}")
    return Call(
        read_query(_one_query(payload.get(queries), queries, texts, len(documents)), limits, warnings, (queries,)),
        documents,
        model=options.model,
        raw_scores=options.use_activation is False,
        warnings=warnings,
    )


def _one_query(given: Any, name: str, texts: str, n_texts: int) -> Any:
    """The query in a list that has it once, or once for each text. Raises RequestError 422."""
    if not isinstance(given, list) or not given:
        return given
    if len(given) not in (1, n_texts):
        raise RequestError(422, f"has {len(given)} elements, and {texts} has {n_texts}: send one, or one for each", (name,))
    for number, query in enumerate(given):
        if query != given[0]:
            raise RequestError(
                422, "differs from the first: a request scores texts for one query; send one for each", (name, number)
            )
    return given[0]


def answer(call: Call, answered: Answered, about: About) -> PiecesResponse:
    """The answer, in the order of the request."""
    scores = answered.ranking.scores
    data = (PairScore(index=index, object="score", score=float(scores[index])) for index in range(len(call.documents)))
    return native.whole(call, answered, about, "data", data, object="list", id=f"score-{about.request_id}")
