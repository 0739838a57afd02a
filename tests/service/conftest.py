"""A small real bundle (random weights, the backbone's tokenizer, ONNX) and the application that serves it."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from keyblock.bundle import FREQUENCIES_FILE, GRAPH_FILE, TOKENIZER_FILE, GraphEntry, Manifest, load_bundle, write_bundle
from keyblock.pipeline import PipelineConfig
from keyblock.runtime.providers import Precision, Provider
from keyblock.runtime.session import Session
from keyblock.text.frequencies import DocumentFrequencies
from service.app import create_app
from service.engine.instance import Graphs
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.faults import Faulty
from tests.service.kinds import FUSION


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory, backbone: Path, frequencies: DocumentFrequencies) -> Path:
    """A bundle on disk; its model is a tiny BERT whose logits differ between texts."""
    work = tmp_path_factory.mktemp("bundle")
    frequencies.write(work / FREQUENCIES_FILE)
    export_tiny(work / GRAPH_FILE)
    graph = GraphEntry(inputs=dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), "int64"), vocabulary_size=30522)
    manifest = Manifest(name="tiny", pipeline=PipelineConfig(fusion=FUSION), graph=graph, quality={"dev": {"nDCG@10": 0.5}})
    files = {GRAPH_FILE: work / GRAPH_FILE, FREQUENCIES_FILE: work / FREQUENCIES_FILE, TOKENIZER_FILE: backbone / TOKENIZER_FILE}
    return write_bundle(work / "tiny", manifest, files).path


def export_tiny(path: Path) -> None:
    """A CrossEncoder with random weights as ONNX."""
    import torch
    from transformers import BertConfig, BertModel

    from training.models.cross_encoder import CrossEncoder

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(**sizes, attn_implementation="eager")
    model = CrossEncoder(BertModel(config, add_pooling_layer=False)).eval()
    torch.nn.init.normal_(model.head.weight, std=0.5)  # a fresh head's logits would hardly differ
    example = torch.ones((2, 8), dtype=torch.int64)
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    axes = {name: {0: "batch", 1: "length"} for name in inputs} | {"logits": {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the TorchScript exporter is deprecated, and quick
        torch.onnx.export(
            model,
            (example, example, example),
            str(path),
            input_names=inputs,
            output_names=["logits"],
            dynamic_axes=axes,
            dynamo=False,
        )


@pytest.fixture(scope="session")
def settings(bundle_path: Path) -> Settings:
    """Small limits, exact arithmetic."""
    return Settings(
        bundle=(bundle_path,),
        provider=Provider.CPU,
        precision=Precision.FP32,
        threads=2,
        token_cap=1024,
        max_documents=64,
        max_document_chars=3_000_000,
        max_body_bytes=8_000_000,
    )


@pytest.fixture(scope="session")
def client(settings: Settings) -> Iterator[TestClient]:
    """The application, started and warm."""
    with TestClient(create_app(settings)) as client:
        while client.get("/health/ready").status_code != 200:
            assert client.get("/health/live").status_code == 200
        yield client


@pytest.fixture(scope="session")
def ranker(client: TestClient) -> Ranker:
    """What the client's application serves."""
    app: Any = client.app
    served: Ranker = app.state.ranker
    return served


@pytest.fixture(scope="session")
def session(bundle_path: Path) -> Session:
    """The bundle's graph on the CPU, for comparisons and fault injection."""
    return Session(load_bundle(bundle_path).graph_path, Provider.CPU, 1)


@pytest.fixture
def faulty(session: Session) -> Faulty:
    return Faulty(session)


@pytest.fixture
def graphs(faulty: Faulty) -> Graphs:
    return Graphs(faulty)


@pytest.fixture(scope="session")
def bundle_of(tmp_path_factory: pytest.TempPathFactory, backbone: Path, frequencies: DocumentFrequencies) -> Callable[[str], Path]:
    """The bundle of a kind, see `tests.service.kinds`; each is written once."""
    from tests.service.bundles import GraphFiles

    work = tmp_path_factory.mktemp("kinds")
    frequencies.write(work / FREQUENCIES_FILE)
    files = GraphFiles(work)

    def write(kind: str) -> Path:
        path = work / kind
        return path if path.exists() else files.write(path, kind, backbone, work / FREQUENCIES_FILE)

    return write
