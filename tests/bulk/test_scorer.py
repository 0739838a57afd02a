"""Record batches in, rankings out; beside `keyblock.Ranker`, which ranks list by list."""

from typing import Any

import pyarrow as pa
import pytest

from bulk.options import Asking
from bulk.scorer import BundleScorer
from bulk.tables import LISTS
from keyblock import Ranker
from keyblock.bundle import load_bundle
from keyblock.runtime.model import open_model
from tests.bulk.jobs import FILLER, river_lists, sentence
from tests.conftest import ROOT

BUNDLE = load_bundle(ROOT / "models" / "default")
MODEL = open_model(BUNDLE, "cpu", 1, "fp32")


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=LISTS)


def scored(rows: list[dict[str, Any]], **asking: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = BundleScorer(BUNDLE, MODEL, Asking(**asking))(batch(rows)).to_pylist()
    return found


def test_each_query_finds_the_document_that_answers_and_where() -> None:
    lists = river_lists()
    found = scored(lists, blocks=True, spans=True, span_threshold=0)
    texts = {one["docid"]: one["text"] for one in lists[0]["documents"]}
    best = [row for row in found if row["rank"] == 1]
    assert [(row["qid"], row["docid"], row["scored_by"]) for row in best] == [
        ("q0", "vienna", "model"),
        ("q1", "london", "model"),
        ("q2", "paris", "model"),
        ("q3", "rome", "model"),
    ]
    for row in best:
        text, answer = texts[row["docid"]], sentence(row["docid"].capitalize())
        assert answer in text[row["blocks"][0]["start"] : row["blocks"][0]["end"]]
        assert any(answer in text[span["start"] : span["end"]] for span in row["spans"])
        assert all(0 <= span["score"] <= 1 for span in row["spans"])


@pytest.mark.parametrize("fusion", [None, "linear"])
def test_many_lists_at_once_are_ranked_as_each_list_alone(fusion: str | None) -> None:
    lists = river_lists()
    lists[1] = lists[1] | {
        "documents": [
            *lists[1]["documents"][:2],
            {"docid": "none", "text": ""},
            {"docid": "t", "title": "Rome", "text": FILLER * 9},
        ]
    }
    lists[2] = lists[2] | {"documents": lists[2]["documents"][:1]}
    for one in lists:
        one["documents"] = [{**document, "score": 10.0 - number} for number, document in enumerate(one["documents"])]
    expected = []
    with Ranker(BUNDLE, MODEL) as ranker:
        for one in lists:
            scores = [document["score"] for document in one["documents"]]
            ranking = ranker.rank(
                one["query"],
                [{**document, "id": document["docid"]} for document in one["documents"]],
                first_stage_scores=scores,
                fusion=fusion,
                max_tokens_per_doc=100,
            )
            expected += [(one["qid"], result.id, place, result) for place, result in enumerate(ranking, 1)]
    found = scored(lists, fusion=fusion, blocks=True, max_tokens_per_doc=100)
    assert [(row["qid"], row["docid"], row["rank"]) for row in found] == [one[:3] for one in expected]
    for row, (*_, result) in zip(found, expected, strict=True):
        assert row["score"] == pytest.approx(result.relevance_score, abs=1e-6)
        assert (row["scored_by"], row["fused_score"]) == (result.scored_by, pytest.approx(result.fused_score, abs=1e-5))
        assert [(b["start"], b["end"]) for b in row["blocks"]] == [(b.start, b.end) for b in result.blocks]


def test_top_n_cuts_each_list_and_the_columns_are_those_requested() -> None:
    found = scored(river_lists(2), top_n=1)
    assert [(row["qid"], row["docid"], row["rank"]) for row in found] == [("q0", "vienna", 1), ("q1", "london", 1)]
    assert list(found[0]) == ["qid", "docid", "rank", "score", "scored_by", "fused_score"]


def test_lists_without_documents_give_no_rows() -> None:
    assert scored([{"qid": "q", "query": "tea", "documents": []}]) == []
    assert scored([]) == []


def test_a_fusion_needs_the_scores_of_the_first_stage() -> None:
    with pytest.raises(ValueError, match="needs first_stage_scores"):
        scored(river_lists(1), fusion="linear")
