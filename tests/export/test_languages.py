"""The analyzer of a model of others."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors, trainers

from export.checkpoint import read_checkpoint
from export.import_defaults import (
    CHOICES,
    ENGLISH,
    OTHERS,
    default_analyzer,
    import_frequencies,
    import_pipeline,
    import_tokenizer,
    named_analyzer,
)
from export.options import ImportOptions
from keyblock.text.analyzer import AnalyzerConfig
from keyblock.text.tokenizer import Tokenizer


def test_a_tokenizer_of_english_alone(tokenizer: Tokenizer) -> None:
    assert default_analyzer(tokenizer) == AnalyzerConfig()


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
    assert default_analyzer(Tokenizer(tmp_path / "tokenizer.json")).name == "universal"


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_is_an_analyzer(name: str) -> None:
    found = named_analyzer(name)
    assert name in (found.name, found.language)


def test_no_table_of_english_stems_for_other_terms() -> None:
    assert len(import_frequencies(None, named_analyzer("universal"))) == 0
    assert import_frequencies(None, named_analyzer("english")).frequencies["river"] > 1000


def test_other_languages_get_cuts_of_all_scripts(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    found = read_checkpoint(str(checkpoint("bert")), ImportOptions())
    tokenizer = import_tokenizer(found, tmp_path / "tokenizer.json")
    universal = named_analyzer("universal")
    config = import_pipeline(found, tokenizer, import_frequencies(None, universal), ImportOptions(), universal).config
    assert (config.segmenter["name"], config.selector["idf"]) == ("structure", "blocks")
    config = import_pipeline(found, tokenizer, import_frequencies(None), ImportOptions()).config
    assert (config.segmenter["name"], config.selector["idf"]) == ("whole_sentences", "documents")
