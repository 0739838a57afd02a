"""Training the model that comes with KeyBlock further: what it keeps, and how it tells what it gained."""

import re
from pathlib import Path

import pytest

from keyblock.bundle import load_bundle
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.evaluate.ranking import load_run_pipeline
from training.recipe import RecipeError, load_recipe

ROOT = Path(__file__).resolve().parents[2]
FINETUNE = ROOT / "training" / "recipes" / "small" / "finetune.yaml"


def test_it_keeps_what_it_starts_from_and_says_what_it_does_not(
    toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("passes=0.5", "tokens_per_step=2048", "dev_queries=2", "dev_depth=3", "precision=fp32")
    sets = [f"--set={one}" for one in settings]
    assert train_main([str(FINETUNE), f"--collection={toy.path}", f"--out={tmp_path / 'run'}", *sets]) == 0
    said = capsys.readouterr().err

    bundle = load_bundle(ROOT / "models" / "default")
    kept, before = load_run_pipeline(tmp_path / "run"), bundle.pipeline
    assert kept.config == before.config.model_copy(update={"trained_on": None})
    assert (kept.frequencies.n_documents, kept.config.selector["name"]) == (before.frequencies.n_documents, "hybrid")
    assert (tmp_path / "run" / "checkpoint" / "marker.safetensors").exists()
    assert 'does not keep of models/default: trained_on {"languages": ["en"], "scripts": ["latin"]} becomes null' in said

    assert re.search(r"16 queries, 4 steps of about 2: 0\.\d passes", said)
    assert "step 0: RR@10" in said
    assert re.search(r"RR@10 on dev: \d\.\d{4} before training, \d\.\d{4} after step \d", said)


def test_nothing_can_be_kept_of_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is no run or bundle whose pipeline could be kept"):
        load_recipe(FINETUNE, [f"init={tmp_path}"])
