"""Pictures: the data that is drawn, read back from the axes; keyblock-draw."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from lab.commands.draw import main as draw_main
from lab.pictures import (
    Measured,
    draw_gold_places,
    draw_learning_curves,
    draw_quality_latency,
    frontier,
)
from lab.positions import GoldPlace
from tests.training.commands.conftest import strings

SYSTEMS = [Measured("slow", 20.0, 0.9), Measured("fast", 1.0, 0.5), Measured("beaten", 5.0, 0.4), Measured("middle", 4.0, 0.7)]


def drawn_anew(figure: Figure) -> Figure:
    """Rendered once: an error or a warning of the layout is an error here."""
    figure.savefig(io.BytesIO(), format="png")
    return figure


def test_gold_places_by_hand() -> None:
    starts = {"near": [0, 5, 12, 99], "far": [12]}
    places = {name: [GoldPlace("q", "d", start, start + 1, 100) for start in of] for name, of in starts.items()}
    (axes,) = drawn_anew(draw_gold_places(places, 10, 2)).axes
    near, far = ([bar.get_height() for bar in bars] for bars in axes.containers)
    assert (near, far) == ([0.5, 0.25, 0.25], [0, 1, 0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "2+"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["near: 4", "far: 1"]


def test_the_frontier_by_hand() -> None:
    assert [system.name for system in frontier(SYSTEMS)] == ["fast", "middle", "slow"]
    assert frontier([Measured("a", 1.0, 0.5), Measured("b", 1.0, 0.6), Measured("c", 2.0, 0.6)]) == [Measured("b", 1.0, 0.6)]
    assert frontier([]) == []


def test_quality_and_latency_of_every_system_are_drawn() -> None:
    (axes,) = drawn_anew(draw_quality_latency(SYSTEMS, "nDCG@10")).axes
    (points,) = (c for c in axes.collections if isinstance(c, PathCollection))
    assert np.asarray(points.get_offsets()).tolist() == [[s.milliseconds, s.quality] for s in SYSTEMS]
    assert {text.get_text(): text.xy for text in axes.texts} == {s.name: (s.milliseconds, s.quality) for s in SYSTEMS}
    assert np.asarray(axes.lines[0].get_xydata()).tolist() == [[1.0, 0.5], [4.0, 0.7], [20.0, 0.9]]
    assert (axes.get_xscale(), axes.get_ylabel()) == ("log", "nDCG@10")


def log(losses: list[float], **dev: list[float]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    measured = range(max(map(len, dev.values()), default=0))
    return records + [{"step": 10 * n, "dev": {name: {"RR@10": values[n]} for name, values in dev.items()}} for n in measured]


def test_learning_curves_of_several_runs() -> None:
    logs = {"one": log([4.0, 2.0], toy=[0.1, 0.2], sea=[0.3, 0.4]), "two": log([3.0], sea=[0.5]), "three": log([])}
    loss, toy, sea = drawn_anew(draw_learning_curves(logs)).axes
    assert [np.asarray(line.get_xydata()).tolist() for line in loss.lines] == [[[2, 3.0]], [[1, 3.0]], []]
    assert [np.asarray(line.get_xydata()).tolist() for line in toy.lines] == [[[0, 0.1], [10, 0.2]]]
    assert [np.asarray(line.get_xydata()).tolist() for line in sea.lines] == [[[0, 0.3], [10, 0.4]], [[0, 0.5]]]
    assert [line.get_color() for line in sea.lines] == [line.get_color() for line in loss.lines[:2]]  # a run has one colour
    assert (toy.get_title(), sea.get_title()) == ("toy", "sea")


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
