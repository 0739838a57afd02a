"""The command and its options; kill -9 of it in the middle of a job: nothing that was finished is lost or done again."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from bulk import cli, job
from bulk.errors import BulkError
from bulk.options import Asking, Options, parse
from service.settings import Settings
from tests.bulk.jobs import InThisProcess, command, contents, made, rankings, river_lists, shards, stopped, stopping, write_lines
from tests.conftest import ROOT
from tests.service.conftest import warm
from tests.support.processes import children_of, command_of

N_LISTS = 12  # a shard each


@contextmanager
def started(options: Options, program: Sequence[str] = ("-m", "bulk.cli")) -> Iterator["subprocess.Popen[str]"]:
    """The command over the same options."""
    with subprocess.Popen(command(options, *program), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # a stopped one would not end


def test_all_is_scored_as_the_service_answers(
    tmp_path: Path, bundle_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))
    lists, out = river_lists(4), tmp_path / "out"
    lists[3] |= {"documents": [{**one, "title": f"About {one['docid']} and its rivers"} for one in lists[3]["documents"]]}
    given = ["--lists", str(write_lines(tmp_path / "lists.jsonl", lists)), "--bundle", str(bundle_path), "--out", str(out)]
    more = ["--provider", "cpu", "--precision", "fp32", "--shard-pairs", "8", "--blocks", "--spans", "--span-threshold", "0"]
    assert cli.main([*given, *more]) == 0
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"keyblock-bulk: {out}: 16 pairs of 4 queries and 8 documents in 2 shards, 2 of them new"
    found = rankings(out)
    with warm(Settings(bundle=(bundle_path,), provider="cpu", precision="fp32")) as client:
        for one in lists:
            documents = [{**document, "id": document["docid"]} for document in one["documents"]]
            asked = {
                "query": one["query"],
                "documents": documents,
                "return_blocks": True,
                "relevant_spans": {"mode": "enabled", "threshold": 0.0},
            }
            results = client.post("/rerank", json=asked).raise_for_status().json()["results"]
            rows = [row for row in found if row["qid"] == one["qid"]]
            assert [row["docid"] for row in rows] == [result["id"] for result in results]
            for row, result in zip(rows, results, strict=True):
                assert row["score"] == pytest.approx(result["relevance_score"], abs=1e-4)
                assert [(b["start"], b["end"]) for b in row["blocks"]] == [(b["start"], b["end"]) for b in result["blocks"]]
                assert len(row["spans"]) == len(result.get("relevant_spans", []))


def stamps(out: Path) -> dict[str, tuple[int, int]]:
    """Of each shard that is there the inode and the time of writing."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in shards(out)}


def test_a_killed_driver_takes_its_workers_along_and_the_same_command_goes_on(
    tmp_path: Path, bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = made(tmp_path, bundle_path, river_lists(N_LISTS), shard_pairs=4, workers=2, top_n=1)
    with started(options, stopping("local")) as process:
        stopped(process)
        workers = [child for child in children_of(process.pid) if "spawn_main" in command_of(child)]
        assert workers
        process.kill()
    while any(map(command_of, workers)):
        time.sleep(0.001)
    before = stamps(options.out)
    assert 3 <= len(before) < N_LISTS
    with started(options.model_copy(update={"workers": 1})) as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert f"{N_LISTS - len(before)} of them new" in said
    assert before.items() <= stamps(options.out).items()
    monkeypatch.setattr(job, "_engine", lambda _: nullcontext(InThisProcess()))
    job.rank_all(options.model_copy(update={"out": tmp_path / "uninterrupted"}))
    assert contents(options.out) == contents(tmp_path / "uninterrupted")


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
