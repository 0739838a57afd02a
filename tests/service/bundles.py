"""Bundles of every kind, of small random models: the graphs are as keyblock-export writes them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

from export.families import export_aggregator, export_cross_encoder
from export.graph import output_name
from keyblock.bundle import (
    AGGREGATOR_FILE,
    FREQUENCIES_FILE,
    GRAPH_FILE,
    SELECTOR_FILE,
    TOKENIZER_FILE,
    AggregatorEntry,
    GraphEntry,
    Manifest,
    write_bundle,
)
from keyblock.description import PipelineConfig
from keyblock.encoders import Static, TokenTable
from keyblock.runtime.session import INPUTS
from tests.service.kinds import CHOOSERS, FUSION, KINDS, TRANSFORMER
from training.model.aggregators import build_aggregation
from training.model.cross_encoder import CrossEncoder

HIDDEN, VOCABULARY = 32, 30522


def tiny(seed: int, *, states: bool) -> CrossEncoder:
    """A random encoder whose logits are units apart from text to text, with an aggregator where it gives states."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    encoder = BertModel(BertConfig(**sizes, attn_implementation="eager"), add_pooling_layer=False)
    model = CrossEncoder(encoder, build_aggregation(TRANSFORMER, HIDDEN) if states else None)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    torch.nn.init.normal_(model.head.weight, std=0.5)
    return model.eval()


class GraphFiles:
    """The ONNX files that the kinds share, in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models = {"ranker": tiny(1, states=False), "chooser": tiny(2, states=False), "states": tiny(3, states=True)}
        for name, model in self.models.items():
            export_cross_encoder(model, self.file(name))
        export_aggregator(self.models["states"], self.file("aggregator"))
        self.table = folder / Static.carried_as
        rng = np.random.default_rng(0)
        rows, scales = rng.integers(-127, 128, (VOCABULARY, 8), dtype=np.int8), rng.uniform(0.001, 0.01, VOCABULARY)
        TokenTable(rows, scales.astype(np.float32)).write(self.table)

    def file(self, name: str) -> Path:
        """Of one graph."""
        return self.folder / f"{name}.onnx"

    def _entry(self, name: str, file: str) -> GraphEntry:
        inputs = dict.fromkeys(INPUTS, "int64")
        return GraphEntry(file=file, inputs=inputs, output=output_name(self.models[name]), vocabulary_size=VOCABULARY)

    def write(self, path: Path, kind: str, backbone: Path, frequencies: Path) -> Path:
        """Write the bundle of a kind."""
        config = PipelineConfig(**KINDS[kind], fusion=FUSION)
        ranker = "states" if config.aggregator["name"] == "states" else "ranker"
        files = {GRAPH_FILE: self.file(ranker), FREQUENCIES_FILE: frequencies, TOKENIZER_FILE: backbone / TOKENIZER_FILE}
        if config.encoder:
            files[config.encoder["file"]] = self.table
        entries: dict[str, Any] = {"graph": self._entry(ranker, GRAPH_FILE)}
        if ranker == "states":
            files[AGGREGATOR_FILE] = self.file("aggregator")
            entries["aggregator"] = AggregatorEntry(hidden=HIDDEN, kind=TRANSFORMER)
        if kind in CHOOSERS:
            files[SELECTOR_FILE] = self.file("chooser")
            entries["selector_graph"] = self._entry("chooser", SELECTOR_FILE)
        return write_bundle(path, Manifest(name=kind, pipeline=config, **entries), files).path
