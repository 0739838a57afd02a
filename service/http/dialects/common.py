"""What all dialects read and write in the same way: the query, the candidates and the options; an answer, and its cost in headers.

The candidates are checked by hand: a pydantic pass over megabytes of text costs more than all other work on them. Answers are JSON
in pieces, since one that sends documents back is as large as its request.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keyblock.ranking.order import Ranking
from keyblock.ranking.warnings import LONGEST_SHOWN, first_few
from keyblock.wire import Document
from service.call import Call, Documents
from service.errors import Path, RequestError, dotted
from service.http.bodies.parsing import described
from service.http.bodies.piecewise import DOCUMENT_MEMBERS
from service.settings import Limits

PIECE = 1 << 20  # bytes written at once
# the stages that each of its names covers: our "select" is inference too, and "compute" and "total" are both the total
TIMES = {
    "compute": ["total"],
    "total": ["total"],
    "tokenization": ["prepare"],
    "queue": ["queue"],
    "inference": ["select", "model", "upstream"],
}
COST_HEADERS = ("X-Compute-Tokens", "X-Compute-Characters", *(f"X-{name.capitalize()}-Time" for name in TIMES))
ERROR_TYPES = {401: "Unauthorized", 403: "Forbidden", 429: "Overloaded", 500: "Backend", 503: "Unhealthy"}  # TEI's

M = TypeVar("M", bound=BaseModel)
Payload = dict[str, Any]


def read_query(query: object, limits: Limits, warnings: list[str], path: Path = ("query",)) -> str:
    """The query, cut to the limit with a warning; `path` is its place. Raises RequestError 422 when there is none."""
    if query is None:
        raise RequestError(422, "is missing: say what to rank the documents for", path)
    if not isinstance(query, str):
        raise RequestError(422, f"must be a string, not {described(query)}", path)
    if not query.strip():
        raise RequestError(422, "is empty: say what to rank the documents for", path)
    if len(query) > limits.max_query_chars:
        warnings.append(f"{dotted(path)}: cut from {len(query)} to {limits.max_query_chars} characters")
    return query[: limits.max_query_chars]


def read_documents(
    payload: Payload, name: str, limits: Limits, warnings: list[str], fields: list[str] | None = None, *, by_id: bool = False
) -> Documents:
    """The candidates in the field `name`.

    Args:
        payload: the request.
        name: of the field.
        limits: of documents.
        warnings: grows by warnings of fields that are not used, or that no document has.
        fields: that make up the text of a candidate, if they are named; see `with_text_of`.
        by_id: whether an id may replace a text.

    Raises RequestError 422.
    """
    value = payload.get(name)
    if value is None:
        raise RequestError(422, "is missing: send a list of texts", (name,))
    candidates = [value] if isinstance(value, str) else value
    if not isinstance(candidates, list):
        raise RequestError(422, f"must be a list, not {described(candidates)}", (name,))
    if len(candidates) > limits.max_documents:
        raise RequestError(422, f"has {len(candidates)} elements, limit {limits.max_documents}", (name,))
    documents = Documents([], [], [])
    unread: dict[str, None] = {}
    paths = {field: field.split(".") for field in fields or ()}
    absent: dict[str, None] = dict.fromkeys(paths) if any(isinstance(one, dict) for one in candidates) else {}
    for number, one in enumerate(candidates):
        if isinstance(one, dict) and len(one) > DOCUMENT_MEMBERS:
            raise RequestError(422, f"has {len(one)} members, limit {DOCUMENT_MEMBERS}", (name, number))
        candidate = with_text_of(one, paths, absent) if paths and isinstance(one, dict) else one
        for field in _read_document(candidate, (name, number), limits, documents, by_id=by_id):
            unread[field] = None
    if unread:
        warnings.append(f"{name}: fields not used: {first_few(list(unread))}")
    if absent:
        shown = [field[:LONGEST_SHOWN] for field in absent]
        warnings.append(f"rank_fields: no document has a text, a number or a list of them in: {first_few(shown)}")
    return documents


def _read_document(candidate: object, path: Path, limits: Limits, documents: Documents, *, by_id: bool) -> Iterable[str]:
    """Add a candidate to the documents. Returns the names of its fields that are not used. Raises RequestError 422."""
    if candidate is None or isinstance(candidate, str):
        documents.add(read_text(candidate or "", path, limits), "", None)
        return ()
    if not isinstance(candidate, dict):
        raise RequestError(422, f"must be a string or an object with 'text', not {described(candidate)}", path)
    identity, text, title = candidate.get("id"), candidate.get("text"), candidate.get("title")
    if isinstance(identity, bool) or not isinstance(identity, str | int | None):
        raise RequestError(422, f"must be a string or an integer, not {described(identity)}", (*path, "id"))
    is_stored = by_id and text is None and identity is not None
    is_null = text is None and "text" in candidate
    text = "" if is_stored or is_null else read_text(text, (*path, "text"), limits)
    title = "" if title is None else read_text(title, (*path, "title"), limits)
    if is_stored:
        documents.by_id.ids[len(documents)] = str(identity)
        documents.add("", "", identity)  # the stored title is used
        return [name[:LONGEST_SHOWN] for name in candidate.keys() - {"id", "text"} if candidate[name] is not None]
    documents.add(text, title, identity)
    return [name[:LONGEST_SHOWN] for name in candidate.keys() - Document.model_fields.keys()]


def read_text(text: object, path: Path, limits: Limits) -> str:
    """A document's text or title. Raises RequestError 422."""
    if not isinstance(text, str):
        problem = "is missing or null" if text is None else f"must be a string, not {described(text)}"
        raise RequestError(422, problem, path)
    if len(text) > limits.max_document_chars:
        raise RequestError(422, f"has {len(text)} characters, limit {limits.max_document_chars}", path)
    return text


