"""Recipe to run to bundle to service: each kind of ranker and each family of encoder; imports and the embedded model trained on."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from export.cli import main as export_main
from export.importing import import_model
from export.options import ImportOptions
from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.text.tokenizer import Tokenizer
from service.settings import Settings
from tests.service.conftest import warm
from tests.support.checkpoints import save_checkpoint
from tests.support.vectors import concept_table
from training.commands.calibrate import main as calibrate_main
from training.commands.collect import main as collect_main
from training.commands.evaluate import main as evaluate_main
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.evaluate.ranking import bundle_ranker, load_run_pipeline, run_ranker
from training.model.classifier import Classifier
from training.model.families import load_ranker, new_ranker
from training.model.starting import start_from
from training.recipe import RecipeError, load_recipe

pytestmark = pytest.mark.usefixtures("undrawn")
ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "training" / "recipes" / "small"
FINETUNE = RECIPES / "finetune.yaml"
FAMILIES = {  # of the encoder that each kind of ranker is trained on
    "keyb-bm25": "xlm-roberta",
    "keyb-hybrid": "bert",
    "cascade": "distilbert",
    "best": "bert",
    "avgp": "albert",
    "parade5-cnn": "roberta",
    "parade5-pretrained": "bert",
    "parade5-binb2": "xlm-roberta",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def encoder(family: str, runs: Path) -> Path:
    """Two layers of width 48, which the transformer aggregator's twelve heads divide."""
    path = runs / family
    sizes = {"dim": 48, "n_heads": 12} if family == "distilbert" else {"hidden_size": 48, "num_attention_heads": 12}
    return path if path.exists() else save_checkpoint(family, path, **sizes)


def train(name: str, collection: Collection, runs: Path) -> Path:
    """The recipe's run, of a few steps; trained once."""
    run, backbone = runs / name, encoder(FAMILIES[name], runs)
    settings = {"backbone": backbone, "mixture": "{}", "steps": 3, "precision": "fp32", "dev_queries": 2, "evaluate_every": 3}
    settings["init"] = "null"  # the embedded model has another width
    settings |= {"optimizer.encoder_lr": 2e-3, "optimizer.head_lr": 2e-2, "negatives.hard": 0}
    if name.startswith("parade5"):
        settings["optimizer.head_lr"] = 2e-3  # a higher one drives the logits together
    if name == "parade5-cnn":
        settings["states"] = "{name: cnn}"
    if name == "parade5-pretrained":  # layers of another width than the encoder: projections go round them
        pretrained = save_checkpoint("bert", runs / "narrow")
        settings["states"] = f"{{name: transformer, pretrained: {pretrained}, positions: 5}}"
    if name == "parade5-binb2":
        settings["selector_run"] = train("keyb-bm25", collection, runs)
        settings["pipeline.selector"] = "{name: learned}"
    if name == "keyb-hybrid":
        table = runs / "table.npz"
        concept_table(Tokenizer(backbone / "tokenizer.json"), [["the"], ["an"]]).write(table)
        settings |= {"pipeline.selector": "{name: hybrid}", "pipeline.encoder": f"{{name: static, file: {table}}}"}
    if name == "best":
        settings |= {"best.iterations": 2, "best.judged": 4}
    base = "keyb-bm25" if name == "keyb-hybrid" else "parade5-bm25" if name.startswith("parade5") else name
    recipe = RECIPES / f"{base}.yaml"
    if not run.exists():
        sets = [f"--set={key}={value}" for key, value in settings.items()]
        assert train_main([str(recipe), f"--collection={collection.path}", f"--out={run}", *sets]) == 0
    return run


def export(run: Path, toy: Collection, bundle: Path) -> NDArray[np.float32]:
    """Make the run's bundle, which gives the run's scores: the logits of a query's candidates."""
    exported = [str(run), f"--out={bundle}", f"--collection={toy.path}", "--precision=fp32", "--provider=cpu"]
    assert export_main(exported) == 0
    loaded = load_bundle(bundle)
    query, candidates = next(iter(toy.run("dev").items()))
    trained = run_ranker(run, toy, bf16=False).score(query, list(candidates))
    served = bundle_ranker(loaded, GraphModel.open(loaded, Provider.CPU, 1), toy).score(query, list(candidates))
    assert np.ptp(trained.logits) > 1e-3, "a ranker that finds all documents alike would be equal to anything"
    np.testing.assert_allclose(served.logits, trained.logits, atol=1e-5)
    assert [s.taken.tolist() for s in served.selections] == [s.taken.tolist() for s in trained.selections]
    return trained.logits


