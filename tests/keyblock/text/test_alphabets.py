"""Scripts of characters and of texts."""

from pathlib import Path

import pytest

from keyblock.text.alphabets import Alphabets, TrainedOn, _kind, _surfaces, script_of
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.trained_tokenizers import KINDS, trained


@pytest.fixture(scope="module")
def english(tokenizer: Tokenizer) -> Alphabets:
    return Alphabets(tokenizer, TrainedOn(languages=("en",), scripts=("latin",)))


def test_scripts_of_characters() -> None:
    characters = "aéЖαعאह\u093f漢かカ한ไ1.\u0301ªʰ"
    expected = "latin latin cyrillic greek arabic hebrew devanagari devanagari han hiragana katakana hangul thai"
    assert [script_of(character) for character in characters] == [*expected.split(), None, None, None, None, None]


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("The river runs through Köln.", False),
        ("Der Fluss fließt durch Köln.", False),
        ("Река течёт через Кёльн.", True),
        ("東京は日本の首都。", True),
        ("यह एक नदी है।", True),
        ("กรุงเทพมหานครเป็นเมืองหลวง และ", True),
        ("The angle π in 東京 is 3.14 for the whole river", False),
        ("π", False),
        ("2024-01-01: 100 %", False),
        ("", False),
    ],
)
def test_texts(tokenizer: Tokenizer, english: Alphabets, text: str, foreign: bool) -> None:
    assert english.foreign(tokenizer.ids(text)) is foreign


def test_what_was_learned_is_not_foreign(tokenizer: Tokenizer) -> None:
    both = Alphabets(tokenizer, TrainedOn(languages=("en", "ru"), scripts=("latin", "cyrillic")))
    assert not both.foreign(tokenizer.ids("Река течёт через Кёльн."))
    assert both.foreign(tokenizer.ids("東京は日本の首都。"))


@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_of_the_script_that_they_decode_to(name: str, tmp_path: Path) -> None:
    tokenizer, scripts = trained(name, tmp_path), frozenset({"latin"})
    ids = sorted(tokenizer.backend.get_vocab().values())
    decoded = tokenizer.backend.decode_batch([[token] for token in ids], skip_special_tokens=False)
    surfaces = _surfaces(tokenizer)
    assert [_kind(surfaces[token], scripts) for token in ids] == [_kind(surface, scripts) for surface in decoded]
