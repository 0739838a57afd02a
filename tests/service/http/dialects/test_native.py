import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import NOT_HONOURED, ErrorBody, RerankAnswer
from service.app import RERANK_PATHS
from service.errors import RequestError
from service.http.dialects import native

TEXTS = ["the river flooded the old stone bridge", "a city of a million people", "every year the same"]
ANSWER = TypeAdapter(RerankAnswer)


def ask(client: TestClient, path: str = "/rerank", **fields: object) -> RerankAnswer:
    response = client.post(path, json={"query": "river bridge", "documents": TEXTS, **fields})
    assert response.status_code == 200, response.text
    return ANSWER.validate_json(response.content)


@pytest.mark.parametrize("path", RERANK_PATHS)
def test_answer_has_the_declared_shape_on_every_path(client: TestClient, path: str) -> None:
    answer = ask(client, path)
    assert (answer["object"], answer["model"]) == ("rerank", "tiny")
    assert sorted(result["index"] for result in answer["results"]) == [0, 1, 2]
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert all(set(result) == {"index", "relevance_score"} for result in answer["results"])
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == answer["meta"]["tokens"]["input_tokens"] > 0


def test_what_cohere_clients_read(client: TestClient) -> None:
    assert ask(client, "/v1/rerank")["meta"]["api_version"] == {"version": "1"}
    assert ask(client, "/v2/rerank")["meta"]["api_version"] == {"version": "2"}
    assert ask(client)["meta"]["billed_units"] == {"search_units": 1}


def test_timings_by_stage_add_up(client: TestClient) -> None:
    timings = ask(client)["meta"]["timings_ms"]
    assert set(timings) == {"parse", "prepare", "queue", "model", "aggregate", "total"}
    assert all(milliseconds >= 0 for milliseconds in timings.values())
    assert sum(timings.values()) <= 2 * timings["total"] + 0.01  # rounded to microseconds


@pytest.mark.parametrize(("top_n", "n_results"), [(None, 3), (0, 3), (1, 1), (2, 2), (3, 3), (1000, 3)])
def test_top_n(client: TestClient, top_n: int | None, n_results: int) -> None:
    results = ask(client, top_n=top_n)["results"]
    assert len(results) == n_results
    assert results == ask(client)["results"][:n_results]


def test_documents_sent_back_are_objects(client: TestClient) -> None:
    documents = ["plain", {"text": "titled", "title": "T", "id": "d1"}, {"text": "numbered", "id": 7, "title": None}]
    by_index = {result["index"]: result for result in ask(client, documents=documents, return_documents=True)["results"]}
    assert [by_index[i]["document"] for i in range(3)] == [
        {"text": "plain"},
        {"text": "titled", "title": "T"},
        {"text": "numbered"},
    ]
    assert [by_index[i].get("id") for i in range(3)] == [None, "d1", 7]


def test_ids_come_back_as_they_were(client: TestClient) -> None:
    ids = ["", "ü", 0, -1, 2**64 - 1, -(2**63)]
    answer = ask(client, documents=[{"id": identity, "text": "a"} for identity in ids])
    assert [result.get("id") for result in sorted(answer["results"], key=lambda r: r["index"])] == ids
    response = client.post("/rerank", json={"query": "q", "documents": [{"id": 10**30, "text": "a"}]})
    assert (response.status_code, "documents[0].id" in response.text) == (422, True)


def test_one_text_is_a_list_of_one(client: TestClient) -> None:
    assert [result["index"] for result in ask(client, documents="only this")["results"]] == [0]


def test_raw_scores_are_the_logits_of_the_same_order(client: TestClient) -> None:
    plain, raw = ask(client)["results"], ask(client, raw_scores=True)["results"]
    assert [r["index"] for r in plain] == [r["index"] for r in raw]
    assert [1 / (1 + 2.718281828459045 ** -r["relevance_score"]) for r in raw] == pytest.approx(
        [r["relevance_score"] for r in plain]
    )


def test_blocks_are_named_when_requested(client: TestClient) -> None:
    text = "Nothing here. " * 40 + "The river flooded the bridge. " + "More of nothing. " * 40
    (result,) = ask(client, documents=[text], return_blocks=True)["results"]
    blocks = result["blocks"]
    assert "river flooded the bridge" in text[blocks[0]["start"] : blocks[0]["end"]]
    assert [b["score"] for b in blocks] == sorted((b["score"] for b in blocks), reverse=True)
    (result,) = ask(client, documents=[text])["results"]
    assert "blocks" not in result


def test_what_is_not_honoured_or_unknown_is_named(client: TestClient) -> None:
    names = NOT_HONOURED
    assert {"max_chunks_per_doc", "truncate"} <= set(names)
    warnings = ask(client, **dict.fromkeys(names, 5), overlap=3, model="rerank-v3.5")["meta"]["warnings"]
    assert warnings == [*(f"{name} is not honoured by this version" for name in names), "unknown fields, not used: overlap"]
    assert ask(client, **dict.fromkeys([*names, "overlap", "model", "return_documents"]))["meta"]["warnings"] == []


def test_many_unknown_fields_make_one_short_warning(client: TestClient) -> None:
    (warning,) = ask(client, **{f"field{i}" * 20: i for i in range(500)})["meta"]["warnings"]
    assert "495 more" in warning
    assert len(warning) < 400


