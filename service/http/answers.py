"""Answers as JSON in pieces, since an answer that sends documents back is as large as its request; and headers with their cost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keyblock.ranking.order import Ranking
from service.call import Call

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


def json_list(items: Iterable[Mapping[str, object]]) -> Iterator[bytes]:
    """A JSON list, in pieces of about a megabyte."""
    piece = bytearray(b"[")
    comma = b""
    for item in items:
        piece += comma + orjson.dumps(item)
        comma = b","
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + b"]"


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

    def __init__(self, pieces: Iterable[bytes], status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.pieces = list(pieces)
        self.n_bytes = sum(map(len, self.pieces))
        super().__init__(None, status, {**(headers or {}), "content-length": str(self.n_bytes)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; each piece, and the end, waits until the client has read almost everything before it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def disconnected(request: Request) -> None:
    """Return when the client has gone; the request's body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def cost_headers(call: Call, ranking: Ranking, timings_ms: dict[str, float]) -> dict[str, str]:
    """Tokens, characters, and times in whole milliseconds; and whether the answer is degraded."""
    times = {f"x-{name}-time": sum(timings_ms.get(stage, 0.0) for stage in stages) for name, stages in TIMES.items()}
    characters = len(call.query) + sum(map(len, call.documents.texts))
    headers = {name: str(round(milliseconds)) for name, milliseconds in times.items()}
    headers |= {"x-compute-tokens": str(ranking.n_tokens), "x-compute-characters": str(characters)}
    return headers | ({"x-degraded": "true"} if ranking.degraded else {})
