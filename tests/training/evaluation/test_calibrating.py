"""What is learned beside the fusion: the cheapest setting that is as good as the best."""

from pathlib import Path

import pytest

from keyblock.bundle import Bundle, load_bundle
from tests.training.commands.running import strings
from training.commands.calibrate import main as calibrate_main
from training.evaluation.calibrating import Plan, Setting, cheapest_of_the_best

CHEAP, DEAR = Setting(128, 1), Setting(128, 3)


@pytest.mark.parametrize(
    ("cheap", "chosen"),
    [
        ([1.0, 0.5, 1.0, 0.5], CHEAP),  # equal
        ([1.0, 0.5, 0.5, 0.5], CHEAP),  # loses .125, and the standard error is .125
        ([0.5, 0.5, 0.5, 0.5], DEAR),  # loses .25 with an error of .144
        ([1.0, 1.0, 1.0, 1.0], CHEAP),  # the best
    ],
)
def test_fewer_tokens_win_within_a_standard_error(cheap: list[float], chosen: Setting) -> None:
    assert cheapest_of_the_best({DEAR: [1.0, 0.5, 1.0, 0.5], CHEAP: cheap}) == chosen


def test_one_query_decides_by_itself() -> None:
    assert cheapest_of_the_best({CHEAP: [0.5], DEAR: [1.0]}) == DEAR


def test_settings_are_every_budget_with_every_number_of_passages(toy_bundle: Bundle) -> None:
    config = toy_bundle.manifest.pipeline
    assert [str(setting) for setting in Plan((96, 80), (2, 1)).settings(config)] == ["2 x 96", "1 x 96", "2 x 80", "1 x 80"]
    assert [str(setting) for setting in Plan().settings(config)] == [str(config.packing.budget)]
    assert [setting.cost for setting in (Setting(128), CHEAP, DEAR)] == [128, 128, 384]


def test_a_bundle_is_calibrated_into_a_copy(
    toy_bundle: Bundle, toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The toy's relevant document says the query's words, so either budget ranks it first, and the smaller one is served."""
    out, measured = tmp_path / "calibrated", ("--budgets", 96, 80, "--depth", 4, "--least", 2)
    asked = strings("--bundle", toy_bundle.path, "--out", out, "--collection", toy_path, *measured)
    assert calibrate_main(asked) == 0
    assert "expected calibration error at 80 tokens: 0." in capsys.readouterr().out
    manifest = load_bundle(out).manifest
    assert (manifest.pipeline.packing.budget, manifest.pipeline.packing.budget_range) == (80, (80, 96))
    assert manifest.pipeline.fusion != toy_bundle.manifest.pipeline.fusion
    assert manifest.quality["dev"]["toy"]["80"]["RR@10"] >= 0.9
    assert calibrate_main(asked) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_bundle_needs_a_place_for_its_copy(toy_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate_main(strings("--bundle", tmp_path, "--collection", toy_path)) == 2
    assert "--bundle and --out belong together" in capsys.readouterr().err