@pytest.mark.parametrize("name", FAMILIES)
def test_a_small_recipe_trains_exports_and_serves(name: str, toy: Collection, runs: Path, tmp_path: Path) -> None:
    """The run's bundle, by itself and through HTTP, gives the run's scores."""
    expected = export(train(name, toy, runs), toy, tmp_path / "bundle")
    query, candidates = next(iter(toy.run("dev").items()))
    documents = [{"id": d.doc_id, "title": d.title, "text": d.text} for d in map(toy.document, candidates)]
    body = {"query": toy.query(query), "documents": documents, "raw_scores": True, "return_blocks": True}
    settings = Settings(bundle=tmp_path / "bundle", provider=Provider.CPU, threads=1)
    with warm(settings) as client:
        answer = client.post("/rerank", json=body)
    assert answer.status_code == 200, answer.text
    scores = {result["id"]: result["relevance_score"] for result in answer.json()["results"]}
    np.testing.assert_allclose([scores[d] for d in candidates], expected, atol=1e-3)


def test_a_hybrid_ranker_is_measured_and_calibrated_as_it_is_served(toy: Collection, runs: Path, tmp_path: Path) -> None:
    """The run keeps the table, so that the recipe's file is no longer needed."""
    run = Path(shutil.copytree(train("keyb-hybrid", toy, runs), tmp_path / "run"))
    kept = tmp_path / "table.npz"
    (runs / "table.npz").rename(kept)
    collection, calibration = f"--collection={toy.path}", ("--budgets", "96", "128", "--default", "96", "--depth=4", "--least=2")
    try:
        assert calibrate_main([f"--run={run}", collection, *calibration]) == 0
        assert evaluate_main([f"--run={run}", collection, "--split=dev", f"--out={tmp_path / 'measured'}"]) == 0
        assert export_main([str(run), f"--out={tmp_path / 'bundle'}", collection, "--precision=fp32", "--provider=cpu"]) == 0
    finally:
        kept.rename(runs / "table.npz")
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.manifest.pipeline.encoder == {"name": "static", "file": "token_vectors.npz"}
    assert bundle.manifest.pipeline.evidence["name"] == "bm25"
    assert bundle.manifest.pipeline.fusion != PipelineConfig().fusion
    assert (run / "token_vectors.npz").read_bytes() == (bundle.path / "token_vectors.npz").read_bytes()
    doc_id = next(iter(toy.documents))
    assert bundle.pipeline.prepare_document(toy.document(doc_id).text).vectors is not None


IMPORTED = ("bert", "xlm-roberta")


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints, and beside each the bundle that it became."""
    folder = tmp_path_factory.mktemp("imports")
    for name in IMPORTED:
        source = save_checkpoint(name, folder / name)
        import_model(str(source), folder / f"{name}-bundle", ImportOptions(pairs=16, provider=Provider.CPU))
    return folder


@pytest.mark.parametrize("name", IMPORTED)
def test_an_import_is_trained_on_and_exported_again(name: str, imports: Path, toy: Collection, tmp_path: Path) -> None:
    source, bundle, run, again = imports / name, imports / f"{name}-bundle", tmp_path / "run", tmp_path / "again"
    settings = {"init": bundle, "steps": 2, "evaluate_every": 2, "dev_queries": 2}  # model and backbone are the import's
    settings |= {"precision": "fp32", "negatives.hard": 0, "optimizer.encoder_lr": 1e-3, "patience": "null"}
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    assert train_main([str(FINETUNE), f"--collection={toy.path}", f"--out={run}", *sets]) == 0
    export(run, toy, again)
    before, after = Classifier.load(source), load_ranker(run / "checkpoint")
    assert isinstance(after, Classifier)
    assert type(after.module) is type(before.module)
    assert not np.array_equal(before.final.weight.detach().numpy(), after.final.weight.detach().numpy()), "it learned"
    start_from(before, again)
    assert np.array_equal(before.final.weight.detach().numpy(), after.final.weight.detach().numpy()), "and all of it was kept"


def test_another_checkpoints_bundle_is_one_clear_error(imports: Path, tmp_path: Path) -> None:
    other = Classifier.load(save_checkpoint("bert", tmp_path / "other", intermediate_size=64))
    with pytest.raises(ValueError, match="its ranker is not of the backbone's architecture"):
        start_from(other, imports / "bert-bundle")
    with pytest.raises(ValueError, match="graph is a cross-encoder's; a classifier starts from a run of its own"):
        start_from(other, ROOT / "models" / "default")
    with pytest.raises(ValueError, match=r"it is trained on with model\.name=classifier"):
        start_from(new_ranker({"name": "cross_encoder"}, str(imports / "bert")), imports / "bert-bundle")


SMALL = ("tokens_per_step=2048", "dev_depth=3", "precision=fp32", "patience=null", "reshape={layers: 2}")


def finetune(collection: Path, run: Path, *settings: str) -> None:
    sets = [f"--set={one}" for one in (*SMALL, *settings)]
    assert train_main([str(FINETUNE), f"--collection={collection}", f"--out={run}", *sets]) == 0


def test_the_embedded_model_trained_on_keeps_what_it_starts_from_and_says_what_it_does_not(
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


def test_trained_on_what_was_fitted_is_fitted_anew(finetuned: Path) -> None:
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


def test_trained_on_its_export_has_the_same_variants_and_a_name_of_its_own(finetuned: Path, tmp_path: Path) -> None:
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
