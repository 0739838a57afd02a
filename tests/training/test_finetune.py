"""Training the model that comes with KeyBlock further: what it keeps, and how it tells what it gained."""

import json
import re
from pathlib import Path

import pytest

from export.cli import main as export_main
from keyblock.bundle import load_bundle
from training.commands.collect import main as collect_main
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.evaluate.ranking import load_run_pipeline
from training.recipe import RecipeError, load_recipe

ROOT = Path(__file__).resolve().parents[2]
FINETUNE = ROOT / "training" / "recipes" / "small" / "finetune.yaml"
SMALL = ("tokens_per_step=2048", "dev_depth=3", "precision=fp32", "patience=null", "reshape={layers: 2}")


def finetune(collection: Path, run: Path, *settings: str) -> None:
    sets = [f"--set={one}" for one in (*SMALL, *settings)]
    assert train_main([str(FINETUNE), f"--collection={collection}", f"--out={run}", *sets]) == 0


def test_it_keeps_what_it_starts_from_and_says_what_it_does_not(
    toy: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finetune(toy.path, tmp_path / "run", "passes=0.5", "dev_queries=2")
    said = capsys.readouterr().err

    bundle = load_bundle(ROOT / "models" / "default")
    kept, before = load_run_pipeline(tmp_path / "run"), bundle.pipeline
    assert kept.config == before.config.model_copy(update={"trained_on": None, "meaning": None})
    assert (kept.frequencies.n_documents, kept.config.selector["name"]) == (before.frequencies.n_documents, "hybrid")
    assert (tmp_path / "run" / "checkpoint" / "marker.safetensors").exists()
    assert 'does not keep of models/default: trained_on {"languages": ["en"], "scripts": ["latin"]} becomes null' in said
    assert '"weight": 2.0} becomes null' in said
    unsuited = "keeps the fusion, min_score, spans, second_look of models/default, which other weights may not suit, until"
    assert f"finetune: {unsuited}" in said

    assert re.search(r"16 queries, 4 steps of about 2: 0\.\d passes", said)
    assert "step 0: RR@10" in said
    assert re.search(r"RR@10 on dev: \d\.\d{4} before training, \d\.\d{4} after step 4", said)


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step on a table of 24 questions, one for each town; half of them are dev's."""
    folder = tmp_path_factory.mktemp("finetune")
    towns = [
        f"{first}{last}" for first in ("Ash", "Birch", "Elm", "Oak", "Pine", "Beech") for last in ("ford", "ham", "ton", "ley")
    ]
    rows = []
    for number, town in enumerate(towns):
        answer = f"The market of {town} opens at {number % 12 + 1} in the morning."
        text = f"{town} is a quiet town by the river. {answer} Its bridge is old, and many people walk over it on a Sunday."
        rows.append({"question": f"When does the market of {town} open?", "document": text, "passage": answer})
    (folder / "towns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert collect_main([str(folder / "towns.jsonl"), f"--out={folder / 'towns'}", "--dev=0.5"]) == 0
    finetune(folder / "towns", folder / "run", "steps=1", "dev_queries=12")
    return folder / "run"


def test_what_was_fitted_is_fitted_anew(finetuned: Path) -> None:
    before, after = load_bundle(ROOT / "models" / "default").pipeline.config, load_run_pipeline(finetuned).config
    assert after.fusion != before.fusion
    assert after.min_score is not None
    assert after.min_score != before.min_score
    assert after.spans is not None
    assert after.spans != before.spans
    assert after.second_look is not None
    assert before.second_look is not None
    assert after.second_look.documents == before.second_look.documents
    assert (after.packing, after.pre_ranking, after.selector) == (before.packing, before.pre_ranking, before.selector)
    quality = json.loads((finetuned / "quality.json").read_text(encoding="utf-8"))
    assert quality["calibration"]["threshold"]["queries"] == 12


def test_its_export_has_the_same_variants_and_a_name_of_its_own(finetuned: Path, tmp_path: Path) -> None:
    few = ("--provider=cpu", "--queries=2", "--depth=2")
    assert export_main([str(finetuned), f"--out={tmp_path / 'bundle'}", *few]) == 0
    manifest = load_bundle(tmp_path / "bundle").manifest
    began = load_bundle(ROOT / "models" / "default").manifest
    assert (manifest.name, list(manifest.variants)) == (f"{began.name}-finetune", ["fp16", "int8-static"])
    assert manifest.graph is not None
    assert manifest.graph.marks
    assert manifest.pipeline.spans is not None
    assert export_main([str(finetuned), f"--out={tmp_path / 'plain'}", "--no-variants", *few]) == 0
    assert load_bundle(tmp_path / "plain").manifest.variants == {}


def test_nothing_can_be_kept_of_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is no run or bundle whose pipeline could be kept"):
        load_recipe(FINETUNE, [f"init={tmp_path}"])