@pytest.mark.parametrize(
    ("asked", "used", "warned"),
    [
        *((asked, int(asked or 128), False) for asked in (None, 64, 100.7, 256)),
        *((asked, 256, True) for asked in (257, 4096, 10**30, 1e300)),
        *((asked, 64, True) for asked in (63, 1, 0, -5, -1e300)),
    ],
)
def test_tokens_per_document_stay_in_the_measured_range(client: TestClient, asked: float | None, used: int, warned: bool) -> None:
    answer = ask(client, documents=["river " * 2000], max_tokens_per_doc=asked)
    assert answer["meta"]["tokens_per_document"] == used
    assert answer["usage"]["prompt_tokens"] == used
    assert any("max_tokens_per_doc" in warning for warning in answer["meta"]["warnings"]) == warned


def test_tokens_do_not_cut_the_document_before_selection(client: TestClient) -> None:
    text = "Nothing here. " * 3000 + "The river flooded the bridge."
    (result,) = ask(client, documents=[text], max_tokens_per_doc=64, return_blocks=True)["results"]
    assert result["blocks"][0]["end"] > len(text) - 40


def test_error_shape() -> None:
    body = native.error(RequestError(422, "is missing", ("documents", 3, "text")))
    assert TypeAdapter(ErrorBody).validate_python(body) == {
        "detail": [{"type": "invalid_request", "loc": ["body", "documents", 3, "text"], "msg": "is missing"}],
        "message": "documents[3].text: is missing",
        "error": {"message": "documents[3].text: is missing", "type": "invalid_request", "code": 422, "param": "documents"},
    }


def test_a_warning_that_looks_like_the_results_is_not_taken_for_them(client: TestClient) -> None:
    answer = ask(client, **{'"results":[]': 1})
    assert answer["meta"]["warnings"] == ['unknown fields, not used: "results":[]']
    assert len(answer["results"]) == 3


ANSWER_IN = "The mill ground corn. In 1850 the river flooded the stone bridge. Nobody was hurt."


def test_spans_are_sentences_of_the_document_best_first(client: TestClient) -> None:
    """The bundle marks no tokens: the sentence with the query's terms has the document's own score."""
    spans = {"mode": "enabled", "threshold": 0, "max_spans": 1}
    (result,) = ask(client, documents=[ANSWER_IN], relevant_spans=spans)["results"]
    every = ask(client, documents=[ANSWER_IN], relevant_spans={**spans, "max_spans": None})["results"][0]["relevant_spans"]
    assert every[0] == result["relevant_spans"][0]
    places = sorted((span["start"], span["end"]) for span in every)  # all sentences reach a threshold of 0
    assert " ".join(ANSWER_IN[start:end] for start, end in places) == ANSWER_IN
    assert result["relevant_spans"][0]["score"] == pytest.approx(result["relevance_score"])
    least = result["relevance_score"] * 0.99
    (result,) = ask(client, documents=[ANSWER_IN], relevant_spans={"mode": "enabled", "threshold": least})["results"]
    (span,) = result["relevant_spans"]
    assert ANSWER_IN[span["start"] : span["end"]] == "In 1850 the river flooded the stone bridge."


def test_spans_that_are_not_requested_or_score_too_low_are_left_out(client: TestClient) -> None:
    for asked in (None, {"mode": "disabled"}, {"mode": "enabled", "threshold": 1}):
        assert all("relevant_spans" not in result for result in ask(client, relevant_spans=asked)["results"])


def test_cohere_sends_null_for_what_is_left_out(client: TestClient) -> None:
    answer = ask(client, "/v2/rerank", relevant_spans={"mode": "enabled", "threshold": None, "max_spans": None, "new": 1})
    assert answer["meta"]["warnings"] == []


def test_results_below_the_score_are_left_out_and_counted(client: TestClient) -> None:
    every = ask(client)["results"]
    middle = every[1]["relevance_score"]
    answer = ask(client, min_score=middle)
    assert answer["results"] == every[:2]
    assert answer["meta"]["below_min_score"] == 1
    assert answer["meta"]["min_score"] == middle
    assert answer["meta"]["best_below_min_score"] == pytest.approx(every[2]["relevance_score"])
    assert ask(client, min_score=middle, raw_scores=True)["meta"]["below_min_score"] == 1
    assert ask(client, min_score=1)["results"] == []
    assert not {"min_score", "below_min_score", "best_below_min_score"} & set(ask(client)["meta"])
    assert "best_below_min_score" not in ask(client, min_score=0)["meta"]


def test_a_bundle_without_a_threshold_says_so(client: TestClient) -> None:
    answer = ask(client, min_score="auto")
    assert len(answer["results"]) == 3
    (warning,) = answer["meta"]["warnings"]
    assert warning.startswith("min_score: this model's bundle recommends no threshold")


def test_what_to_pass_on_stays_within_its_tokens(client: TestClient) -> None:
    spans = {"mode": "enabled", "threshold": 0}
    answer = ask(client, documents=[ANSWER_IN, TEXTS[0]], prune=True, relevant_spans=spans)
    texts = [ANSWER_IN, TEXTS[0]]
    assert {r["index"]: r["context"]["text"] for r in answer["results"]} == dict(enumerate(texts))
    whole = answer["meta"]["context"]
    assert whole["tokens"] == whole["tokens_of_documents"] == sum(r["context"]["tokens"] for r in answer["results"])
    answer = ask(client, documents=texts, prune=True, relevant_spans=spans, max_context_tokens=12)
    assert 0 < answer["meta"]["context"]["tokens"] <= 12
    assert answer["meta"]["context"]["saved"] == whole["tokens"] - answer["meta"]["context"]["tokens"]
    for result in answer["results"]:
        if "context" in result:
            text = texts[result["index"]]
            assert "".join(text[part["start"] : part["end"]] for part in result["context"]["parts"]) in text
