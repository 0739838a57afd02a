"""Sentence encoders: what keyblock-encoder writes and refuses; bi-encoders as graphs, and as bundles that rank as their runs do."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export import ExportError
from export.encoder_cli import main
from export.exporter import SAMPLE, export_run
from export.families import export_bi_encoder
from export.graph import fused_nodes
from export.options import Options, VariantKind, WeightPrecision
from export.sentences import HYBRID, write_encoder_bundle, write_understanding_bundle
from keyblock.bundle import Bundle, BundleError, load_bundle, write_bundle
from keyblock.description import PipelineConfig
from keyblock.encoders import Texts as Ranges
from keyblock.ranker import Ranker
from keyblock.runtime.batching import score_all
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from tests.export.conftest import assert_ranks_alike
from tests.support.checkpoints import save_checkpoint
from tests.support.vectors import concept_table
from tests.training.models.test_bi_encoder import FAMILY, packed
from training.data.collection import Collection
from training.model.bi_encoder import BiEncoder, Texts
from training.model.cross_encoder import CrossEncoder
from training.model.families import new_ranker
from training.model.sentence_encoder import SentenceEncoder

EMBEDDED = Path(__file__).resolve().parent.parent.parent / "models" / "default"
FILLER = "The train to the coast leaves from platform {0}, and its restaurant car serves soup number {0} and coffee. "
ANSWER = "In case of sickness, notify your supervisor before the shift begins. "


def encoder(model: Path, out: Path, *options: str) -> Bundle:
    """The copy that keyblock-encoder writes of the embedded bundle."""
    assert main([str(model), "--bundle", str(EMBEDDED), "--out", str(out), *options]) == 0
    return load_bundle(out)


@pytest.fixture(scope="module")
def embedded() -> Bundle:
    return load_bundle(EMBEDDED)


@pytest.fixture(scope="module")
def understanding(backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return encoder(backbone, tmp_path_factory.mktemp("understanding") / "bundle", "--meaning", "2")


@pytest.fixture
def small(backbone: Path, tmp_path: Path) -> Path:
    """An encoder of random weights that reads the backbone's tokens."""
    folder = save_checkpoint("bert", tmp_path / "small", vocab_size=30522)
    shutil.copy(backbone / "tokenizer.json", folder)
    return folder


