"""Stems and stop words of Snowball's languages."""

import pytest
import Stemmer

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.languages import LANGUAGES, Stems, stop_words


@pytest.mark.parametrize(
    ("language", "question", "text"),
    [
        ("de", "der Fluss", "Die Flüsse"),
        ("ru", "река", "о реками"),
        ("es", "búsqueda", "las busquedas"),
        ("tr", "kitap", "KITABI"),
        ("ar", "كتاب", "الكتاب"),
        ("el", "δρόμος", "ΔΡΟΜΟΥΣ"),
    ],
)
def test_forms_of_a_word_meet(language: str, question: str, text: str) -> None:
    analyzer = Analyzer(AnalyzerConfig(language=language))
    assert set(analyzer.terms(question)) & set(analyzer.terms(text))


def test_stop_words_are_dropped_unless_they_are_kept() -> None:
    assert Analyzer(AnalyzerConfig(language="de")).terms("Die Katze und der Hund") == ["katz", "hund"]
    kept = AnalyzerConfig(language="de", stop_words=False, stem=False)
    assert Analyzer(kept).terms("Die Katze und der Hund") == ["die", "katze", "und", "der", "hund"]


def test_turkish_has_two_letters_i() -> None:
    assert Stems("tr", stem=False)("IŞIK") == "isik"
    assert Stems("tr")("İSTANBUL") == Stems("tr")("istanbul")


def test_every_language_has_a_stemmer() -> None:
    assert set(LANGUAGES.values()) == set(Stemmer.algorithms()) - {"porter", "dutch_porter"}
    assert [language for language in LANGUAGES if not stop_words(language)] == ["ne", "sr", "ta", "yi"]
