"""keyblock-prior on two small collections whose relevant documents are those that say the query's words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from keyblock.bundle import Bundle, load_bundle
from tests.training.collections.passages import write_collection
from tests.training.commands.running import strings
from training.commands.prior import main as prior_main


def collection(path: Path) -> Path:
    """Thirty documents for each query: one tells news of it, the others tell news of something else."""
    names = [f"{split}{number}" for split in ("train", "dev") for number in range(12)]
    texts = {name: f"Here are the news of {name}, which {name} brought." for name in names} | {
        f"other{number}": f"Here are the news of nobody, told {number} times." for number in range(18)
    }
    splits = {split: [name for name in names if name.startswith(split)] for split in ("train", "dev")}
    return write_collection(path, texts, {name: [name] for name in names}, splits)


def test_a_bundle_learns_what_promises(toy_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = strings("--bundle", toy_bundle.path, "--out", tmp_path / "out", "--depth", 40, "--share", 0.2)
    asked += strings("--collection", collection(tmp_path / "a"), "--collection", collection(tmp_path / "b"))
    assert prior_main(asked) == 0
    printed = capsys.readouterr().out
    rows = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith(("| a ", "| b "))]
    assert [row[2].strip() for row in rows] == ["the fusion's", "learned", "both", "both, learned without it"] * 2
    assert all(cell.strip() == "0.00%" for row in rows if "learned" in row[2] for cell in row[3:])
    manifest = load_bundle(tmp_path / "out").manifest
    assert manifest.pipeline.pre_ranking is not None
    assert manifest.pipeline.pre_ranking.share == 0.2
    assert manifest.pipeline.pre_ranking.prior is not None
    assert manifest.pipeline.pre_ranking.prior.best_block + manifest.pipeline.pre_ranking.prior.top_blocks > 0
    assert manifest.quality["prior"] == {"split": "train", "bar": 20, "queries": {"a": 12, "b": 12}}
    assert prior_main(asked) == 2
    assert "is not empty" in capsys.readouterr().err


def test_what_cannot_be_learned(refused: Callable[..., str], toy_bundle: Bundle, tmp_path: Path) -> None:
    options = ("--bundle", toy_bundle.path, "--out", tmp_path / "out", "--collection", collection(tmp_path / "a"))
    assert "--share must be above 0 and at most 1, not 2" in refused(prior_main, *options, "--share", 2)
    assert not (tmp_path / "out").exists()
