"""What a tokenizer does with single characters."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.characters import CODES, Kind, character_kinds, reads_words, word_characters
from keyblock.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def kinds(tokenizer: Tokenizer) -> NDArray[np.uint8]:
    found = character_kinds(tokenizer.backend)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("characters", "kind"),
    [
        (" \t\n\r\u00a0\u2009\u3000", Kind.SPACE),
        (".,?!_-'\"“”\u2019…«»¿。", Kind.BREAK),
        ("aZ09éßñЖπ€½²", Kind.LETTER),
        ("\x00\x0b\u00ad\u0301\u200b中한İΣς\ud800\ue000\U0001f600", Kind.ODD),
    ],
)
def test_kinds(kinds: NDArray[np.uint8], characters: str, kind: Kind) -> None:
    assert {character: Kind(kinds[ord(character)]).name for character in characters} == dict.fromkeys(characters, kind.name)


def test_pipelines_of_one_tokenizer_share_them(kinds: NDArray[np.uint8], backbone: Path) -> None:
    assert character_kinds(Tokenizer(backbone / "tokenizer.json").backend) is kinds
    assert not kinds.flags.writeable
    cased = character_kinds(changed(backbone, normalizer=normalizers.BertNormalizer(lowercase=False)))
    assert cased is not kinds


def test_term_characters() -> None:
    words, analyzer = word_characters(), Analyzer(AnalyzerConfig(stem=False, stop_words=False))
    assert words.shape == (CODES,)
    assert not words.flags.writeable
    for character in "aé9_Ж中½² .,-€\u0301\uffff\U00010000\ud800\U0001d7ce\U0002a6df\U0010ffff":
        assert words[ord(character)] == (len(analyzer.terms(character)) == 1)
    assert words.sum() == sum(map(str.isalnum, map(chr, range(CODES)))) + len("_")


def changed(backbone: Path, **parts: object) -> Backend:
    backend = Backend.from_file(str(backbone / "tokenizer.json"))
    backend.no_truncation()
    for name, part in parts.items():
        setattr(backend, name, part)
    return backend


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": normalizers.NFKC()},
        {"pre_tokenizer": pre_tokenizers.Metaspace()},
        {"model": models.BPE()},
        {"model": models.WordPiece({"a": 0, "b": 1, "##b": 2}, unk_token="[UNK]")},  # it refuses unknown words
    ],
)
def test_only_a_tokenizer_that_reads_words_has_kinds(backbone: Path, parts: dict[str, object]) -> None:
    assert not reads_words(changed(backbone, **parts))
    assert character_kinds(changed(backbone, **parts)) is None


def test_an_added_token_may_stand_within_words(backbone: Path) -> None:
    backend = changed(backbone)
    assert reads_words(backend)
    backend.add_tokens(["c++"])
    assert not reads_words(backend)


def test_other_words_of_a_cased_tokenizer(backbone: Path) -> None:
    found = character_kinds(changed(backbone, normalizer=normalizers.BertNormalizer(lowercase=False)))
    assert found is not None
    assert (found[ord("é")], found[ord("A")], found[ord(".")]) == (Kind.LETTER, Kind.LETTER, Kind.BREAK)
