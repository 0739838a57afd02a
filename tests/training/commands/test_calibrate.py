"""keyblock-calibrate on a trained run of the toy, and what it refuses."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from keyblock.description import PipelineConfig
from tests.training.commands.running import strings
from training.commands.calibrate import main as calibrate_main
from training.commands.evaluate import main as evaluate_main
from training.data.collection import Collection
from training.data.files import read_run
from training.evaluate.calibration import calibrate as calibrating
from training.evaluate.evaluate import read_values
from training.evaluate.ranking import CHOOSER, load_run_pipeline

BUDGETS = ["--budgets", "80", "96", "--default", "96"]
FEW = ["--least", "2"]  # the toy has 8 dev queries


def calibrate_again(run: Path, toy_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Without the model: its scores were kept."""
    with monkeypatch.context() as patch:
        patch.delattr(calibrating, "score_dev")
        assert calibrate_main(strings("--run", run, "--collection", toy_path, *BUDGETS, "--depth", 4, *FEW)) == 0
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
    assert calibrate_main(strings("--run", run_copy, "--collection", toy_path, *BUDGETS, "--depth", 4, *FEW, "--json")) == 0
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
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table] == ["system", "---", "toy-run", "first stage", "shuffled"]
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert evaluate_main(strings("--run", run_copy, "--collection", toy_path, "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["measures"] == summary["measures"] == printed["systems"]["toy-run"]
    assert (summary["system"], summary["collection"], summary["queries"]) == ("toy-run", "toy", 8)
    assert summary["measures"]["RR@10"] >= 0.9
    assert summary["gold_in_best_blocks"] == 1.0
    assert list(read_run(out / "run.trec.gz")) == toy.split("dev") == list(read_values(out / "per_query.tsv")["nDCG@10"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--default", "64"], "--default 64 is not among --budgets 80"),
        (["--budgets", "129"], "a budget of 129 tokens exceeds the 128"),
        (["--budgets", "12", "80"], "--budgets: "),
        (["--budgets", "80", "--depth", "1"], "no dev query has a relevant document among its candidates"),
        (["--budgets", "80", "--depth", "4"], "or accept it with --least 8. The fusion stays as it is"),
    ],
)
def test_calibrations_that_cannot_be_made(
    run_copy: Path, toy_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    before = (run_copy / "pipeline.json").read_bytes()
    assert calibrate_main(strings("--run", run_copy, "--collection", toy_path, *arguments)) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("keyblock-calibrate: ")
    assert said in line
    assert (run_copy / "pipeline.json").read_bytes() == before


def test_the_model_that_counts_is_calibrated(run_copy: Path, toy_path: Path) -> None:
    """Scores are kept for each model. A run of BeST has best/ and no checkpoint of its own."""
    (run_copy / "checkpoint").rename(run_copy / "best")
    command = ["--run", str(run_copy), "--collection", str(toy_path), "--queries", "2", "--depth", "4", *FEW]
    assert calibrate_main(command) == 0
    head = run_copy / "best" / "head.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(head).items()}, head)
    assert calibrate_main(command) == 0
    shutil.copytree(run_copy / "best", run_copy / CHOOSER)
    assert calibrate_main(command) == 0
    assert len(list((run_copy / "dev-scores").iterdir())) == 3


def test_tables_for_people_at_the_runs_own_budget(run_copy: Path, toy_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate_main(strings("--run", run_copy, "--collection", toy_path, "--depth", 4, *FEW)) == 0
    said = capsys.readouterr().out
    assert "| fusion | " in said
    assert "| toy | 80 | " in said
    assert "\nexpected calibration error at 80 tokens: 0." in said
    assert "| is there an answer? | AUROC |" in said
    assert said.splitlines()[-1].startswith("threshold 0.")
    packing = load_run_pipeline(run_copy).config.packing
    assert (packing.budget, packing.budget_range) == (80, (32, 96))
