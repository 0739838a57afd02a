"""The commands end to end on the toy, and what they say of bad input: one line, exit code 2, never a traceback."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from keyblock.bundle import Bundle
from keyblock.pipeline import PipelineConfig
from training.collections.collection import Collection
from training.collections.runs import read_run
from training.commands import cli
from training.commands.cli import calibrate_main, candidates_main, evaluate_main, train_main
from training.evaluation.calibration import read_scores
from training.evaluation.evaluate import read_values

Main = Callable[[Sequence[str] | None], int]
BUDGETS = ["--budgets", "80", "96", "--default", "96"]


def strings(*arguments: object) -> list[str]:
    return [str(argument) for argument in arguments]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail in one line; gives the line."""

    def run(main: Main, *arguments: object) -> str:
        capsys.readouterr()
        assert main(strings(*arguments)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert said.err.startswith("keyblock-")
        return said.err

    return run


def calibrate_again(run: Path, toy_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Without the model: its scores were kept."""
    with monkeypatch.context() as patch:
        patch.delattr(cli, "score_dev")
        assert calibrate_main(strings("--run", run, "--collection", toy_path, *BUDGETS, "--depth", 4)) == 0
    return json.loads((run / "quality.json").read_text(encoding="utf-8"))


def test_train_calibrate_evaluate(
    run_copy: Path,
    toy_path: Path,
    toy: Collection,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`run_copy` is what keyblock-train left."""
    assert calibrate_main(strings("--run", run_copy, "--collection", toy_path, *BUDGETS, "--depth", 4)) == 0
    printed = json.loads(capsys.readouterr().out)
    config = PipelineConfig.model_validate_json((run_copy / "pipeline.json").read_text(encoding="utf-8"))
    assert config.fusion.model_dump() == printed.pop("fusion")
    assert config.fusion.logit > 0
    assert (config.packing.budget, config.packing.budget_range, config.packing.query_tokens) == (96, (80, 96), 8)
    quality = json.loads((run_copy / "quality.json").read_text(encoding="utf-8"))
    assert quality == printed
    assert list(quality["dev"]["toy"]) == ["80", "96"]
    assert quality["dev"]["toy"]["96"]["RR@10"] >= quality["dev"]["toy"]["96"]["RR@10 model alone"] >= 0.9
    assert quality["calibration"]["expected_error"] < 0.1
    assert calibrate_again(run_copy, toy_path, monkeypatch) == quality

    out = tmp_path / "out"
    capsys.readouterr()
    assert evaluate_main(strings("--run", run_copy, "--collection", toy_path, "--split", "dev", "--out", out)) == 0
    *table, figures = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in table] == ["system", "---", "toy-run", "first stage", "shuffled"]
    summary = json.loads(figures)
    assert summary == json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["system"], summary["collection"], summary["queries"]) == ("toy-run", "toy", 8)
    assert summary["measures"]["RR@10"] >= 0.9
    assert summary["gold_in_best_blocks"] == 1.0
    assert list(read_run(out / "run.trec.gz")) == toy.split("dev") == list(read_values(out / "per_query.tsv")["nDCG@10"])