def test_a_bundle_that_scores_by_its_vectors(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No ranker is left, nor what was learned with it; a text that says the same as the query is first."""
    scoring = encoder(small, tmp_path / "out", "--scale", "20")
    assert "keyblock-calibrate" not in capsys.readouterr().err
    assert (scoring.manifest.graph, scoring.manifest.variants, scoring.manifest.quality) == (None, {}, {})
    with Ranker.open(scoring) as ranker:
        ranking = ranker.rank(ANSWER, [FILLER.format(1), ANSWER], raw_scores=True)
    assert [result.index for result in ranking] == [1, 0]
    assert ranking[0].relevance_score == pytest.approx(20, abs=0.5)


def test_a_bundle_is_copied_with_the_requested_selector(
    small: Path, embedded: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table that is not used any more is left out."""
    copied = encoder(small, tmp_path / "out", "--selector", "vectors").manifest
    said = capsys.readouterr()
    assert "with the encoder" in said.out
    assert said.err.endswith("keyblock-calibrate --bundle learns it anew\n")
    assert copied.pipeline.selector["name"] == "vectors"
    assert copied.pipeline.encoder == {"name": "sentence", "file": "sentence_encoder.onnx"}
    assert embedded.manifest.files.keys() - copied.files.keys() == {"token_vectors.npz"}
    assert copied.files["model.onnx"] == embedded.manifest.files["model.onnx"]


def test_an_encoder_of_other_tokens_is_refused(backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, as a selector that is no YAML is."""
    other = Path(shutil.copytree(backbone, tmp_path / "other"))
    file = other / "tokenizer.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"zoo":', '"zooo":'), encoding="utf-8")
    asked = [str(other), "--bundle", str(EMBEDDED), "--out", str(tmp_path / "out")]
    assert main(asked) == 2
    assert re.fullmatch(r"keyblock-encoder: .*an encoder must have the ranker's vocabulary\n", capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main([*asked, "--selector", "{"])
    assert "'{' cannot be read as YAML" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_taken_is_refused_before_the_work(embedded: Bundle, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BundleError, match="is not empty"):
        write_encoder_bundle(embedded, "none", tmp_path)


def test_a_run_of_a_bi_encoder_is_an_encoder(embedded: Bundle, save_run: Callable[..., Path], tmp_path: Path) -> None:
    """Its vectors choose blocks, whatever it was trained on; a cross-encoder's would mean nothing."""
    folder = save_checkpoint("bert", tmp_path / "backbone", vocab_size=30522)
    model = new_ranker({"name": "bi_encoder"}, str(folder)).eval()
    assert isinstance(model, BiEncoder)
    encoded = write_encoder_bundle(embedded, str(save_run(tmp_path / "run", model)), tmp_path / "bundle")
    assert HYBRID.items() <= encoded.manifest.pipeline.selector.items()
    document = load_bundle(encoded.path).pipeline.prepare_document("A river.")
    assert document.vectors is not None
    inside = [101, *document.token_ids.tolist(), 102]
    with torch.inference_mode():
        (vector,) = model.vectors(Texts(torch.tensor([inside]), torch.ones(1, len(inside), dtype=torch.long))).numpy()
    np.testing.assert_allclose(document.vectors[0] / 127, vector, atol=0.01)
    ranker = CrossEncoder.from_backbone(str(folder))
    with pytest.raises(ExportError, match="holds a cross_encoder, whose vectors mean nothing"):
        write_encoder_bundle(embedded, str(save_run(tmp_path / "other", ranker)), tmp_path / "none")


def test_an_encoder_of_8_bits_understands_what_is_stored(understanding: Bundle, embedded: Bundle) -> None:
    """The selector stays; its graph holds no token embeddings, which it reads from the ranker's file."""
    assert understanding.pipeline.config.selector == embedded.pipeline.config.selector
    assert understanding.manifest.files["sentence_encoder.onnx"].bytes < 12_000_000
    understander = understanding.pipeline.understanding
    assert understander is not None
    text = "".join(FILLER.format(number) for number in range(20)) + ANSWER + "".join(FILLER.format(n) for n in range(20, 40))
    document = understander.read(understanding.pipeline.prepare_document(text))
    query = understanding.pipeline.prepare_query("Whom must I tell if I cannot come because I have a cold?")
    best = understanding.pipeline.select(query, document).taken[0]
    assert "sickness" in text[document.starts[best] : document.ends[best]]


def test_its_vectors_are_nearly_those_of_the_whole_encoder(understanding: Bundle, backbone: Path) -> None:
    understander = understanding.pipeline.understanding
    assert understander is not None
    document = understanding.pipeline.prepare_document("".join(FILLER.format(number) for number in range(9)) + ANSWER)
    blocks = [[101, *document.token_ids[start:end].tolist(), 102] for start, end in document.bounds]
    whole = SentenceEncoder(str(backbone)).encode(blocks)
    (found,) = understander.encoder.encode([Ranges(document.token_ids, document.bounds)])
    assert (found * whole).sum(axis=1).min() > 0.95


def test_an_export_with_another_variant_keeps_it(run: Path, plain: Bundle, tmp_path: Path) -> None:
    """Of a small bundle, whose own ranker is the encoder."""
    small = Path(shutil.copytree(run / "checkpoint", tmp_path / "small"))
    shutil.copy(run / "tokenizer.json", small)
    concept_table(plain.tokenizer).write(tmp_path / "token_vectors.npz")
    parts = {"selector": {"name": "hybrid"}, "encoder": {"name": "static", "file": "token_vectors.npz"}}
    hybrid = PipelineConfig.model_validate(plain.pipeline.config.model_dump() | parts)
    about = plain.manifest.model_copy(update={"pipeline": hybrid, "provenance": {"recipe": {"backbone": str(small)}}})
    files = {name: plain.path / name for name in plain.manifest.files} | {"token_vectors.npz": tmp_path / "token_vectors.npz"}
    given = write_bundle(tmp_path / "given", about, files)
    understanding = write_understanding_bundle(given, str(small), tmp_path / "understanding", weight=2.0)
    options = Options(variants=[VariantKind.FP16], queries=2, depth=2, provider=Provider.CPU)
    again = export_run(understanding.path, tmp_path / "again", options)
    assert again.manifest.files["sentence_encoder.onnx"] == understanding.manifest.files["sentence_encoder.onnx"]
    assert again.manifest.files["model.fp16.onnx"].bytes < 200_000, "the matrices are those of the ranker's own graph"


def test_an_encoder_of_another_width_cannot_read_the_rankers_embeddings(embedded: Bundle, small: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"has token embeddings of shape \(30522, 32\), and the ranker of \(30522, 384\)"):
        write_understanding_bundle(embedded, str(small), tmp_path / "out", weight=1.0)


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
