"""Scripts of characters and of texts."""

import pytest

from keyblock.text.alphabets import Alphabets, TrainedOn, script_of
from keyblock.text.tokenizer import Tokenizer


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
