"""Recipe to run to bundle to service: the small recipes on a small encoder, each kind of ranker once."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from export.cli import main as export_main
from keyblock.bundle import load_bundle
from keyblock.description import PipelineConfig
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.text.tokenizer import Tokenizer
from service.app import create_app
from service.settings import Settings
from tests.support.checkpoints import save_checkpoint
from tests.support.vectors import concept_table
from training.commands.calibrate import main as calibrate_main
from training.commands.evaluate import main as evaluate_main
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.evaluate.ranking import bundle_ranker, run_ranker

pytestmark = pytest.mark.usefixtures("undrawn")
RECIPES = Path(__file__).parents[2] / "training" / "recipes" / "small"
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
    if name == "parade5-cnn":
        settings["states"] = "{name: cnn}"
    if name == "parade5-pretrained":  # layers of another width than the encoder: projections go round them
        pretrained = save_checkpoint("bert", runs / "narrow")
        settings["states"] = f"{{name: transformer, pretrained: {pretrained}, positions: 5}}"
    if name == "parade5-binb2":
        settings["selector_run"] = train("keyb-bm25", collection, runs)
        settings["pipeline.selector"] = "{name: learned}"
        settings["steps"] = 9  # three leave its logits too close together to compare
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


@pytest.mark.parametrize("name", FAMILIES)
def test_a_small_recipe_trains_exports_and_serves(name: str, toy: Collection, runs: Path, tmp_path: Path) -> None:
    """The run's bundle, by itself and through HTTP, gives the run's scores."""
    run, bundle = train(name, toy, runs), tmp_path / "bundle"
    exported = [str(run), f"--out={bundle}", f"--collection={toy.path}", "--precision=fp32", "--provider=cpu"]
    assert export_main(exported) == 0

    loaded = load_bundle(bundle)
    query, candidates = next(iter(toy.run("dev").items()))
    trainer = run_ranker(run, toy, bf16=False).score(query, list(candidates))
    model = GraphModel.open(loaded, Provider.CPU, 1)
    served = bundle_ranker(loaded, model, toy).score(query, list(candidates))
    assert np.ptp(trainer.logits) > 1e-3, "a ranker that finds all documents alike would be equal to anything"
    np.testing.assert_allclose(served.logits, trainer.logits, atol=1e-5)
    assert [s.taken.tolist() for s in served.selections] == [s.taken.tolist() for s in trainer.selections]

    documents = [toy.document(d)._asdict() for d in candidates]
    body = {"query": toy.query(query), "raw_scores": True, "return_blocks": True}
    body["documents"] = [{"id": d["doc_id"], "title": d["title"], "text": d["text"]} for d in documents]
    with TestClient(create_app(Settings(bundle=bundle, provider=Provider.CPU, threads=1))) as client:
        while client.get("/health/ready").status_code != 200:
            assert client.get("/health/live").status_code == 200
        answer = client.post("/rerank", content=json.dumps(body))
    assert answer.status_code == 200, answer.text
    scores = {result["id"]: result["relevance_score"] for result in answer.json()["results"]}
    np.testing.assert_allclose([scores[d] for d in candidates], trainer.logits, atol=1e-3)


def test_a_hybrid_ranker_is_measured_and_calibrated_as_it_is_served(toy: Collection, runs: Path, tmp_path: Path) -> None:
    """The run keeps the table, so that the recipe's file is no longer needed."""
    run = Path(shutil.copytree(train("keyb-hybrid", toy, runs), tmp_path / "run"))
    kept = tmp_path / "table.npz"
    (runs / "table.npz").rename(kept)
    try:
        collection = f"--collection={toy.path}"
        assert (
            calibrate_main([f"--run={run}", collection, "--budgets", "96", "128", "--default", "96", "--depth=4", "--least=2"]) == 0
        )
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
