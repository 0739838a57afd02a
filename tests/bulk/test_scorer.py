"""Record batches in, rankings out; beside `keyblock.Ranker`, which ranks list by list."""

from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bulk import scorer
from bulk.options import Asking
from bulk.scorer import BundleScorer, StoredDocuments
from bulk.tables import DOCUMENTS, LISTS, PREPARED, PreparedTable, columns_of, map_table, write_table
from bulk.work import Layout
from keyblock import Ranker
from keyblock.bundle import Bundle, load_bundle
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import open_model
from keyblock.scoring import Model
from tests.bulk.jobs import FILLER, layout, river_lists, sentence
from tests.conftest import ROOT
from tests.support.prepared import assert_equal


@cache
def default() -> tuple[Bundle, Model]:
    bundle = load_bundle(ROOT / "models" / "default")
    return bundle, open_model(bundle, "cpu", 1, "fp32")


Scored = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def scored(tmp_path: Path) -> Scored:
    """Ranks lists with texts, as a job does: its documents are written, and read again."""

    def score(rows: list[dict[str, Any]], **asking: Any) -> list[dict[str, Any]]:
        numbers = count()

        def numbered(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{"docid": one["docid"], "number": next(numbers), "score": one.get("score")} for one in documents]

        lists = [row | {"documents": numbered(row["documents"])} for row in rows]
        texts, titles = ([one.get(name, "") for row in rows for one in row["documents"]] for name in ("text", "title"))
        bundle, model = default()
        stored = written(layout(Path(mkdtemp(dir=tmp_path))), 0, bundle.pipeline, texts, titles)
        rank = BundleScorer(bundle, model, Asking(**asking), StoredDocuments(stored, [len(texts)]))
        found: list[dict[str, Any]] = rank(pa.RecordBatch.from_pylist(lists, schema=LISTS)).to_pylist()
        return found

    return score


def written(where: Layout, shard: int, pipeline: Pipeline, texts: list[str], titles: list[str]) -> Layout:
    """The layout, with a shard of documents."""
    write_table(where.documents(shard), {"title": titles, "text": texts}, DOCUMENTS)
    write_table(where.prepared(shard), columns_of(pipeline.prepare_documents(texts, titles)), PREPARED)
    return where


def test_each_query_finds_the_document_that_answers_and_where(scored: Scored) -> None:
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
def test_many_lists_at_once_are_ranked_as_each_list_alone(scored: Scored, fusion: str | None) -> None:
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
    with Ranker(*default()) as ranker:
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


def test_top_n_cuts_each_list_and_the_columns_are_those_requested(scored: Scored) -> None:
    found = scored(river_lists(2), top_n=1)
    assert [(row["qid"], row["docid"], row["rank"]) for row in found] == [("q0", "vienna", 1), ("q1", "london", 1)]
    assert list(found[0]) == ["qid", "docid", "rank", "score", "scored_by", "fused_score"]


def test_lists_without_documents_give_no_rows(scored: Scored) -> None:
    assert scored([{"qid": "q", "query": "tea", "documents": []}]) == []
    assert scored([]) == []


SHARDS = [["Tea is hot.", "Ice is cold."], ["The river flows."], ["A", "B"]]


def test_stored_documents_are_found_in_whatever_shard_they_are(tmp_path: Path, pipeline: Pipeline) -> None:
    where = layout(tmp_path)
    for number, texts in enumerate(SHARDS):
        written(where, number, pipeline, texts, [""] * len(texts))
    with patch.object(scorer, "OPEN_SHARDS", 1):
        stored = StoredDocuments(where, [2, 1, 2])
        texts = [stored.text(number) for number in (4, 0, 2, 1, 4)]
    assert texts == ["B", "Tea is hot.", "The river flows.", "Ice is cold.", "B"]
    found = [stored.prepared(number) for number in (4, 0, 2, 1, 4)]
    assert [one.token_ids.tolist() for one in found] == [one.token_ids.tolist() for one in pipeline.prepare_documents(texts)]
    assert found[0].vectors is None, "as the pipeline has no encoder"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.sampled_from(["", "Tea is hot. ", "Ice is cold, and the river flows. " * 30, "多瑙河。", "\U0001f600"]), max_size=5
    )
)
def test_what_is_written_is_read(tmp_path: Path, texts: list[str]) -> None:
    documents = default()[0].pipeline.prepare_documents(texts, [text[:8] for text in texts])
    write_table(tmp_path / "prepared.arrow", columns_of(documents), PREPARED)
    table = PreparedTable(map_table(tmp_path / "prepared.arrow"))
    assert len(table) == len(texts)
    for number, one in enumerate(documents):
        assert_equal(table[number], one)
