import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from export.exporter import SAMPLE, export_run
from export.families import export_cross_encoder
from export.importing import import_model
from export.options import ImportOptions, Options
from keyblock import Ranker
from keyblock.bundle import Bundle, load_bundle
from keyblock.description import PipelineConfig
from keyblock.runtime.providers import Provider
from keyblock.text.analyzer import DocumentFrequencies
from tests.support.checkpoints import save_checkpoint
from tests.support.once import once
from training.data.collection import Collection
from training.data.files import write_json
from training.evaluate.ranking import run_ranker
from training.model.aggregators import build_aggregation
from training.model.cross_encoder import CrossEncoder

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Ids, types and mask, shape (rows, length) each."""


def batch(rows: int, length: int, *, padded: bool = True, vocabulary: int = 30522) -> Batch:
    """Rows of drawn tokens, of drawn lengths or all of the whole length."""
    random = np.random.default_rng(length)
    lengths = random.integers(1, length + 1, rows) if padded else np.full(rows, length)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return random.integers(5, vocabulary, (rows, length)) * mask, random.integers(0, 2, (rows, length)), mask


def assert_ranks_alike(bundle: Path, run: Path) -> None:
    """The bundle, through the library, scores the sample's documents as the run does, and tells them apart."""
    sample = Collection(SAMPLE)
    names, trained = list(sample.documents), run_ranker(run, sample, bf16=False)
    with Ranker.open(bundle, provider="cpu", precision="fp32", threads=1) as ranker:
        for query in list(sample.queries)[:2]:
            expected = trained.rerank(query, names).scores
            texts = [{"title": sample.documents[name].title, "text": sample.documents[name].text} for name in names]
            for result in ranker.rank(sample.queries[query], texts, raw_scores=True):
                assert result.relevance_score == pytest.approx(expected[names[result.index]], abs=1e-3)
            assert len({round(score, 2) for score in expected.values()}) > 2


@pytest.fixture(scope="session")
def tiny() -> Callable[..., CrossEncoder]:
    """Makes a random two-layer encoder that reads the backbone's vocabulary; its logits spread over several units."""

    def made(aggregator: dict[str, Any] | None = None, **changes: object) -> CrossEncoder:
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        encoder = BertModel(BertConfig(**{**sizes, **changes}), add_pooling_layer=False)
        for name, parameter in encoder.named_parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.2)
            elif name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.05)
        model = CrossEncoder(encoder, build_aggregation(aggregator, encoder.config.hidden_size) if aggregator else None)
        torch.nn.init.normal_(model.head.weight, std=0.5)
        return model.eval()

    return made


@pytest.fixture(scope="session")
def save_run(backbone: Path, frequencies: DocumentFrequencies) -> Callable[..., Path]:
    """Writes a run as keyblock-train leaves it, but for its log; `parts` are the pipeline's, where it is not the default one."""

    def write(run: Path, model: CrossEncoder, chooser: CrossEncoder | None = None, **parts: Any) -> Path:
        for name, saved in (("checkpoint", model), ("chooser", chooser)):
            if saved is not None:
                (run / name).mkdir(parents=True)
                saved.save(run / name)
        shutil.copy(backbone / "tokenizer.json", run)
        frequencies.write(run / "frequencies.tsv")
        write_json(run / "pipeline.json", PipelineConfig.model_validate(parts).model_dump(mode="json"))
        write_json(run / "provenance.json", {"recipe": {"seed": 7}})
        write_json(run / "quality.json", {"dev": {"any": {"128": {"nDCG@10": 0.5}}}})
        return run

    return write


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The small random checkpoint of a family, see `tests.support.checkpoints`; each is written once."""
    return lambda name: once(tmp_path_factory, f"checkpoints/{name}", lambda place: save_checkpoint(name, place))


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[[str], Path]) -> Callable[[str], Path]:
    """The bundle of such a checkpoint; each is imported once, and compared on few pairs."""
    options = ImportOptions(pairs=24, passage_tokens=128)

    def made(name: str) -> Path:
        return once(tmp_path_factory, f"imported/{name}", lambda place: import_model(str(checkpoint(name)), place, options))

    return made


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, save_run: Callable[..., Path], tiny: Callable[..., CrossEncoder]) -> Path:
    return save_run(tmp_path_factory.mktemp("runs") / "tiny", tiny())


@pytest.fixture(scope="session")
def model(run: Path) -> CrossEncoder:
    return CrossEncoder.load(run / "checkpoint", attention="eager")


@pytest.fixture(scope="session")
def fp32(model: CrossEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fused graph of `model`. Never write to it."""
    return once(tmp_path_factory, "fp32", lambda place: export_cross_encoder(model, place / "model.onnx")) / "model.onnx"


@pytest.fixture(scope="session")
def plain(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle of `run`, measured on the sample. Never write into it."""
    options = Options(collections=[Collection(SAMPLE)], provider=Provider.CPU, queries=3, depth=3)
    return load_bundle(once(tmp_path_factory, "plain", lambda place: export_run(run, place, options)))
