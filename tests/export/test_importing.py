"""What keyblock-import makes of a checkpoint: its bundle, and the passages, analyzers and prompts that it takes over."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from export import ExportError
from export.certificate import ALLOWED
from export.checkpoint import BY_ARCHITECTURE, QUESTIONS, question_of, read_checkpoint
from export.exporter import SAMPLE
from export.import_cli import main
from export.import_defaults import (
    CHOICES,
    ENGLISH,
    OTHERS,
    import_analyzer,
    import_frequencies,
    import_pipeline,
    import_tokenizer,
)
from export.importing import import_model, own_name
from export.options import ImportOptions, VariantKind
from keyblock.bundle import BundleError, load_bundle
from keyblock.description import PipelineConfig
from keyblock.fusion import Activation, Fusion
from keyblock.packing import PackingConfig
from keyblock.ranker import Ranker
from keyblock.runtime.providers import Provider, resolve
from keyblock.text.analyzer import AnalyzerConfig
from keyblock.text.tokenizer import Tokenizer
from tests.support.checkpoints import FAMILIES, POSITIONS, save_checkpoint, save_tokenizer, wordpiece

FEW = ImportOptions(pairs=16, provider=Provider.CPU)


def test_the_default_pipeline_is_passages_of_the_models_habit(imported: Callable[[str], Path]) -> None:
    bundle = load_bundle(imported("bert"))
    config = bundle.manifest.pipeline
    assert config.aggregator == {"name": "max", "passages": 3}
    assert config.segmenter["name"] == "structure"
    assert config.packing.grow
    assert (config.packing.budget, config.packing.budget_range[1]) == (128, 512)
    assert config.fusion == Fusion()
    assert config.activation == Activation()
    assert config.analyzer.name == "universal", "the tiny tokenizer spells the words of all languages alike"
    assert bundle.frequencies.n_documents == 0, "the general table is of English documents"
    assert bundle.manifest.provenance["import"]["labels"] == 1
    assert bundle.manifest.quality["import"]["provider"] == resolve(Provider.AUTO).provider


def test_an_unfit_place_is_refused_before_anything_is_done(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a letter", encoding="utf-8")
    with pytest.raises(BundleError, match="is not empty"):
        import_model("no-such-model", tmp_path, FEW)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("folder", "noted", "expected"),
    [
        ("model", "someone/their-reranker", "their-reranker"),
        ("model", "../models/bert", "model"),
        ("models--someone--a-reranker/snapshots/0a1b2c", "", "a-reranker"),
        ("mine", None, "mine"),
    ],
)
def test_a_model_keeps_its_own_name(tmp_path: Path, folder: str, noted: str | None, expected: str) -> None:
    source = tmp_path / folder
    source.mkdir(parents=True)
    (source / "config.json").write_text(json.dumps({} if noted is None else {"_name_or_path": noted}), encoding="utf-8")
    assert own_name(str(source)) == expected
    assert own_name("someone/bge-reranker-base") == "bge-reranker-base"


def test_a_graph_that_says_something_else_leaves_nothing(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.certificate.ALLOWED", 0.0)
    with pytest.raises(ExportError, match=r"the graph's logits differ from transformers' by up to .* over 16 pairs"):
        import_model(str(checkpoint("bert")), tmp_path / "out", FEW)
    assert list(tmp_path.iterdir()) == []


def test_weights_beyond_what_a_file_holds(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.storage.LARGEST", 10_000)
    bundle = import_model(str(checkpoint("xlm-roberta")), tmp_path / "out", FEW)
    assert {"model.onnx", "model.onnx.data"} <= bundle.manifest.files.keys()
    assert (bundle.path / "model.onnx.data").stat().st_size > 50_000
    with Ranker.open(bundle.path, provider="cpu") as ranker:
        ranking = ranker.rank("a bridge", ["The river took the bridge. " * 60, "Bread."], raw_scores=True)
    assert all(np.isfinite(one.relevance_score) for one in ranking)
    with pytest.raises(ExportError, match="the int8 graph has more than 2 GiB, which no variant may have"):
        import_model(str(checkpoint("xlm-roberta")), tmp_path / "int8", replace(FEW, variants=[VariantKind.INT8]))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_fixed_scales_are_for_models_of_our_own(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="int8-static is for models of keyblock-train"):
        import_model(str(checkpoint("bert")), tmp_path / "out", replace(FEW, variants=[VariantKind.INT8_STATIC]))
    assert not (tmp_path / "out").exists()


def test_an_import_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model of two labels, with options of every kind."""
    monkeypatch.setattr(ImportOptions, "pairs", 24)  # which the command would call too few
    source, out = save_checkpoint("bert", tmp_path / "two", labels=2), tmp_path / "out"
    options = (
        "--provider cpu --pairs 24 --joint --activation identity --scale 0.5 --name mine --precision fp16-weights --variant int8"
    )
    capsys.readouterr()
    assert main([str(source), "--out", str(out), *options.split()]) == 0
    said = capsys.readouterr()
    first, second, third = said.out.splitlines()
    assert first.startswith(f"{out}: ")
    assert "Attention" in first
    assert '"pace"' in second
    found = re.fullmatch(
        r"OK: logits differ from transformers' by up to (.*) over 24 pairs \((.*) is allowed where logits span (.*)\)", third
    )
    assert found is not None, third
    difference, limit, span = map(float, found.groups())
    assert difference <= limit == pytest.approx(min(1e-3, 1e-3 * span), rel=0.1)
    steps = [line.removeprefix("keyblock-import: ") for line in said.err.splitlines() if line.startswith("keyblock-import: ")]
    assert steps == [
        f"reading {source}",
        "writing its graph",
        "scoring 24 pairs of a query and a text with transformers",
        "scoring them with the graph",
        *["measuring scores and pace on provider cpu"] * 2,
    ]
    manifest = load_bundle(out).manifest
    assert (manifest.name, manifest.pipeline.aggregator["name"]) == ("mine", "joint")
    assert manifest.pipeline.activation.model_dump() == {"name": "identity", "scale": 0.5}
    assert manifest.provenance["import"]["labels"] == 2
    assert manifest.quality["certificate"]["logits"]["max"] <= ALLOWED
    assert 0 < manifest.quality["import"]["logits"]["max"] < 1, "half of the bytes"
    assert manifest.variants["int8"].quality["logits"]["max"] > 0, "and the loss of the variant is told"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{tmp}/none"], "no such directory"),
        (["{bert}", "--frequencies", "{tmp}/none"], "--frequencies {tmp}/none: "),
        (["{bert}", "--scale", "-1"], "--scale -1: must be a number above 0"),
        (["{bert}", "--scale", "nan"], "--scale nan: must be a number above 0"),
    ],
)
def test_errors_that_a_person_can_mend_are_one_line_and_leave_nothing(
    checkpoint: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    out, given = tmp_path / "out", [argument.format(tmp=tmp_path, bert=checkpoint("bert")) for argument in arguments]
    capsys.readouterr()  # what making the checkpoint may have printed
    assert main([*given, "--out", str(out)]) == 2
    said = capsys.readouterr().err.splitlines()
    *steps, problem = said
    assert steps in (
        [],
        [f"keyblock-import: reading {given[0]}"],
        [f"keyblock-import: reading {given[0]}", "keyblock-import: writing its graph"],
    )
    assert problem.startswith("keyblock-import: ")
    assert expected.format(tmp=tmp_path) in problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--pairs", "10"], "10 pairs prove too little: 384 or more"),
        (["--passages", "0"], "argument --passages: "),
        (["--passage-tokens", "many"], "argument --passage-tokens: "),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["model", "--out", str(tmp_path / "out"), *arguments])
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err


