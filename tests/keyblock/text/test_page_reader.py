"""What readers of words and of units have in common: which texts they leave, and what they keep of their neighbours."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keyblock.text import page_reader
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.characters import character_kinds
from keyblock.text.page_reader import PageReader
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.unit_reader import UnitReader
from keyblock.text.units import borders_of
from keyblock.text.words import WordReader
from tests.keyblock.text.trained_tokenizers import trained

ANALYZER = Analyzer(AnalyzerConfig())


@pytest.fixture(params=["words", "units"])
def reader(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path: Path) -> PageReader:
    def words() -> PageReader:
        kinds = character_kinds(tokenizer.backend)
        assert kinds is not None
        return WordReader(tokenizer, ANALYZER, kinds)

    def units() -> PageReader:
        other = trained("xlm-roberta", tmp_path)
        borders = borders_of(other.backend)
        assert borders is not None
        return UnitReader(other, ANALYZER, borders)

    makers: dict[str, Callable[[], PageReader]] = {"words": words, "units": units}
    return makers[request.param]()


def test_texts_of_long_words_are_left(reader: PageReader, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a river", f"{'x' * 70} a", f"{'x' * 70} {'a ' * 80}"]
    assert [reading is not None for reading in reader.read(texts)] == [True, False, True]
    monkeypatch.setattr(page_reader, "HUGE", 69)
    assert [reading is not None for reading in reader.read(texts)] == [True, False, False]


def test_a_text_between_others_is_read_as_alone(reader: PageReader) -> None:
    texts = ["a river", "", "and the bridge\n", "x" * 99, "of stone"]
    for text, among in zip(texts, reader.read(texts), strict=True):
        (alone,) = reader.read([text])
        assert (among is None) == (alone is None)
        if among is not None and alone is not None:
            np.testing.assert_array_equal(among.ids, alone.ids)
            np.testing.assert_array_equal(np.stack(among.places()), np.stack(alone.places()))
            assert among.ids.base is None, "prepared documents are cached by their own size"


def test_terms_are_those_of_the_analyzer(reader: PageReader) -> None:
    text = "The river's bridges, and a_stone"
    (found,) = reader.read([text])
    assert found is not None
    terms = found.terms(np.asarray([0, 4], np.int32), np.asarray([len(text), 9], np.int32))
    assert terms.keys.tolist() == [*ANALYZER.keys(text), *ANALYZER.keys("river")]
    assert terms.bounds.tolist() == [0, len(ANALYZER.keys(text)), len(ANALYZER.keys(text)) + 1]
