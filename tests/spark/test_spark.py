"""The scorer in a real Spark on this machine: a frame of pairs in, a frame of rankings out."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from bulk.options import Asking
from bulk.scorer import BundleScorer
from bulk.spark import lists_of, rank
from bulk.tables import LISTS
from keyblock.bundle import load_bundle
from keyblock.runtime.model import open_model
from tests.bulk.jobs import river_lists

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "models" / "default"
PAIR = "qid string, query string, docid string, title string, text string, score double"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    built = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    session = built.config("spark.sql.execution.arrow.maxRecordsPerBatch", "2").getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def pairs(spark: SparkSession) -> DataFrame:
    rows = [
        (one["qid"], one["query"], document["docid"], None, document["text"], 1.0 * place)
        for one in river_lists()
        for place, document in enumerate(one["documents"])
    ]
    return spark.createDataFrame(rows, PAIR)


def test_a_frame_of_pairs_is_a_frame_of_lists_best_score_first(pairs: DataFrame) -> None:
    found = {row["qid"]: [document["docid"] for document in row["documents"]] for row in lists_of(pairs).collect()}
    assert found == {f"q{number}": ["rome", "paris", "london", "vienna"] for number in range(4)}


def test_rankings_are_those_of_the_scorer_in_this_process(pairs: DataFrame) -> None:
    lists = lists_of(pairs).cache()
    ranked = rank(lists, str(BUNDLE), provider="cpu", precision="fp32", blocks=True, spans=True)
    found = {(row["qid"], row["rank"]): row.asDict(recursive=True) for row in ranked.collect()}
    assert [found[f"q{number}", 1]["docid"] for number in range(4)] == ["vienna", "london", "paris", "rome"]
    bundle, asking = load_bundle(BUNDLE), Asking(blocks=True, spans=True)
    scorer = BundleScorer(bundle, open_model(bundle, "cpu", 1, "fp32"), asking)
    rows = [row.asDict(recursive=True) for row in lists.collect()]
    expected = scorer(pa.RecordBatch.from_pylist(rows, schema=LISTS)).to_pylist()
    assert len(found) == len(expected) == 16
    for row in expected:
        got = found[row["qid"], row["rank"]]
        assert got.pop("score") == pytest.approx(row.pop("score"), abs=1e-6)
        assert [[place["start"], place["end"]] for place in got.pop("blocks")] == [
            [place["start"], place["end"]] for place in row.pop("blocks")
        ]
        assert len(got.pop("spans")) == len(row.pop("spans"))
        assert got == row
