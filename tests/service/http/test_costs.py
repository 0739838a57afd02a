import numpy as np
import pytest
from starlette.testclient import TestClient

from keyblock.evidence import Fusion
from keyblock.packing import Packed
from keyblock.ranking.order import Candidate, rank
from service.call import Call, Documents
from service.http.costs import COST_HEADERS, cost_headers
from service.http.examples import EXAMPLES

NAMES = ["compute-tokens", "compute-characters", "compute-time", "total-time", "tokenization-time", "queue-time", "inference-time"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_headers_of_every_dialect_tell_the_cost(client: TestClient, example: str) -> None:
    response = client.post("/rerank", json=EXAMPLES[example].request)
    assert response.status_code == 200
    assert all(int(response.headers[f"x-{name}"]) >= 0 for name in NAMES)
    timing = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    assert list(timing) == ["parse", "prepare", "queue", "model", "aggregate", "respond", "total"]
    assert sum(float(timing[stage]) for stage in list(timing)[:-1]) <= float(timing["total"]) + 0.01


def test_errors_have_their_timing_too(client: TestClient) -> None:
    response = client.post("/rerank", content=b"{")
    assert response.status_code == 400
    assert response.headers["server-timing"].startswith("total;dur=")


def test_time_that_selects_blocks_with_the_model_is_inference_time() -> None:
    candidate = Candidate([Packed(np.arange(10, dtype=np.int32), 3, np.zeros(1, np.intp))], np.zeros(5), [], selection_tokens=20)
    ranking = rank([candidate], np.zeros(1, np.float32), Fusion(), 128, raw=False)
    timings = {"parse": 1.0, "prepare": 2.0, "select": 30.0, "queue": 4.0, "model": 50.0, "total": 87.0}
    headers = cost_headers(Call("q", Documents(["abc"], [""], [None])), ranking, timings)
    assert [headers[f"x-{name}"] for name in NAMES] == ["30", "4", "87", "87", "2", "4", "80"]
    assert set(headers) == {name.lower() for name in COST_HEADERS}  # and no x-degraded
