from collections.abc import Callable
from pathlib import Path

import pytest

from export.import_cli import main
from keyblock.bundle import load_bundle


def test_an_import_is_summed_up(checkpoint: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bundle"
    options = ["--provider", "cpu", "--passages", "2", "--activation", "identity", "--scale", "0.5", "--name", "mine"]
    assert main([str(checkpoint("bert")), "--out", str(out), *options]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{out}: ")
    assert "Attention" in first
    assert second.startswith("certificate: 384 pairs, largest difference of a logit ")
    assert '"pace"' in third
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
    assert len(said) == 1
    assert said[0].startswith("keyblock-import: ")
    assert expected.format(tmp=tmp_path) in said[0]
    assert list(tmp_path.iterdir()) == []


def test_few_pairs_prove_too_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["model", "--out", str(tmp_path / "out"), "--pairs", "10"])
    assert stopped.value.code == 2
    assert "10 pairs prove too little: 384 or more" in capsys.readouterr().err
