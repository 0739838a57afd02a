"""keyblock-draw: pictures of runs and of measurements."""

import json
from pathlib import Path

import pytest

from lab.commands.draw import main as draw_main
from tests.training.commands.running import strings


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