ENGLISH_TERMS = AnalyzerConfig()


def config_of(source: Path, work: Path, options: ImportOptions, analyzer: AnalyzerConfig = ENGLISH_TERMS) -> PipelineConfig:
    checkpoint = read_checkpoint(str(source), options)
    tokenizer = import_tokenizer(checkpoint, work / "tokenizer.json")
    return import_pipeline(checkpoint, tokenizer, import_frequencies(None, analyzer), options, analyzer).config


def packing_of(source: Path, work: Path, options: ImportOptions) -> PackingConfig:
    return config_of(source, work, options).packing


@pytest.mark.parametrize(
    ("name", "passage_tokens", "budget", "budget_range"),
    [
        ("bert", 256, 256, (99, 512)),
        ("bert", 1000, 512, (99, 512)),
        ("bert", 16, 99, (99, 512)),
        ("modernbert-cls", 256, 256, (99, 512)),
        ("modernbert-cls", 4096, 4096, (99, 4096)),  # a long window is used if requested
    ],
)
def test_a_sequence_is_a_passage_of_the_models_habit(
    checkpoint: Callable[[str], Path], tmp_path: Path, name: str, passage_tokens: int, budget: int, budget_range: tuple[int, int]
) -> None:
    packing = packing_of(checkpoint(name), tmp_path, ImportOptions(passage_tokens=passage_tokens))
    assert (packing.budget, packing.budget_range, packing.query_tokens) == (budget, budget_range, 64)


