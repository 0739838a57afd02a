"""The command and its options."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from bulk import cli
from bulk.errors import BulkError
from bulk.options import Asking, parse
from tests.bulk.jobs import rankings, river_lists, write_lines
from tests.conftest import ROOT
from tests.support.serving import Service


def test_two_workers_score_as_the_service_answers(tmp_path: Path, running: Service) -> None:
    lists, out = river_lists(4), tmp_path / "out"
    write_lines(tmp_path / "lists.jsonl", lists)
    options = ["--lists", "lists.jsonl", "--bundle", ROOT / "models" / "default", "--out", "out", "--provider", "cpu"]
    more = ["--workers", "2", "--shard-pairs", "8", "--blocks", "--spans", "--span-threshold", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "bulk.cli", *options, *more],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "16 pairs of 4 queries and 4 documents in 2 shards, 2 of them new" in done.stderr
    found = rankings(out)
    for one in lists:
        documents = [{"id": document["docid"], "text": document["text"]} for document in one["documents"]]
        asked = {
            "query": one["query"],
            "documents": documents,
            "return_blocks": True,
            "relevant_spans": {"mode": "enabled", "threshold": 0.0},
        }
        results = httpx.post(f"{running.url}/rerank", json=asked, timeout=60).raise_for_status().json()["results"]
        rows = [row for row in found if row["qid"] == one["qid"]]
        assert [row["docid"] for row in rows] == [result["id"] for result in results]
        for row, result in zip(rows, results, strict=True):
            assert row["score"] == pytest.approx(result["relevance_score"], abs=1e-4)
            assert [(b["start"], b["end"]) for b in row["blocks"]] == [(b["start"], b["end"]) for b in result["blocks"]]
            assert len(row["spans"]) == len(result.get("relevant_spans", []))


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["--lists", "a.jsonl", "--bundle", "B", "--out", "O", "--workers", "none"]) == 2
    assert cli.main(["--lists", "a.jsonl", "--bundle", str(tmp_path / "B"), "--out", str(tmp_path / "O")]) == 1
    write_lines(tmp_path / "a.jsonl", [{"query": 3}])
    bundle = str(ROOT / "models" / "default")
    assert cli.main(["--lists", str(tmp_path / "a.jsonl"), "--bundle", bundle, "--out", str(tmp_path / "O")]) == 1
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("keyblock-bulk: --workers: Input should be a valid integer")
    assert second.endswith("B: does not exist; give the path of a bundle, as keyblock-export writes it")
    assert third == f"keyblock-bulk: {tmp_path}/a.jsonl, line 1: 'query' must be a text, not 3"


LEAST = ["--lists", "a.jsonl", "--bundle", "B", "--out", "O"]


def test_flags_become_options() -> None:
    found = parse([*LEAST, "--lists", "b.parquet", "--workers", "3", "--spans", "--precision", "fp32"])
    assert found.lists == (Path("a.jsonl"), Path("b.parquet"))
    assert (found.workers, found.spans, found.asking) == (3, True, Asking(spans=True, precision="fp32"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--workers", "0"], "--workers: Input should be greater than or equal to 1, and it is '0'"),
        (["--engine", "spark"], "--engine: Input should be 'local' or 'ray', and it is 'spark'"),
        (["--address", "auto"], "--address is of a Ray cluster: add --engine ray"),
        (["--run", "r.trec"], "name the candidate lists: --lists FILE, or --run FILE with --collection DIR; one of both"),
    ],
)
def test_invalid_options_are_one_line(more: list[str], said: str) -> None:
    with pytest.raises(BulkError, match=said):
        parse([*LEAST, *more])
    with pytest.raises(BulkError, match="a TREC run has no texts"):
        parse(["--run", "r.trec", *LEAST[2:]])
