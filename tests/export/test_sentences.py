"""Bundles with a sentence encoder: what keyblock-encoder writes, what it reads by, and which encoders it refuses."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from export import ExportError
from export.encoder_cli import main
from export.exporter import export_run
from export.options import Options, VariantKind
from export.sentences import HYBRID, write_encoder_bundle, write_understanding_bundle
from keyblock.bundle import Bundle, BundleError, load_bundle, write_bundle
from keyblock.description import PipelineConfig
from keyblock.encoders import Texts as Ranges
from keyblock.ranker import Ranker
from keyblock.runtime.providers import Provider
from tests.support.checkpoints import save_checkpoint
from tests.support.vectors import concept_table
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
