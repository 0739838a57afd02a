"""keyblock-positions, on four documents whose gold passages stand where a reader can count."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.commands.positions import main as positions_main
from lab.records import record_evaluation, write_record
from tests.training.collections.passages import write_collection
from tests.training.commands.running import cells, strings
from training.data.collection import Collection
from training.data.files import write_run
from training.evaluate.evaluate import evaluate_run

STARTS = {"a": 0, "b": 9, "c": 15, "d": 35}  # words in front of the gold passage, which has three
CHUNKS = ("--chunk", 10, "--chunks", 2)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = {name: "the " * front + "gold gold gold" + " the" * 9 for name, front in STARTS.items()}
    spans = [(f"q{name}", name, 4 * front, 4 * front + 14) for name, front in STARTS.items()]
    names = [f"q{name}" for name in STARTS]
    return write_collection(tmp_path_factory.mktemp("positions") / "four", texts, {q: [q[1]] for q in names}, {"dev": names}, spans)


@pytest.fixture
def ranked(collection: Path, tmp_path: Path) -> Path:
    """Qa and qb rank their document first, qc second; qd is left out."""
    run = {"qa": {"a": 2.0, "b": 1.0}, "qb": {"b": 1.0}, "qc": {"a": 2.0, "c": 1.0}}
    write_run(run, tmp_path / "mine.trec", "mine")
    return tmp_path / "mine.trec"


def test_the_tables_by_hand(collection: Path, ranked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B starts in the first chunk and ends in the second: tokens 9 to 11. The run lacks qd: zero."""
    assert positions_main(strings("--collection", collection, *CHUNKS, "--run", ranked, "--out", tmp_path / "p.png")) == 0
    printed = capsys.readouterr().out
    shares, _, quality = printed.partition("gold passages: 4 of four")
    assert cells(shares) == {
        "chunk": ["four: start", "four: end"],
        "---": ["---", "---"],
        "1": ["50.0%", "25.0%"],
        "2": ["25.0%", "50.0%"],
        "2+": ["25.0%", "25.0%"],
    }
    assert cells(quality) == {
        "gold starts in chunk": ["queries", "mine, RR@10"],
        "---": ["---", "---"],
        "1": ["2", "1.0000"],
        "2": ["1", "0.5000"],
        "2+": ["1", "0.0000"],
    }
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_record_and_a_run_are_compared_on_the_record_s_queries(
    collection: Path, ranked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = evaluate_run("the record", {"qc": {"c": 1.0}}, Collection(collection), ["qa", "qc"])
    record = write_record(record_evaluation(evaluation, "four", "dev"), tmp_path / "records")
    arguments = strings("--collection", collection, "--split", "dev", *CHUNKS, "--run", ranked, "--run", record, "--json")
    assert positions_main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["positions"] == {
        "four": {"passages": 4, "median start": 0.492, "start": [0.5, 0.25, 0.25], "end": [0.25, 0.5, 0.25]}
    }
    assert figures["quality"] == {
        "mine": {"queries": [1, 1, 0], "mean": [1.0, 0.5, None]},
        "the record": {"queries": [1, 1, 0], "mean": [0.0, 1.0, None]},
    }


def test_several_collections_stand_side_by_side(collection: Path, toy_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert positions_main(strings("--collection", collection, "--collection", toy_path, "--split", "dev", *CHUNKS)) == 0
    printed = capsys.readouterr().out
    assert cells(printed)["chunk"] == ["four: start", "four: end", "toy: start", "toy: end"]
    assert "gold passages: 4 of four (median start at 49% of the document), 4 of toy (median" in printed


def test_what_cannot_be_counted_is_one_line(
    collection: Path, ranked: Path, toy_path: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    given = ("--collection", collection)
    assert "name that one alone" in refused(positions_main, *given, "--collection", toy_path, "--run", ranked)
    assert "--measure reported is a set of measures" in refused(positions_main, *given, "--run", ranked, "--measure", "reported")
    assert "no such collection directory" in refused(positions_main, "--collection", tmp_path / "nowhere")
    assert "has no splits/test.txt" in refused(positions_main, *given, "--split", "test")
    evaluation = evaluate_run("other", {}, Collection(collection), ["elsewhere"])
    record = write_record(record_evaluation(evaluation, "four", "dev"), tmp_path)
    assert "no query of four has a RR@10 of every --run" in refused(positions_main, *given, "--run", record)
    spanless = write_collection(tmp_path / "spanless", {"a": "one"}, {"q": ["a"]}, {"dev": ["q"]})
    assert "spanless: no query has a gold passage" in refused(positions_main, "--collection", spanless)
