"""A tiny bundle that marks, and what travels of it: every part runs on these on the CPU."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

import benchmarks.gpu.bench
from benchmarks.gpu import engines, service
from benchmarks.gpu.bench import Bench, Sizes
from benchmarks.gpu.driver import Driver
from benchmarks.gpu.prepare import prepare
from benchmarks.gpu.record import Setup
from benchmarks.gpu.shapes import Shape
from export.exporter import graph_entry
from export.graphs import export_graph_of
from export.options import WeightPrecision
from keyblock.bundle import FREQUENCIES_FILE, GRAPH_FILE, TOKENIZER_FILE, Manifest, write_bundle
from keyblock.description import PipelineConfig
from keyblock.runtime.providers import Provider
from keyblock.text.frequencies import DocumentFrequencies
from tests.support.once import once
from training.model.cross_encoder import CrossEncoder, Marker

TINY = Shape("tiny", "Tiny", 2, 32, 2, 64, 2000)
TINY_ROBERTA = Shape("tiny-roberta", "Tiny RoBERTa", 2, 32, 2, 64, 3000, roberta=True)
SIZES = Sizes("tiny", (16, 32), (1, 3), 0.002, (32, 64), 1 << 16, 12, 3, 60, 2, (1, 2), 1)
SETUP: Setup = {"device": "a CPU", "provider": "cpu", "sizes": "tiny"}
BUDGET = {"packing": {"budget": 64, "budget_range": (64, 64)}}


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, backbone: Path, frequencies: DocumentFrequencies) -> Path:
    """Its graph has half weights, its last layer [CLS] alone, and a head that marks tokens, as the embedded one's."""

    def write(work: Path) -> None:
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        model = CrossEncoder(BertModel(BertConfig(**sizes), add_pooling_layer=False), marker=Marker(32, 8))
        torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)
        torch.nn.init.normal_(model.head.weight, std=0.5)
        model.save(work / "checkpoint")
        loaded = CrossEncoder.load(work / "checkpoint", attention="eager")
        graphs = export_graph_of(loaded, work / "plain").served(work / "served", WeightPrecision.FP16)
        frequencies.write(work / FREQUENCIES_FILE)
        entry = graph_entry(loaded, WeightPrecision.FP16.value, GRAPH_FILE, graphs)
        recipe = {"backbone": str(work / "checkpoint"), "model": {"name": "cross_encoder", "marks": 8}}
        manifest = Manifest(name="tiny", pipeline=PipelineConfig(**BUDGET), graph=entry, provenance={"recipe": recipe})
        files = {FREQUENCIES_FILE: work / FREQUENCIES_FILE, TOKENIZER_FILE: backbone / TOKENIZER_FILE}
        write_bundle(work / "bundle", manifest, files | {GRAPH_FILE: graphs.folder / GRAPH_FILE})

    return once(tmp_path_factory, "gpu-bundle", write) / "bundle"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Path:
    """What travels of it, and of two tiny shapes."""
    shapes = (TINY, TINY_ROBERTA)
    return once(tmp_path_factory, "gpu-prepared", lambda work: prepare(work, bundle, None, SIZES.sequences, shapes))


@pytest.fixture
def bench(bundle: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """On one thread of the CPU, with no driver to ask."""
    for module in (benchmarks.gpu.bench, engines, service):
        monkeypatch.setattr(module, "default_threads", lambda: 1)
    return Bench(Provider.CPU, SIZES, prepared, tmp_path / "home", bundle, Driver(Nothing()))


class Nothing:
    """A driver that tells nothing."""

    class NVMLError(Exception):
        """See pynvml."""

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802  # its name in NVML
        return number

    def __getattr__(self, name: str) -> object:
        def refuse(*_: object) -> None:
            raise self.NVMLError(name)

        return refuse
