import asyncio
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from starlette.types import Message

from keyblock.fusion import Fusion
from keyblock.packing import Packed
from keyblock.ranking.order import Candidate, rank
from service.call import Call, Documents
from service.http.dialects import common
from service.http.dialects.common import COST_HEADERS, PiecesResponse, cost_headers, json_list
from service.http.examples import EXAMPLES


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2), max_size=20), st.integers(1, 40))
def test_list_in_pieces_is_the_list(items: list[dict[str, Any]], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "PIECE", piece)
        pieces = list(json_list(items))
    assert orjson.loads(b"".join(pieces)) == items
    assert len(pieces) >= sum(len(orjson.dumps(item)) > piece for item in items)


def test_pieces_are_sent_one_by_one_with_their_length_declared() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    response = PiecesResponse([b"[1", b",2]"], headers={"x-cost": "5"})
    asyncio.run(response({"type": "http"}, receive, send))
    assert dict(sent[0]["headers"]) == {b"content-length": b"5", b"content-type": b"application/json", b"x-cost": b"5"}
    assert [message["body"] for message in sent[1:]] == [b"[1", b",2]", b""]
    assert [message["more_body"] for message in sent[1:]] == [True, True, False]


NAMES = ["compute-tokens", "compute-characters", "compute-time", "total-time", "tokenization-time", "queue-time", "inference-time"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_headers_of_every_dialect_tell_the_cost(client: TestClient, example: str) -> None:
    response = client.post("/rerank", json=EXAMPLES[example].request)
    assert response.status_code == 200
    assert all(int(response.headers[f"x-{name}"]) >= 0 for name in NAMES)
    timing = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    stages = ["queries"] if example == "queries" else ["prepare", "queue", "model", "aggregate", "respond"]
    assert list(timing) == ["parse", *stages, "total"]
    assert sum(float(timing[stage]) for stage in list(timing)[:-1]) <= float(timing["total"]) + 0.01


def test_errors_have_their_timing_too(client: TestClient) -> None:
    response = client.post("/rerank", content=b"{")
    assert response.status_code == 400
    assert response.headers["server-timing"].startswith("total;dur=")


def test_time_that_selects_blocks_with_the_model_is_inference_time() -> None:
    candidate = Candidate([Packed(np.arange(10, dtype=np.int32), 3, np.zeros(1, np.intp))], np.zeros(5), [], selection_tokens=20)
    ranking = rank([candidate], np.zeros(1, np.float32), Fusion(), 128)
    timings = {"parse": 1.0, "prepare": 2.0, "select": 30.0, "queue": 4.0, "model": 50.0, "total": 87.0}
    headers = cost_headers(Call("q", Documents(["abc"], [""], [None])), ranking, timings)
    assert [headers[f"x-{name}"] for name in NAMES] == ["30", "4", "87", "87", "2", "4", "80"]
    assert set(headers) == {name.lower() for name in COST_HEADERS}  # and no x-degraded
