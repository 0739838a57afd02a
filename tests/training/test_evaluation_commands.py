"""Cross-validation, seeds and pictures through the commands, on the toy."""

import json
import shutil
from pathlib import Path

import pytest

from training.collections.collection import Collection
from training.collections.runs import read_run, write_run
from training.collections.types import Run
from training.commands.cli import draw_main, evaluate_main, folds_main
from training.evaluation.evaluate import read_values


def strings(*arguments: object) -> list[str]:
    return [str(argument) for argument in arguments]


def cells(printed: str) -> dict[str, list[str]]:
    """The printed table: cells by the system's name."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def reversed_run(run: Run) -> Run:
    """On the toy that puts the answer, which BM25 ranks last, first."""
    return {query: {d: float(-rank) for rank, d in enumerate(reversed(scores))} for query, scores in run.items()}


def test_cross_validation_measures_every_query_once(toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 24 queries the first stage leaves out the 8 with '!' in train: they count as zero, the others as 1 when turned round."""
    assert folds_main(strings("--collection", toy.path, "--folds", 4, "--out", tmp_path / "folds")) == 0
    *folds, joined = map(Path, capsys.readouterr().out.splitlines())
    runs = []
    for fold in folds:
        runs.append(tmp_path / "system" / fold.name / "run.trec.gz")
        runs[-1].parent.mkdir(parents=True)
        write_run(reversed_run(Collection(fold).run("test")), runs[-1], "reversed")
    ranked = [argument for run in runs for argument in strings("--ranked", run)]
    out = tmp_path / "out"
    joined_test = strings("--collection", joined, "--split", "test", "--name", "cross-validated", "--out", out)
    assert evaluate_main([*ranked, *joined_test, "--measures", "reported"]) == 0
    printed = cells(capsys.readouterr().out)
    assert printed["system"][:4] == ["RR@10", "p", "nDCG@1", "p"]
    assert printed["cross-validated"][0] == f"{16 / 24:.4f}"
    assert printed["first stage"][0] == f"{16 / 24 / 4:.4f}"
    assert len(read_values(out / "per_query.tsv")["AP"]) == 24
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["system"], summary["queries"], summary["ms_per_document"]) == ("cross-validated", 24, None)
    assert not (out / "blocks.png").exists()


