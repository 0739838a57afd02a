"""Trained runs of each kind of family, exported and served: HTTP gives the scores of PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from export.exporter import SAMPLE, export_run
from export.options import Options, WeightPrecision
from keyblock.runtime.providers import Precision, Provider
from service.app import create_app
from service.settings import Settings
from training.collections.collection import Collection
from training.declarations import FAMILIES
from training.evaluation.ranking import run_ranker
from training.models.ck import Ck
from training.models.cross_encoder import CrossEncoder
from training.models.families import new_ranker

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


@pytest.mark.parametrize("kind", ["cedr_knrm", "idcm", "tkl"])
def test_scores_through_http_are_those_of_the_run(
    tmp_path: Path, tiny: Callable[..., CrossEncoder], save_run: Callable[..., Path], kind: str
) -> None:
    """Of the sample's documents, which have up to three passages."""
    run = save_kind(kind, tmp_path / "run", tiny, save_run, tmp_path / "encoder")
    bundle = export_run(run, tmp_path / "bundle", FEW)
    sample = Collection(SAMPLE)
    names, query = list(sample.documents), next(iter(sample.queries))
    expected = run_ranker(run, sample, bf16=False).rerank(query, names).scores
    documents = [{"title": sample.documents[name].title, "text": sample.documents[name].text} for name in names]
    settings = Settings(bundle=(bundle.path,), provider=Provider.CPU, precision=Precision.FP32, threads=1)
    with TestClient(create_app(settings)) as client:
        while client.get("/health/ready").status_code != 200:
            assert client.get("/health/live").status_code == 200
        asked = {"query": sample.queries[query], "documents": documents, "raw_scores": True}
        answer = client.post("/rerank", json=asked)
    assert answer.status_code == 200, answer.text
    for result in answer.json()["results"]:
        assert result["relevance_score"] == pytest.approx(expected[names[result["index"]]], abs=1e-3)
    assert len({round(score, 2) for score in expected.values()}) > 2
