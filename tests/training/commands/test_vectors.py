"""keyblock-vectors on the toy."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from keyblock.bundle import Bundle, load_bundle
from tests.training.commands.running import strings
from training.commands.vectors import main as vectors_main

SMALL = ["--set", "dimensions=8", "--set", "distil_steps=2", "--set", "steps=2", "--set", "step_questions=4"]


def test_a_table_and_a_bundle(
    toy_path: Path, toy_bundle: Bundle, tiny_backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = strings("--collection", toy_path, "--bundle", toy_bundle.path, "--teacher", tiny_backbone, "--out", tmp_path / "run")
    assert vectors_main([*asked, *SMALL, "--into", str(tmp_path / "hybrid")]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["dev"].keys() == {"bm25", "vectors", "soft", "hybrid"}
    assert load_bundle(tmp_path / "hybrid").manifest.quality["selection"] == figures["dev"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dimension=8", "dimension: Extra inputs are not permitted (8); there are seed, dimensions,"),
        ("dimensions=2", "dimensions: Input should be greater than or equal to 8 (2)"),
        ("dimensions", "--set dimensions: write key=value"),
    ],
)
def test_numbers_that_cannot_be(
    override: str, message: str, refused: Callable[..., str], toy_path: Path, toy_bundle: Bundle, tmp_path: Path
) -> None:
    options = ["--collection", toy_path, "--bundle", toy_bundle.path, "--out", tmp_path / "run", "--set", override]
    assert message in refused(vectors_main, *options)


def test_a_collection_without_gold_passages(
    refused: Callable[..., str], toy_copy: Path, toy_bundle: Bundle, tiny_backbone: Path, tmp_path: Path
) -> None:
    (toy_copy / "spans.jsonl.gz").unlink()
    options = ["--collection", toy_copy, "--bundle", toy_bundle.path, "--teacher", tiny_backbone, "--out", tmp_path / "run"]
    assert "no query of split train has a gold passage" in refused(vectors_main, *options)
