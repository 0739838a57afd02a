"""A system of each kind, trained or with fresh weights, exported and served: HTTP gives the scores of PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.cli import main as export_main
from export.exporter import SAMPLE, export_run
from export.options import Options, WeightPrecision
from keyblock.bundle import load_bundle
from keyblock.runtime.providers import Precision, Provider
from lab.models.ck import Ck
from service.settings import Settings
from tests.service.conftest import warm
from training.commands.train import main as train_main
from training.data.collection import Collection
from training.declarations import FAMILIES
from training.evaluate.ranking import run_ranker
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker
from training.model.transformer_ranker import RELATIVE

RECIPES = Path(__file__).parents[1] / "recipes"
PARTS: dict[str, Any] = {
    "segmenter": {"name": "cogltx", "block_tokens": 30},
    "packing": {"query_tokens": 12, "budget": 64, "budget_range": (64, 64)},
    "aggregator": {"name": "states", "passages": 3},
}
FEW = Options(precision=WeightPrecision.FP32, provider=Provider.CPU, queries=2, depth=3)


def save_kind(kind: str, run: Path, tiny: Callable[..., CrossEncoder], save_run: Callable[..., Path], folder: Path) -> Path:
    """A run of this family with fresh weights; IDCM has a student that selects for its teacher."""
    torch.manual_seed(0)
    if kind == "idcm":
        student = Ck(tiny().encoder.get_input_embeddings().weight.detach(), window=3, filters=8)
        student.family = FAMILIES.create({"name": "ck", "filters": 8}).describe()
        torch.nn.init.normal_(student.head.weight)
        teacher = tiny(aggregator={"name": "top", "best": 2})
        return save_run(run, teacher, chooser=student, **PARTS | {"selector": {"name": "learned"}})
    tiny().encoder.save_pretrained(folder)
    return save_run(run, new_ranker({"name": kind, "query_tokens": 8}, str(folder), attention="eager").eval(), **PARTS)


@pytest.mark.parametrize("kind", ["idcm", "tkl", "cedr_pacrr"])
def test_scores_through_http_are_those_of_the_run(
    tmp_path: Path, tiny: Callable[..., CrossEncoder], save_run: Callable[..., Path], kind: str
) -> None:
    """Of the sample's documents, which have up to three passages."""
    run = save_kind(kind, tmp_path / "run", tiny, save_run, tmp_path / "encoder")
    bundle = export_run(run, tmp_path / "bundle", FEW)
    if kind == "idcm":  # the student is a graph of its own, of few operators
        assert bundle.manifest.selector_graph is not None
        assert (bundle.manifest.selector_graph.fused, bundle.manifest.selector_graph.max_length) == ({}, RELATIVE)
    else:
        assert bundle.manifest.aggregator is not None
        assert bundle.manifest.aggregator.kind["name"] == kind
    sample = Collection(SAMPLE)
    names, query = list(sample.documents), next(iter(sample.queries))
    expected = run_ranker(run, sample, bf16=False).rerank(query, names).scores
    documents = [{"title": sample.documents[name].title, "text": sample.documents[name].text} for name in names]
    answer = ask(bundle.path, {"query": sample.queries[query], "documents": documents, "raw_scores": True})
    for result in answer["results"]:
        assert result["relevance_score"] == pytest.approx(expected[names[result["index"]]], abs=1e-3)
    assert len({round(score, 2) for score in expected.values()}) > 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("recipe", "longest"), [("small/keyb-random", 128), ("small/longp", 1024), ("field/deeprank", 256)])
def test_a_recipe_trains_exports_and_serves(
    recipe: str, longest: int, tiny_backbone: Path, toy: Collection, tmp_path: Path
) -> None:
    """Through the commands: a selector, a family in one fused graph, and one whose graph is traced."""
    sets = {
        "backbone": tiny_backbone,
        "mixture": "{}",
        "init": "null",
        "steps": 3,
        "precision": "fp32",
        "evaluate_every": 3,
        "dev_queries": 2,
    }
    sets |= {"optimizer.encoder_lr": 2e-3, "optimizer.head_lr": 2e-2, "negatives.hard": 0, "micro_tokens": 2048}
    if recipe == "small/longp":
        sets["model.pooling"] = "mean"  # of all tokens, so that a single one shows in the score
    run, bundle, collection = tmp_path / "run", tmp_path / "bundle", f"--collection={toy.path}"
    settings = [f"--set={key}={value}" for key, value in sets.items()]
    assert train_main([f"{RECIPES / recipe}.yaml", collection, f"--out={run}", *settings]) == 0
    assert export_main([str(run), f"--out={bundle}", collection, "--precision=fp32", "--provider=cpu", "--depth=2"]) == 0
    assert load_bundle(bundle).manifest.pipeline.packing.budget == longest
    query, names = toy.split("dev")[0], list(toy.documents)[:6]
    expected = run_ranker(run, toy, bf16=False).score(query, names).logits
    assert np.ptp(expected) > 1e-4
    documents = [{"title": toy.document(name).title, "text": toy.document(name).text} for name in names]
    results = ask(bundle, {"query": toy.query(query), "documents": documents, "raw_scores": True})["results"]
    for result in results:
        assert result["relevance_score"] == pytest.approx(float(expected[result["index"]]), abs=1e-3)
    if recipe == "small/longp":
        check_longp(bundle)


def check_longp(bundle: Path) -> None:
    """The encoder has 128 positions, its recipe gives it 1,024, and the service feeds them: the word behind them counts no more."""
    assert load_bundle(bundle).manifest.graph.max_length == 1024
    room = 1024 - 4  # [CLS] river [SEP] ... [SEP]
    texts = ["stone " * 1500, "stone " * (room - 1) + "river " + "stone " * 480, "stone " * room + "river " + "stone " * 479]
    answer = ask(bundle, {"query": "river", "documents": texts, "raw_scores": True})
    assert answer["usage"]["prompt_tokens"] == 3 * 1024
    plain, inside, beyond = (score for _, score in sorted((r["index"], r["relevance_score"]) for r in answer["results"]))
    assert beyond == pytest.approx(plain, abs=1e-6)
    assert abs(inside - plain) > 1e-5


def ask(bundle: Path, body: dict[str, Any]) -> dict[str, Any]:
    settings = Settings(bundle=(bundle,), provider=Provider.CPU, precision=Precision.FP32, threads=1)
    with warm(settings) as client:
        answer = client.post("/rerank", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found