def read_options(model: type[M], payload: Payload, taken: set[str]) -> M:
    """The options of `payload`, without the fields in `taken`. Raises RequestError 422 naming the first bad one."""
    try:
        return model.model_validate({name: value for name, value in payload.items() if name not in taken})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        sent = "" if first["type"] == "missing" else f", and it is {described(first['input'])}"
        problem = f"{message[0].lower()}{message[1:]}{sent}"
        raise RequestError(422, problem, first["loc"]) from None


def unknown_fields(options: BaseModel) -> list[str]:
    """The names of fields that have a value, but that the options' model does not know."""
    return [name[:LONGEST_SHOWN] for name, value in (options.model_extra or {}).items() if value is not None]


def with_text_of(candidate: dict[str, Any], paths: Mapping[str, Sequence[str]], absent: dict[str, None]) -> dict[str, Any]:
    """The candidate with a text made of named fields: their strings, numbers, booleans, or lists of them, one per line.

    A title stays the title beside other fields. Without any of the fields, the candidate is read as usual; if it has no text and
    more than an id, its text is empty.

    Args:
        candidate: the document.
        paths: the name of each field, and its parts: `meta.body` is the member `body` of `meta`.
        absent: loses the names of the fields that are found.
    """
    found = {name: text for name, parts in paths.items() if (text := _as_text(_value_at(candidate, name, parts))) is not None}
    if not found:
        named_alone = candidate.keys() <= {"id", "text"}  # a stored document
        return candidate if named_alone or candidate.get("text") is not None else candidate | {"text": ""}
    for name in found:
        absent.pop(name, None)
    read = {"title", "text", *(name if name in candidate else paths[name][0] for name in found)}
    title = found.pop("title", None) if len(found) > 1 else None
    return {name: value for name, value in candidate.items() if name not in read} | {
        "text": "\n".join(found.values()),
        "title": title,
    }


def _value_at(candidate: dict[str, Any], name: str, parts: Sequence[str]) -> Any:
    """The value of a field, whose name may have dots itself."""
    if name in candidate:
        return candidate[name]
    value: Any = candidate
    for part in parts:
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _as_text(value: object) -> str | None:
    """A field as text; None for null, for objects, and for lists without anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        texts = [text for one in value if not isinstance(one, list) and (text := _as_text(one)) is not None]
        return "\n".join(texts) if texts else None
    return str(value) if isinstance(value, str | int | float) else None


@dataclass(frozen=True, slots=True)
class About:
    """The parts of an answer beside its results.

    Attributes:
        model: name of the model.
        path: of the request.
        timings_ms: by stage, and their `total`.
        request_id: the end of the answer's `id`, as in vLLM's answers.
    """

    model: str
    path: str
    timings_ms: dict[str, float]
    request_id: str


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Parts joined to pieces of about a megabyte."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def json_list(items: Iterable[Mapping[str, object]]) -> Iterator[bytes]:
    """A JSON list, in pieces of about a megabyte."""

    def parts() -> Iterator[bytes]:
        yield b"["
        for number, item in enumerate(items):
            yield b"," + orjson.dumps(item) if number else orjson.dumps(item)
        yield b"]"

    return in_pieces(parts())


def with_list(frame: Mapping[str, object], name: str, items: Iterable[Mapping[str, object]]) -> Iterator[bytes]:
    """The JSON object `frame`, whose member `name` is an empty list, with that list filled, in pieces."""
    head, found, tail = orjson.dumps(frame).partition(b'"%b":' % name.encode())
    yield head + found
    yield from json_list(items)
    yield tail.removeprefix(b"[]")


class PiecesResponse(Response):
    """A JSON response whose body is sent piece by piece; its length is known beforehand.

    Attributes:
        n_bytes: of the body.
    """

    media_type = "application/json"

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = list(pieces)
        self.n_bytes = sum(map(len, self.pieces))
        super().__init__(None, headers={"content-length": str(self.n_bytes)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; each piece, and the end, waits until the client has read almost everything before it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def cost_headers(call: Call, ranking: Ranking, timings_ms: dict[str, float]) -> dict[str, str]:
    """Tokens, characters, and times in whole milliseconds; whether the answer is degraded, and what the model has not read."""
    times = {f"x-{name}-time": sum(timings_ms.get(stage, 0.0) for stage in stages) for name, stages in TIMES.items()}
    characters = len(call.query) + sum(map(len, call.documents.texts))
    headers = {name: str(round(milliseconds)) for name, milliseconds in times.items()}
    headers |= {"x-compute-tokens": str(ranking.n_tokens), "x-compute-characters": str(characters)}
    headers |= {"x-degraded": "true"} if ranking.degraded else {}
    return headers | ({"x-skipped-documents": str(ranking.skipped)} if ranking.skipped else {})