def test_evaluate_against_other_systems(
    toy_run: Path, toy_path: Path, toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run fed its openings, against itself as it is: by its values and by its TREC run, two files of one name."""
    whole, first = tmp_path / "toy-run", tmp_path / "first"
    common = strings("--run", toy_run, "--collection", toy_path)
    assert evaluate_main([*common, *strings("--out", whole, "--measures", "P@1", "RR@10")]) == 0
    capsys.readouterr()
    against = strings("--against", whole / "per_query.tsv", "--against", whole / "run.trec.gz")
    fed_first = strings("--selector", "first", "--out", first, "--measures", "P@1", "--queries", 5)
    assert evaluate_main([*common, *fed_first, *against]) == 0
    *lines, figures = capsys.readouterr().out.splitlines()
    rows = {cells[0]: cells[1:] for line in lines if (cells := [cell.strip() for cell in line.split("|")[1:-1]])}
    systems = ["toy-run fed first blocks", "first stage", "shuffled", "toy-run", str(whole / "run.trec.gz")]
    assert list(rows) == ["system", "---", *systems]
    assert rows["toy-run"] == rows[str(whole / "run.trec.gz")]
    assert rows["toy-run"][0] == "1.0000"
    assert rows["toy-run fed first blocks"][1] == ""
    assert json.loads(figures)["gold_in_best_blocks"] < 1
    assert len(read_values(first / "per_query.tsv")["P@1"]) == 5


def test_a_bundle_is_evaluated(toy_bundle: Bundle, toy_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_main(strings("--bundle", toy_bundle.path, "--collection", toy_path, "--provider", "cpu", "--queries", 3)) == 0
    assert "| toy-bundle | 1.0000 |" in capsys.readouterr().out


def test_a_single_query_has_a_table_too(toy_run: Path, toy_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_main(strings("--run", toy_run, "--collection", toy_path, "--queries", 1)) == 0
    assert "| shuffled |" in capsys.readouterr().out


def test_candidates_for_every_query(toy_path: Path, toy: Collection, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "train.trec.gz"
    assert candidates_main(strings("--collection", toy_path, "--depth", 3, "--out", out)) == 0
    run = read_run(out)
    assert sorted(run) == sorted(toy.split("train"))
    assert run["river?"] == toy.run("train")["river?"]  # the collection's own list stays as it is
    assert len(run["river!"]) == 3


def test_candidates_of_our_own_are_evaluated(
    toy_run: Path, toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "train.trec"
    assert candidates_main(strings("--collection", toy_path, "--out", out)) == 0
    evaluated = strings("--run", toy_run, "--collection", toy_path, "--split", "train", "--candidates", out, "--depth", 2)
    assert evaluate_main(evaluated) == 0
    assert "| first stage | 0.0000 |" in capsys.readouterr().out  # the answers stand fourth


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("step=5", "step: Extra inputs are not permitted"),
        ("steps", "--set steps: write key=value"),
        ("steps=[", "--set steps=[: the value is not YAML"),
        ("loss=best", "loss: Value error, unknown loss 'best'"),
        ("pipeline.selector.name=best", "unknown selector 'best'"),
        ("budgets={1024: 1}", "reach 1024 tokens"),
        ("budgets={12: 1}", "12 has no room for a block beside 8 query tokens"),
        ("mixture={sea: 1}", "mixture names sea, but the collections are toy"),
        ("split=nowhere", "has no run.nowhere.bm25.trec"),
        ("backbone=nowhere/at/all", "nowhere/at/all: cannot be read as an encoder"),
    ],
)
def test_recipes_that_cannot_be_trained(
    refused: Callable[..., str], recipe_file: Path, toy_path: Path, tmp_path: Path, override: str, said: str
) -> None:
    assert said in refused(train_main, recipe_file, "--collection", toy_path, "--set", override, "--out", tmp_path / "run")


def test_recipes_that_are_none(refused: Callable[..., str], toy_path: Path, tmp_path: Path) -> None:
    for content, said in (("a: [", "cannot be read as YAML"), ("- a", "not list"), ("loss: hinge", "name: Field required")):
        (tmp_path / "r.yaml").write_text(content, encoding="utf-8")
        assert said in refused(train_main, tmp_path / "r.yaml", "--collection", toy_path, "--out", tmp_path / "run")
    assert "nowhere.yaml" in refused(train_main, tmp_path / "nowhere.yaml", "--collection", toy_path, "--out", tmp_path / "run")


def test_a_run_directory_that_cannot_be_used(
    refused: Callable[..., str], recipe_file: Path, toy_path: Path, run_copy: Path
) -> None:
    train = (train_main, recipe_file, "--collection", toy_path)
    assert "File exists" in refused(*train, "--out", run_copy / "log.jsonl")
    assert "holds a run of another recipe" in refused(*train, "--set", "seed=5", "--out", run_copy)
    state = run_copy / "checkpoint" / "state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    assert "checkpoint: cannot be continued, remove it to start again" in refused(*train, "--out", run_copy)


@pytest.mark.parametrize("part", ["corpus.jsonl.gz", "queries.jsonl", "qrels.tsv.gz", "splits/train.txt", "run.train.bm25.trec.gz"])
@pytest.mark.parametrize("how", ["missing", "damaged", "other"])
def test_collections_that_cannot_be_trained_on(
    refused: Callable[..., str], recipe_file: Path, toy_copy: Path, tmp_path: Path, part: str, how: str
) -> None:
    path = toy_copy / part
    content = {"missing": b"", "damaged": path.read_bytes()[:-20], "other": b"\xff\xfe one two\n"}[how]
    if how == "other" and path.suffix == ".gz":
        content = gzip.compress(b"{}\n")
    path.unlink()
    if how == "damaged" and path.suffix != ".gz":
        content += b"\xff"
    if how != "missing":
        path.write_bytes(content)
    said = refused(train_main, recipe_file, "--collection", toy_copy, "--out", tmp_path / "run")
    assert part.removesuffix(".gz") in said
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_dev_run_is_asked_for_at_the_start(
    refused: Callable[..., str], recipe_file: Path, toy_copy: Path, tmp_path: Path
) -> None:
    (toy_copy / "run.dev.bm25.trec.gz").unlink()
    said = refused(train_main, recipe_file, "--collection", toy_copy, "--out", tmp_path / "run")
    assert "has no run.dev.bm25.trec" in said
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_loss_that_is_not_a_number(recipe_file: Path, toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = strings("--set", "optimizer.encoder_lr=1e38", "--set", "optimizer.head_lr=1e38", "--set", "optimizer.warmup=0")
    assert train_main(strings(recipe_file, "--collection", toy_path, "--out", tmp_path / "run", *sets)) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("keyblock-train: step 1: the loss is ")  # a line of its own, behind the closed bar
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_an_interrupted_command(
    monkeypatch: pytest.MonkeyPatch, recipe_file: Path, toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "train", interrupt)
    assert train_main(strings(recipe_file, "--collection", toy_path, "--out", tmp_path)) == 130
    assert capsys.readouterr().err == "keyblock-train: stopped; the same command goes on from the last checkpoint\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--split", "nowhere"], "has no splits/nowhere.txt"),
        (["--split", "train", "--selector", "best"], "unknown selector 'best'"),
        (["--measures", "best"], "measure 'best' cannot be computed"),
        (["--budget", "129"], "a budget of 129 tokens exceeds the 128 that its model reads"),
        (["--candidates", "DIR/nowhere"], "nowhere"),
        (["--candidates", "DIR/bad.tsv"], "bad.tsv: line 1 has 2 fields"),
        (["--against", "DIR/bad.tsv"], "bad.tsv: line 1 must be query<TAB>measure<TAB>value"),
        (["--against", "DIR/few.tsv"], "few.tsv: has no RR@10 of query letter?: it was measured otherwise"),
        (["--against", "DIR/bad.trec"], "bad.trec: line 1 has 2 fields"),
    ],
)
def test_evaluations_that_cannot_be_made(
    refused: Callable[..., str], toy_run: Path, toy_path: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    for name in ("bad.tsv", "bad.trec"):
        (tmp_path / name).write_text("two fields\n", encoding="utf-8")
    (tmp_path / "few.tsv").write_text("teacher?\tRR@10\t1\nteacher!\tRR@10\t1\n", encoding="utf-8")
    given = [argument.replace("DIR", str(tmp_path)) for argument in arguments]
    assert said in refused(evaluate_main, "--run", toy_run, "--collection", toy_path, *given)


def test_systems_that_are_not_there(refused: Callable[..., str], toy_path: Path, toy_bundle: Bundle, tmp_path: Path) -> None:
    on_toy = ("--collection", toy_path)
    assert "pipeline.json" in refused(evaluate_main, "--run", tmp_path, *on_toy)
    assert "does not exist; give the path of a bundle" in refused(evaluate_main, "--bundle", tmp_path / "nowhere", *on_toy)
    assert "Invalid" in refused(evaluate_main, "--url", "http://[::1", *on_toy)
    assert "provider tensorrt was asked for" in refused(
        evaluate_main, "--bundle", toy_bundle.path, *on_toy, "--provider", "tensorrt"
    )
    assert "no such collection" in refused(evaluate_main, "--bundle", toy_bundle.path, "--collection", tmp_path / "nowhere")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nowhere"])
def test_services_that_are_not_there(toy_path: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert evaluate_main(strings("--url", url, "--collection", toy_path)) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(f"keyblock-evaluate: {url}")
    assert "no answer from there" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--default", "64"], "--default 64 is not among --budgets 80"),
        ([], "a budget of 129 tokens exceeds the 128"),
        (["--budgets", "12", "80"], "--budgets: "),
        (["--budgets", "80", "--depth", "1"], "no dev query has a relevant document among its candidates"),
    ],
)
def test_calibrations_that_cannot_be_made(
    run_copy: Path, toy_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    before = (run_copy / "pipeline.json").read_bytes()
    given = arguments or ["--budgets", "129"]
    assert calibrate_main(strings("--run", run_copy, "--collection", toy_path, *given)) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("keyblock-calibrate: ")
    assert said in line
    assert (run_copy / "pipeline.json").read_bytes() == before


def test_two_collections_of_one_name_are_not_calibrated_on(refused: Callable[..., str], run_copy: Path, toy_path: Path) -> None:
    assert "one name" in refused(calibrate_main, "--run", run_copy, "--collection", toy_path, "--collection", toy_path)


def test_scores_kept_are_those_of_the_same_weights(run_copy: Path, toy_path: Path, tmp_path: Path) -> None:
    command = strings("--run", run_copy, "--collection", toy_path, "--budgets", "80", "--queries", 2, "--depth", 4)
    assert calibrate_main(command) == 0
    (kept,) = (run_copy / "dev-scores").iterdir()
    head = run_copy / "checkpoint" / "head.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(head).items()}, head)
    assert calibrate_main(command) == 0
    assert len(list((run_copy / "dev-scores").iterdir())) == 2
    (scores,) = kept.iterdir()
    assert read_scores(scores, Collection(toy_path)).features.keys() == read_scores(scores, Collection(toy_path)).documents.keys()


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5"])
def test_numbers_that_are_none(toy_run: Path, toy_path: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as caught:
        evaluate_main(strings("--run", toy_run, "--collection", toy_path, f"--depth={number}"))
    assert caught.value.code == 2
    assert f"--depth: '{number}' is not a whole number from 1" in capsys.readouterr().err


@pytest.mark.parametrize("main", [train_main, calibrate_main, evaluate_main, candidates_main])
def test_help(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "--collection" in capsys.readouterr().out
