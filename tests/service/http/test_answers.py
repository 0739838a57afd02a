from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.fusion import Fusion
from keyblock.packing import Packed
from keyblock.ranking.order import Candidate, rank
from keyblock.wire import RerankAnswer, TeiResult
from service.app import NIM_PATH, RERANK_PATHS, SCORE_PATHS
from service.call import Call, Documents
from service.http.dialects import common
from service.http.dialects.common import COST_HEADERS, cost_headers, json_list
from service.http.examples import ANSWERS, EXAMPLES, NIM_EXAMPLES, SCORE_EXAMPLES, Example


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2), max_size=20), st.integers(1, 40))
def test_list_in_pieces_is_the_list(items: list[dict[str, Any]], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "PIECE", piece)
        pieces = list(json_list(items))
    assert orjson.loads(b"".join(pieces)) == items
    assert len(pieces) >= sum(len(orjson.dumps(item)) > piece for item in items)


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


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_a_case_of_its_model_and_is_served_everywhere(client: TestClient, example: Example) -> None:
    example.model.model_validate(example.request)
    for path in RERANK_PATHS:
        response = client.post(path, json=example.request)
        assert response.status_code == 200, response.text
        answer = response.json()
        if (queries := example.request.get("queries")) is not None:
            assert [len(one["results"]) for one in answer["answers"]] == [len(one.get("candidates", (0, 1))) for one in queries]
            continue
        results = answer if "texts" in example.request else answer["data" if "top_k" in example.request else "results"]
        assert len(results) == (example.request.get("top_n") or example.request.get("top_k") or len(results))


@pytest.mark.parametrize(("path", "examples"), [*((path, SCORE_EXAMPLES) for path in SCORE_PATHS), (NIM_PATH, NIM_EXAMPLES)])
def test_an_example_of_another_path(client: TestClient, path: str, examples: dict[str, Example]) -> None:
    for example in examples.values():
        example.model.model_validate(example.request)
        assert client.post(path, json=example.request).status_code == 200


@pytest.mark.parametrize(("name", "shape"), [("native", RerankAnswer), ("tei", list[TeiResult])])
def test_an_answer_is_what_its_request_would_get(client: TestClient, name: str, shape: Any) -> None:
    TypeAdapter(shape).validate_python(ANSWERS[name])
    answer = client.post("/rerank", json=EXAMPLES[name].request).json()
    assert _keys(answer) == _keys(ANSWERS[name])
    shown = client.get("/openapi.json").json()["paths"]["/rerank"]["post"]["responses"]["200"]["content"]["application/json"]
    assert shown["examples"][name]["value"] == ANSWERS[name]


def _keys(value: Any) -> Any:
    """The names all the way down; of a list those of its elements, in whatever order."""
    if isinstance(value, dict):
        return {name: _keys(inner) for name, inner in value.items()}
    return sorted(map(repr, map(_keys, value))) if isinstance(value, list) else None
