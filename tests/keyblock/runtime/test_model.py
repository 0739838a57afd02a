from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from keyblock.bundle import GraphEntry, Manifest, write_bundle
from keyblock.description import PipelineConfig
from keyblock.packing import Packed
from keyblock.runtime.aggregator import AggregatorSession
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session, SessionError
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

MakeGraph = Callable[..., Path]


@pytest.fixture
def sequences() -> list[Packed]:
    """Of 3, 6 and 4 tokens 10; the graph's logit is half of their sum, and 1 for each token of the document."""
    return [Packed(np.full(n, 10, np.int32), 2, np.arange(1)) for n in (3, 6, 4)]


def logit(packed: Packed, factor: float = 0.5) -> float:
    """The graph's computation in numpy."""
    return float(factor * packed.ids.sum() + len(packed.ids) - packed.split)


def test_a_ranker_alone_scores_and_chooses(tokenizer: Tokenizer, graph: Path, sequences: list[Packed]) -> None:
    model = GraphModel(tokenizer, Session(graph, "cpu", threads=1))
    assert model.outputs(sequences).tolist() == model.choose(sequences).tolist() == [16, 34, 22]
    with pytest.raises(ValueError, match="has no aggregator"):
        model.combine(np.ones((1, 1, 2), np.float32), np.ones((1, 1), bool))


def test_a_ranker_with_an_aggregator_gives_states_beside_logits(
    tokenizer: Tokenizer, wide_graph: Path, aggregator_graph: Path, sequences: list[Packed]
) -> None:
    model = GraphModel(tokenizer, Session(wide_graph, "cpu", threads=1), AggregatorSession(aggregator_graph))
    np.testing.assert_allclose(model.outputs(sequences), np.outer([16, 34, 22], [1, 1 / 2, 1 / 3]), rtol=1e-6)
    assert model.choose(sequences).tolist() == [16, 34, 22]
    assert model.combine(np.ones((2, 3, 2), np.float32), np.ones((2, 3), bool)).tolist() == [3, 3]


def test_graphs_that_do_not_belong_together(
    tokenizer: Tokenizer, graph: Path, wide_graph: Path, make_aggregator: MakeGraph
) -> None:
    plain, wide = Session(graph, "cpu", threads=1), Session(wide_graph, "cpu", threads=1)
    with pytest.raises(SessionError, match="gives None columns where its aggregator needs 3"):
        GraphModel(tokenizer, plain, AggregatorSession(make_aggregator()))
    with pytest.raises(SessionError, match="gives 3 columns where its aggregator needs None"):
        GraphModel(tokenizer, wide)
    with pytest.raises(SessionError, match="gives 3 columns where its aggregator needs 6"):
        GraphModel(tokenizer, wide, AggregatorSession(make_aggregator(states=("docs", "passages", 5))))


@pytest.mark.skipif("OpenVINOExecutionProvider" not in onnxruntime.get_available_providers(), reason="no OpenVINO is here")
def test_auto_takes_the_next_provider_where_one_cannot_load_the_graph(
    tmp_path: Path,
    backbone: Path,
    frequencies: DocumentFrequencies,
    graph_without_openvino: Path,
    sequences: list[Packed],
    caplog: pytest.LogCaptureFixture,
) -> None:
    frequencies.write(tmp_path / "frequencies.tsv")
    files = {"model.onnx": graph_without_openvino, "tokenizer.json": backbone / "tokenizer.json"}
    files["frequencies.tsv"] = tmp_path / "frequencies.tsv"

    def opened(provider: str, **known: str) -> GraphModel:
        entry = GraphEntry(inputs={"input_ids": "int64"}, vocabulary_size=30522)
        manifest = Manifest(name="fused", pipeline=PipelineConfig(), graph=entry, fails_on=known)
        caplog.clear()
        bundle = write_bundle(tmp_path / "bundle", manifest, files, overwrite=True)
        return GraphModel.open(bundle, provider, threads=1, precision="fp32")

    model = opened("auto")
    assert model.session.choice.provider is Provider.CPU
    assert model.outputs(sequences).tolist() == [16, 34, 22]
    (said,) = caplog.messages
    assert said.startswith("auto takes cpu instead of openvino: ")
    assert said.endswith("Expected output number of SkipLayerNormalization node is 4 while the implementation provides 1 outputs")
    assert "no openvino: it cannot load the graph (Expected output number" in model.session.choice.why
    assert model.session.choice.why.endswith("; cpu in fp32")

    noted = opened("auto", openvino=onnxruntime.__version__)
    assert noted.session.choice.provider is Provider.CPU
    assert f"no openvino: ONNX Runtime {onnxruntime.__version__} could not load the graph when" in noted.session.choice.why
    assert not caplog.messages, "what the import found out is no news"

    opened("auto", openvino="1.0.0")
    assert len(caplog.messages) == 1, "another version is tried"
    with pytest.raises(SessionError, match=r"cannot load it on openvino: .* provides 1 outputs; ask for provider auto$"):
        opened("openvino", openvino=onnxruntime.__version__)
