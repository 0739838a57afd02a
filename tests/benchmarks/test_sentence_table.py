"""The table of sentences against the ranker of a pipeline, by hand, and on a page."""

import argparse
import shutil
from pathlib import Path

import pytest
import torch

from benchmarks import sentence_table as table
from benchmarks.checkpoints import save_checkpoint
from benchmarks.performance.report import END, put
from keyblock.pipeline import Pipeline
from keyblock.scoring import score_documents
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.training.conftest import write_toy
from training.collections.collection import Collection
from training.evaluation.ranking import changed
from training.evaluation.records import read_records, write_record
from training.evaluation.scoring import TorchModel
from training.examples.preparation import Preparation
from training.models.bi_encoder import BiEncoder
from training.models.families import new_ranker


@pytest.fixture(scope="module")
def pipeline(tokenizer: Tokenizer) -> Pipeline:
    return Pipeline(table.PIPELINE, tokenizer, DocumentFrequencies(1, {}))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """The toy of the training's tests, whose dev queries are its test queries, too."""
    path = tmp_path_factory.mktemp("toy")
    write_toy(path)
    for name in ("splits/dev.txt", "run.dev.bm25.trec.gz"):
        shutil.copy(path / name, path / name.replace("dev", "test"))
    return Collection(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BiEncoder:
    folder = save_checkpoint("bert", tmp_path_factory.mktemp("bert"), vocab_size=30522)
    made = new_ranker({"name": "bi_encoder"}, str(folder)).eval()
    assert isinstance(made, BiEncoder)
    torch.manual_seed(0)
    torch.nn.init.normal_(made.encoder.embeddings.word_embeddings.weight)
    return made


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    made: argparse.Namespace = table.parser().parse_args(["--queries", "4", "--depth", "3", "--records", str(tmp_path / "records")])
    return made


def test_every_cell_is_what_a_pipeline_says(
    model: BiEncoder, pipeline: Pipeline, toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept vectors, half as precise, score as the model that is given query and sentence together; a second time from disk."""
    monkeypatch.setattr("benchmarks.sentence_table.in_bf16", lambda *_: False)
    preparation = Preparation(toy, pipeline)
    query, doc_ids = preparation.query(toy.split("dev")[0]), list(toy.documents)[:3]
    documents = [preparation.document(doc_id) for doc_id in doc_ids]
    expected = {}
    for selection, aggregation in table.CELLS:
        selector, passages = table.SELECTIONS[selection]
        parts = {"selector": selector, "aggregator": {"name": aggregation, "passages": passages or 0}}
        whole = changed(pipeline, parts, tmp_path)
        expected[selection, aggregation] = score_documents(
            whole, query, documents, TorchModel(model, pipeline.tokenizer)
        ).logits.tolist()
    for _ in range(2):
        scorer = table.ByVectors(model, tmp_path / "kept")
        found = [
            table.document_scores(scorer, query, doc_id, document) for doc_id, document in zip(doc_ids, documents, strict=True)
        ]
        for cell, logits in expected.items():
            assert [of_document[cell] * model.scale for of_document in found] == pytest.approx(logits, rel=1e-2, abs=0.05)


def test_mapfuse_by_hand() -> None:
    """MAP .6 of the first stage and .3 of the run: a = .6 + .3 / 3, b = .6 / 2 + .3, c = .6 / 3 + .3 / 2."""
    run, first = {"q": {"b": -1.0, "c": -2.0, "a": -3.0}}, {"q": {"a": 9.0, "b": 8.0, "c": 7.0}}
    found = table.fused(run, first, (0.3, 0.6))["q"]
    assert found == pytest.approx({"a": 0.7, "b": 0.6, "c": 0.35})
    assert list(found) == ["a", "b", "c"]
    equal = table.fused({"q": {"b": -1.0, "a": -2.0}}, {"q": {"a": 2.0, "b": 1.0}}, (0.5, 0.5))
    assert list(equal["q"]) == ["a", "b"]


def test_candidates_below_the_depth_stay_below(model: BiEncoder, pipeline: Pipeline, toy: Collection, tmp_path: Path) -> None:
    query, candidates = toy.split("dev")[0], list(toy.documents)[:6]
    runs = table.rerank(table.ByVectors(model, tmp_path), Preparation(toy, pipeline), {query: candidates}, depth=3)
    assert set(runs) == set(table.CELLS)
    for run in runs.values():
        assert sorted(list(run[query])[:3]) == sorted(candidates[:3])
        assert list(run[query])[3:] == candidates[3:]


def test_a_scorer_is_measured_and_published(
    model: BiEncoder, pipeline: Pipeline, toy: Collection, tmp_path: Path, options: argparse.Namespace
) -> None:
    record = table.measure(table.UNTUNED, table.ByVectors(model, tmp_path / "kept"), Preparation(toy, pipeline), options)
    assert len(record.queries) == 4
    write_record(record, options.records)
    page = tmp_path / "page.md"
    page.write_text(f"# Sentences\n\n{table.BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    put(page, table.tables(read_records(options.records)), table.BEGIN)
    text = page.read_text(encoding="utf-8")
    assert "the first 3 candidates of 4 test queries" in text
    rows = [line for line in text.splitlines() if line.startswith("| bi-encoder |")]
    assert [tuple(row.split(" | ")[1:3]) for row in rows] == table.CELLS
    first = record.means[f"{table.FIRST_STAGE}: RR@10"]
    assert f"{first:.3f}" in next(line for line in text.splitlines() if line.startswith("| BM25"))
    assert text.endswith("after\n")
    assert "old" not in text


def test_the_best_of_a_column_is_bold() -> None:
    rows = [["BM25", "", "", "0.500", ""], ["x", "s", "max", "0.700", "0.100"], ["x", "s", "sum", "0.600", "0.300"]]
    assert [row[3:] for row in table.with_best_bold(rows)] == [["0.500", ""], ["**0.700**", "0.100"], ["0.600", "**0.300**"]]
