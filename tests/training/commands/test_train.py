"""keyblock-train: what it says of bad input, in one line with exit code 2."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.commands.conftest import Printed, strings
from training.commands.candidates import main as candidates_main
from training.commands.evaluate import main as evaluate_main
from training.commands.train import main as train_main
from training.data.files import read_run
from training.learn import train as training_run

Command = tuple[Any, ...]


@pytest.fixture
def train(recipe_file: Path, toy_path: Path) -> Command:
    """Trains on the toy."""
    return train_main, recipe_file, "--collection", toy_path


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("split=nowhere", "has no splits/nowhere.txt"),
        ("backbone=nowhere/at/all", "nowhere/at/all: cannot be read as an encoder"),
    ],
)
def test_recipes_that_cannot_be_trained(refused: Printed, train: Command, tmp_path: Path, override: str, said: str) -> None:
    assert said in refused(*train, "--set", override, "--out", tmp_path / "run")


def test_a_run_directory_that_cannot_be_used(refused: Printed, train: Command, run_copy: Path) -> None:
    assert "File exists" in refused(*train, "--out", run_copy / "log.jsonl")
    assert "holds a run of another recipe" in refused(*train, "--set", "seed=5", "--out", run_copy)
    state = run_copy / "checkpoint" / "state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    assert "checkpoint: cannot be continued, remove it to start again" in refused(*train, "--out", run_copy)


@pytest.mark.parametrize("part", ["corpus.jsonl.gz", "splits/train.txt", "run.train.bm25.trec.gz"])
def test_collections_that_cannot_be_trained_on(
    refused: Printed, recipe_file: Path, toy_copy: Path, tmp_path: Path, part: str
) -> None:
    path = toy_copy / part
    path.write_bytes(path.read_bytes()[:-20] + b"\xff")
    said = refused(train_main, recipe_file, "--collection", toy_copy, "--out", tmp_path / "run")
    assert part.removesuffix(".gz") in said
    assert not (tmp_path / "run" / "checkpoint").exists()


BEST = ("best.iterations=1", "training={selector: {name: learned}, aggregator: {name: max, passages: 1}}")


@pytest.mark.parametrize(("lacking", "refuses", "procedure"), [(2, False, ()), (13, True, ()), (2, False, BEST), (13, True, BEST)])
def test_judgements_of_unknown_documents(
    recipe_file: Path,
    toy_copy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lacking: int,
    refuses: bool,
    procedure: tuple[str, ...],
) -> None:
    """The toy has 48 judgements: 2 of 50 are left out, 13 of 61 are more than a fifth."""
    path = toy_copy / "qrels.tsv.gz"
    lines = gzip.decompress(path.read_bytes()).decode() + "".join(f"river? 0 sea-{number} 1\n" for number in range(lacking))
    path.write_bytes(gzip.compress(lines.encode()))
    sets = (part for key in ("steps=1", *procedure) for part in ("--set", key))
    arguments = strings(recipe_file, "--collection", toy_copy, *sets, "--out", tmp_path / "run")
    assert train_main(arguments) == (2 if refuses else 0)
    said = capsys.readouterr().err
    if refuses:
        line = f"{toy_copy}: of its judgements 13 of 61 name a document that corpus.jsonl lacks, the first is 'sea-0': 20% may\n"
        assert said == f"keyblock-train: {line}"
    else:
        assert "toy: toy, judgements: 2 of 50 name a document that corpus.jsonl lacks; they are left out\n" in said


def test_training_and_measuring_need_no_first_stage_run(
    printed: Printed, recipe_file: Path, toy_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From corpus, queries, qrels and splits alone; what is ranked is what keyblock-candidates retrieves."""
    for path in toy_copy.glob("run.*"):
        path.unlink()
    run, on_toy = tmp_path / "run", ("--collection", toy_copy)
    printed(train_main, recipe_file, *on_toy, "--set", "steps=2", "--set", "dev_depth=8", "--out", run)
    printed(candidates_main, *on_toy, "--split", "dev", "--depth", 8, "--out", tmp_path / "dev.trec")
    retrieved = read_run(tmp_path / "dev.trec")
    assert evaluate_main(strings("--run", run, *on_toy, "--depth", 8, "--out", tmp_path / "out")) == 0
    assert {q: set(d) for q, d in read_run(tmp_path / "out" / "run.trec.gz").items()} == {q: set(d) for q, d in retrieved.items()}
    assert "has no first-stage run of split dev" in capsys.readouterr().err


def test_an_interrupted_command(
    monkeypatch: pytest.MonkeyPatch, recipe_file: Path, toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training_run, "train", interrupt)
    assert train_main(strings(recipe_file, "--collection", toy_path, "--out", tmp_path)) == 130
    assert capsys.readouterr().err == "keyblock-train: stopped; the same command goes on from the last checkpoint\n"


FAULTS = """
import resource, numpy
from training.commands.train import keep_memory

{first}
states = numpy.ones((6144, 1536), numpy.float32)  # 38 MB
for again in range(3):
    states + 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for again in range(10):
    states + 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
def test_memory_that_is_kept_is_not_faulted_in_again() -> None:
    """Ten tensors of 38 MB are 92,160 pages; with the setting most of them are there already."""
    faults = {
        first: int(subprocess.run([sys.executable, "-c", FAULTS.format(first=first)], capture_output=True, check=True).stdout)
        for first in ("", "keep_memory()")
    }
    assert faults["keep_memory()"] < 0.3 * faults[""]