def test_a_prompt_comes_on_top_of_a_passage(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    packing = packing_of(checkpoint("qwen3"), tmp_path, ImportOptions(passage_tokens=200))
    assert packing.budget > 200 + 64 + 50
    assert packing.budget_range[0] < packing.budget <= packing.budget_range[1]


def test_a_window_that_batches_would_be_padded_beyond(tmp_path: Path) -> None:
    """300 positions: sequences of 257 tokens and more would be padded to 384."""
    source = save_checkpoint("bert", tmp_path / "model", max_position_embeddings=300)
    assert packing_of(source, tmp_path, ImportOptions(passage_tokens=300)).budget_range[1] == 256


def test_a_window_without_room_for_a_sentence(tmp_path: Path) -> None:
    source = save_checkpoint("roberta", tmp_path / "model", **{**POSITIONS, "max_position_embeddings": 42})
    with pytest.raises(
        ExportError, match="its window of 40 tokens is too small for a query of 10 tokens and one sentence, which need 46"
    ):
        packing_of(source, tmp_path, ImportOptions())


def test_a_tokenizer_that_marks_no_pairs_and_one_of_another_model(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(checkpoint("bert"), tmp_path / "model"))
    unmarked = wordpiece(FAMILIES["bert"].special)
    unmarked.post_processor = None
    save_tokenizer(unmarked, FAMILIES["bert"], source)
    with pytest.raises(ExportError, match="does not mark a pair of texts"):
        packing_of(source, tmp_path, ImportOptions())
    larger = wordpiece(FAMILIES["bert"].special)
    larger.add_tokens([f"more{i}" for i in range(50)])
    save_tokenizer(larger, FAMILIES["bert"], source)
    with pytest.raises(ExportError, match="they do not belong together"):
        packing_of(source, tmp_path, ImportOptions())


def test_as_many_passages_are_read_as_are_requested_or_blocks_together(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    config = config_of(checkpoint("bert"), tmp_path, ImportOptions(passages=2))
    assert config.aggregator == {"name": "max", "passages": 2}
    config = config_of(checkpoint("bert"), tmp_path, ImportOptions(joint=True))
    assert (config.aggregator["name"], config.segmenter["name"], config.packing.grow) == ("joint", "cogltx", False)


def test_frequencies_of_a_table_and_of_a_collection(tmp_path: Path) -> None:
    """The general table is of English stems, and no other terms get it."""
    assert import_frequencies(None, ENGLISH_TERMS).frequencies["river"] > 1000
    assert len(import_frequencies(None, AnalyzerConfig(name="universal"))) == 0
    counted = import_frequencies(SAMPLE, ENGLISH_TERMS)
    assert counted.n_documents == 6
    counted.write(tmp_path / "mine.tsv")
    assert import_frequencies(tmp_path / "mine.tsv", ENGLISH_TERMS).frequencies == counted.frequencies
    for wrong in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(ExportError, match=f"--frequencies {wrong}: "):
            import_frequencies(wrong, ENGLISH_TERMS)


def test_a_tokenizer_of_english_alone(tokenizer: Tokenizer) -> None:
    assert import_analyzer(None, tokenizer) == AnalyzerConfig()


def test_a_tokenizer_of_several_languages(tmp_path: Path) -> None:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        [ENGLISH, *OTHERS], trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    )
    backend.add_special_tokens(["<s>"])
    start = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", start)])
    backend.save(str(tmp_path / "tokenizer.json"))
    assert import_analyzer(None, Tokenizer(tmp_path / "tokenizer.json")).name == "universal"


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_is_an_analyzer(name: str, tokenizer: Tokenizer) -> None:
    found = import_analyzer(name, tokenizer)
    assert name in (found.name, found.language)


def test_other_languages_get_cuts_of_all_scripts(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    config = config_of(checkpoint("bert"), tmp_path, ImportOptions(), AnalyzerConfig(name="universal"))
    assert (config.segmenter["name"], config.selector["idf"]) == ("structure", "blocks")
    config = config_of(checkpoint("bert"), tmp_path, ImportOptions())
    assert (config.segmenter["name"], config.selector["idf"]) == ("whole_sentences", "documents")


def test_an_architecture_has_its_prompt_and_words() -> None:
    assert question_of(None, "qwen3")[1:] == ("yes", "no")
    assert question_of(None, "qwen2")[1:] == ("1", "0")
    assert question_of("mxbai-rerank-v2", "qwen3", yes="y")[1:] == ("y", "0")
    assert set(BY_ARCHITECTURE.values()) == set(QUESTIONS)
    assert QUESTIONS["qwen3-reranker"].prompt.instructed
    assert not QUESTIONS["mxbai-rerank-v2"].prompt.instructed


def test_a_prompt_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompt.json"
    path.write_text(json.dumps({"pieces": ["Q: {query}\nD: {document}", "\nAnswer:"]}), encoding="utf-8")
    question = question_of(str(path), "llama")
    assert question.prompt.text("a", "b") == ["Q: a\nD: b", "\nAnswer:"]
    assert question[1:] == ("yes", "no")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ('{"pieces": []}', "at least 1 item"),
        ('{"pieces": ["{query}"]}', "{query} once, {document} once"),
        ('{"pieces": ["{query} {document}."]}', "{document} comes last, and ends its piece"),
        ('{"pieces": ["{document}", "{query}"]}', "{document} comes last"),
    ],
)
def test_a_file_without_a_prompt(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "prompt.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ExportError) as error:
        question_of(str(path), "qwen3")
    assert said in str(error.value)


def test_an_architecture_without_a_prompt() -> None:
    with pytest.raises(ExportError, match="no prompt is known for decoders of the architecture llama; give --template"):
        question_of(None, "llama")
