import re
from collections.abc import Callable
from pathlib import Path

import pytest

from export.import_cli import main
from keyblock.bundle import load_bundle


def test_an_import_is_summed_up(checkpoint: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bundle"
    options = ["--provider", "cpu", "--passages", "2", "--activation", "identity", "--scale", "0.5", "--name", "mine"]
    assert main([str(checkpoint("bert")), "--out", str(out), *options]) == 0
    said = capsys.readouterr()
    first, second, third = said.out.splitlines()
    assert first.startswith(f"{out}: ")
    assert "Attention" in first
    assert '"pace"' in second
    found = re.fullmatch(
        r"OK: logits differ from transformers' by up to (.*) over 384 pairs \((.*) is allowed where logits span (.*)\)", third
    )
    assert found is not None, third
    difference, limit, span = map(float, found.groups())
    assert difference <= limit == pytest.approx(min(1e-3, 1e-3 * span), rel=0.1)
    steps = [line.removeprefix("keyblock-import: ") for line in said.err.splitlines() if line.startswith("keyblock-import: ")]
    assert steps == [
        f"reading {checkpoint('bert')}",
        "writing its graph",
        "scoring 384 pairs of a query and a text with transformers",
        "scoring them with the graph",
        "measuring scores and pace on provider cpu",
    ]
    manifest = load_bundle(out).manifest
    assert (manifest.name, manifest.pipeline.aggregator) == ("mine", {"name": "max", "passages": 2})
    assert manifest.pipeline.activation.model_dump() == {"name": "identity", "scale": 0.5}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{tmp}/none"], "no such directory"),
        (["{bert}", "--frequencies", "{tmp}/none"], "--frequencies {tmp}/none: "),
        (["{bert}", "--scale", "-1"], "--scale -1: must be a number above 0"),
        (["{bert}", "--scale", "nan"], "--scale nan: must be a number above 0"),
    ],
)
def test_errors_that_a_person_can_mend_are_one_line_and_leave_nothing(
    checkpoint: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    out, given = tmp_path / "out", [argument.format(tmp=tmp_path, bert=checkpoint("bert")) for argument in arguments]
    capsys.readouterr()  # what making the checkpoint may have printed
    assert main([*given, "--out", str(out)]) == 2
    said = capsys.readouterr().err.splitlines()
    *steps, problem = said
    assert steps in (
        [],
        [f"keyblock-import: reading {given[0]}"],
        [f"keyblock-import: reading {given[0]}", "keyblock-import: writing its graph"],
    )
    assert problem.startswith("keyblock-import: ")
    assert expected.format(tmp=tmp_path) in problem
    assert list(tmp_path.iterdir()) == []


def test_few_pairs_prove_too_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["model", "--out", str(tmp_path / "out"), "--pairs", "10"])
    assert stopped.value.code == 2
    assert "10 pairs prove too little: 384 or more" in capsys.readouterr().err