def test_folds_of_listed_queries_and_of_others(toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queries.txt").write_text("teacher?\nletter?\nforest?\n", encoding="utf-8")
    listed = strings("--collection", toy.path, "--folds", 3, "--queries", tmp_path / "queries.txt", "--out", tmp_path / "listed")
    assert folds_main(listed) == 0
    tested = [Collection(tmp_path / "listed" / f"toy-fold-{n}").split("test") for n in (1, 2, 3)]
    assert sorted(query for split in tested for query in split) == ["forest?", "letter?", "teacher?"]
    given = [["teacher?", "letter?"], ["forest?"], ["river?"]]
    (tmp_path / "given.json").write_text(json.dumps(given), encoding="utf-8")
    of_others = strings("--collection", toy.path, "--given", tmp_path / "given.json", "--out", tmp_path / "given")
    assert folds_main(of_others) == 0
    assert [Collection(tmp_path / "given" / f"toy-fold-{n}").split("test") for n in (1, 2, 3)] == given
    capsys.readouterr()
    assert folds_main(of_others) == 2
    said = capsys.readouterr().err
    assert said.startswith("keyblock-folds: ")
    assert "File exists" in said
    assert said.count("\n") == 1


def test_folds_of_a_described_collection_are_its_description_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "robust.yaml"
    path.write_text("name: robust\ndocuments: disks45/nocr\nsplits: {all: disks45/nocr/trec-robust-2004}\n", encoding="utf-8")
    given = tmp_path / "given.json"
    given.write_text("[[301], [302], [303]]", encoding="utf-8")
    assert folds_main(strings("--collection", path, "--given", given, "--out", tmp_path / "folds")) == 2
    assert "robust.yaml: is no collection directory; give its description the key 'folds' instead" in capsys.readouterr().err


def test_test_folds_that_share_a_query(toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(toy.run("dev"), tmp_path / "one.trec", "x")
    twice = strings("--ranked", tmp_path / "one.trec", "--ranked", tmp_path / "one.trec", "--collection", toy.path)
    assert evaluate_main(twice) == 2
    assert "was ranked by a run before it" in capsys.readouterr().err


def test_the_correction_is_chosen(toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First stage and shuffled: a family of two."""
    write_run(reversed_run(toy.run("dev")), tmp_path / "turned.trec", "x")
    p_values = {}
    for correction in ("none", "holm", "bonferroni"):
        arguments = strings("--ranked", tmp_path / "turned.trec", "--collection", toy.path, "--correction", correction)
        assert evaluate_main(arguments) == 0
        p_values[correction] = float(cells(capsys.readouterr().out)["shuffled"][1])
    assert p_values["none"] > 0
    assert p_values["holm"] == pytest.approx(p_values["none"], rel=0.1)  # the larger of the two
    assert p_values["bonferroni"] == pytest.approx(2 * p_values["none"], rel=0.1)


@pytest.fixture
def two_seeds(toy_run: Path, tmp_path: Path) -> Path:
    """A directory of two runs, here of one and the same seed."""
    for seed in (1, 2):
        shutil.copytree(toy_run, tmp_path / "keyb" / f"seed-{seed}")
    return tmp_path / "keyb"


def test_seeds_are_measured_together(two_seeds: Path, toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert evaluate_main(strings("--run", two_seeds, "--collection", toy_path, "--queries", 3, "--out", out)) == 0
    printed = cells(capsys.readouterr().out)
    assert printed["keyb, 2 seeds"][0] == "1.0000"
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["seeds"], summary["queries"]) == (2, 3)
    assert summary["ms_per_document"] > 0
    for seed in ("seed-1", "seed-2"):
        assert len(read_run(out / seed / "run.trec.gz")) == 3
        assert (out / seed / "blocks.png").read_bytes().startswith(b"\x89PNG")
    assert read_values(out / "per_query.tsv") == read_values(out / "seed-1" / "per_query.tsv")
    one = strings("--run", two_seeds / "seed-1", "--collection", toy_path, "--queries", 3, "--against", out)
    assert evaluate_main(one) == 0
    assert cells(capsys.readouterr().out)["out"] == ["1.0000", "1", "1.0000", "1"]


def write_summary(directory: Path, milliseconds: float | None, quality: float) -> Path:
    directory.mkdir()
    figures = {"system": directory.name, "ms_per_document": milliseconds, "measures": {"RR@10": quality}}
    (directory / "summary.json").write_text(json.dumps(figures), encoding="utf-8")
    return directory


def test_quality_against_latency_of_what_was_measured(tmp_path: Path) -> None:
    measured = [write_summary(tmp_path / name, ms, quality) for name, ms, quality in (("one", 1.0, 0.5), ("two", 2.0, 0.6))]
    out = tmp_path / "deep" / "picture.svg"
    assert draw_main(strings("latency", *measured, "--out", out)) == 0
    drawn = out.read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")
    assert "<!-- one -->" in drawn
    assert "<!-- two -->" in drawn


@pytest.mark.parametrize(("milliseconds", "measure"), [(None, "RR@10"), (1.0, "AP")])
def test_what_was_not_measured_is_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], milliseconds: float | None, measure: str
) -> None:
    directory = write_summary(tmp_path / "one", milliseconds, 0.5)
    assert draw_main(strings("latency", directory, "--measure", measure, "--out", tmp_path / "x.png")) == 2
    said = capsys.readouterr().err
    assert f"summary.json: has no {measure} or no latency" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize("names", [("one", "two"), ("a/run", "b/run")])
def test_learning_curves_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]) -> None:
    """Runs are called by their directories, by the whole path where these have one name."""
    monkeypatch.chdir(tmp_path)
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        records = [{"step": 1, "loss": 0.5}, {"step": 1, "dev": {"toy": {"RR@10": 0.5}}}]
        (tmp_path / name / "log.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert draw_main(strings("curves", *names, "--out", "curves.svg")) == 0
    drawn = Path("curves.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in drawn for text in (*names, "toy"))


def test_runs_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert draw_main(strings("curves", tmp_path, "--out", tmp_path / "curves.png")) == 2
    assert "log.jsonl" in capsys.readouterr().err
