"""keyblock-encoder as a command: what it prints, and what the copy ranks by."""

import shutil
from pathlib import Path

import pytest

from export.encoder_cli import main
from keyblock.bundle import load_bundle
from keyblock.ranker import Ranker
from tests.support.checkpoints import save_checkpoint

EMBEDDED = Path(__file__).resolve().parent.parent.parent / "models" / "default"


def test_a_bundle_is_copied_with_the_requested_selector(backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = save_checkpoint("bert", tmp_path / "small", vocab_size=30522)
    shutil.copy(backbone / "tokenizer.json", small)
    asked = [str(small), "--bundle", str(EMBEDDED), "--out", str(tmp_path / "out"), "--selector", "vectors"]
    assert main(asked) == 0
    said = capsys.readouterr()
    assert "with the encoder" in said.out
    assert said.err.endswith("keyblock-calibrate --bundle learns it anew\n")
    assert load_bundle(tmp_path / "out").manifest.pipeline.selector["name"] == "vectors"


def test_a_bundle_that_scores_by_its_vectors(backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No ranker is left, nor what was learned with it; the sentence that answers in other words is first."""
    assert main([str(backbone), "--bundle", str(EMBEDDED), "--out", str(tmp_path / "out"), "--scale", "20"]) == 0
    assert "keyblock-calibrate" not in capsys.readouterr().err
    bundle = load_bundle(tmp_path / "out")
    assert (bundle.manifest.graph, bundle.manifest.variants, bundle.manifest.quality) == (None, {}, {})
    texts = ["The museum opens at nine on every day of the week.", "In case of sickness, notify your supervisor at once."]
    with Ranker.open(bundle) as ranker:
        assert [result.index for result in ranker.rank("What do I do when I am ill?", texts)] == [1, 0]
