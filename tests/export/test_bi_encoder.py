"""The bi-encoder as a graph, and as a bundle that ranks as its run does."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export import ExportError
from export.exporter import SAMPLE, export_run
from export.families import export_bi_encoder
from export.graph import fused_nodes
from export.options import Options, WeightPrecision
from export.sentences import write_encoder_bundle
from keyblock.bundle import Bundle
from keyblock.ranker import Ranker
from keyblock.runtime.batching import score_all
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from tests.export.ranking import assert_ranks_alike
from tests.support.checkpoints import save_checkpoint
from tests.training.models.test_bi_encoder import FAMILY, packed
from training.data.collection import Collection
from training.model.bi_encoder import BiEncoder
from training.model.families import new_ranker

SENTENCES = {
    "segmenter": {"name": "single_sentences", "block_tokens": 30},
    "selector": {"name": "first"},
    "aggregator": {"name": "term_weighted", "passages": 4},
    "packing": {"budget": 96, "budget_range": (64, 128), "title_tokens": 0},
}


@pytest.fixture(scope="module")
def bi_encoder(tmp_path_factory: pytest.TempPathFactory) -> BiEncoder:
    """Random weights, large enough to tell texts apart; it reads the backbone's vocabulary."""
    folder = save_checkpoint("bert", tmp_path_factory.mktemp("bert"), vocab_size=30522)
    model = new_ranker(FAMILY, str(folder), attention="eager")
    assert isinstance(model, BiEncoder)
    torch.manual_seed(0)
    torch.nn.init.normal_(model.encoder.embeddings.word_embeddings.weight)
    return model.eval()


@pytest.fixture(scope="module")
def exported(bi_encoder: BiEncoder, save_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    """A run that takes the weighted mean over FIRST+TERMF, and its bundle."""
    folder = tmp_path_factory.mktemp("exported")
    run = save_run(folder / "run", bi_encoder, **SENTENCES)
    options = Options(precision=WeightPrecision.FP32, provider=Provider.CPU, queries=3, depth=3)
    return run, export_run(run, folder / "bundle", options)


def test_the_graph_says_what_the_model_says(bi_encoder: BiEncoder, tmp_path: Path) -> None:
    """Of batches of any shape, the same query in many rows or in few; both encodings are fused, and share their weights."""
    export_bi_encoder(bi_encoder, tmp_path / "model.onnx")
    graph = onnx.load(str(tmp_path / "model.onnx"))
    fused, layers = fused_nodes(graph), bi_encoder.encoder.config.num_hidden_layers
    assert (fused["EmbedLayerNormalization"], fused["Attention"]) == (2, 2 * layers)
    assert sum(list(tensor.dims) == [30522, 32] for tensor in graph.graph.initializer) == 1
    session, rng = Session(tmp_path / "model.onnx", "cpu"), np.random.default_rng(0)
    for count in (1, 2, 7):
        texts = [rng.integers(1000, 9000, rng.integers(1, 30)).tolist() for _ in range(count + 3)]
        sequences = [packed(texts[number % 3], text) for number, text in enumerate(texts[3:])]
        with torch.inference_mode():
            expected = bi_encoder(*bi_encoder.inputs(sequences, 0)).numpy()
        np.testing.assert_allclose(score_all(session, sequences), expected, atol=1e-3)
        assert np.ptp(expected) > 0.1 or count == 1


def test_a_run_of_sentences_is_served_as_it_was_measured(exported: tuple[Path, Bundle]) -> None:
    run, bundle = exported
    assert_ranks_alike(bundle.path, run)


def test_an_encoder_of_one_type_of_segment_is_refused(tmp_path: Path) -> None:
    model = new_ranker(FAMILY, str(save_checkpoint("roberta", tmp_path)), attention="eager")
    assert isinstance(model, BiEncoder)
    with pytest.raises(ExportError, match="a bi_encoder on roberta has one type of segment"):
        export_bi_encoder(model, tmp_path / "model.onnx")


def test_vectors_that_are_stored_score_as_the_graph_does(
    bi_encoder: BiEncoder, exported: tuple[Path, Bundle], tmp_path: Path
) -> None:
    """The same sentences, the same weighted mean: cosines differ by what halved weights and 8 bits of a vector cost."""
    (run, read), sample = exported, Collection(SAMPLE)
    stored = write_encoder_bundle(read, str(run), tmp_path / "stored", SENTENCES["selector"], bi_encoder.scale)
    assert sorted(stored.manifest.files) == ["frequencies.tsv", "sentence_encoder.onnx", "tokenizer.json"]
    texts = [document.text for document in sample.documents.values()]
    with Ranker.open(read, provider="cpu") as reading, Ranker.open(stored) as comparing:
        for query in list(sample.queries.values())[:4]:
            expected, found = (ranker.rank(query, texts, raw_scores=True) for ranker in (reading, comparing))
            scores = {result.index: result.relevance_score / bi_encoder.scale for result in expected}
            assert {one.index: one.relevance_score / bi_encoder.scale for one in found} == pytest.approx(scores, abs=1e-2)
            assert np.ptp(list(scores.values())) > 0.05
            assert found.total_tokens == 0 < expected.total_tokens
            blocks = [{(b.start, b.end) for b in one.blocks} for one in sorted(found, key=lambda one: one.index)]
            assert blocks == [{(b.start, b.end) for b in one.blocks} for one in sorted(expected, key=lambda one: one.index)]
