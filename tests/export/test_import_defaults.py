"""What an import takes over: passages, analyzers, prompts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from export import ExportError
from export.checkpoint import BY_ARCHITECTURE, QUESTIONS, question_of, read_checkpoint
from export.exporter import SAMPLE
from export.import_defaults import (
    CHOICES,
    ENGLISH,
    OTHERS,
    import_analyzer,
    import_frequencies,
    import_pipeline,
    import_tokenizer,
)
from export.options import ImportOptions
from keyblock.description import PipelineConfig
from keyblock.packing import PackingConfig
from keyblock.text.analyzer import AnalyzerConfig
from keyblock.text.tokenizer import Tokenizer
from tests.support.checkpoints import FAMILIES, POSITIONS, save_checkpoint, save_tokenizer, wordpiece

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
