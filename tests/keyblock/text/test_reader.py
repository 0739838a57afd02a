"""Whatever way a text is read, the reading is one and the same."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers

from keyblock.text import parts
from keyblock.text import reader as reader_module
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.read_words import ReadWords
from keyblock.text.reader import Reader
from keyblock.text.reading import EncodedText
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import Borders
from tests.keyblock.text.trained_tokenizers import KINDS, trained

ANALYZER = Analyzer(AnalyzerConfig())


def test_texts_are_read_in_the_order_given(tokenizer: Tokenizer) -> None:
    texts = ["a river", "x" * 70, "", "a bridge", "中" * 70]
    readings = Reader(tokenizer, ANALYZER).read(texts)
    assert [type(reading) for reading in readings] == [ReadWords] * 5
    for text, reading in zip(texts, readings, strict=True):
        np.testing.assert_array_equal(reading.ids, tokenizer.ids(text))


def test_other_tokenizers_read_themselves(backbone: Path, tmp_path: Path) -> None:
    backend = Backend.from_file(str(backbone / "tokenizer.json"))
    backend.normalizer = normalizers.NFKC()
    backend.save(str(tmp_path / "tokenizer.json"))
    (reading,) = Reader(Tokenizer(tmp_path / "tokenizer.json"), ANALYZER).read(["a river"])
    assert isinstance(reading, EncodedText)


def test_nothing_to_read(tokenizer: Tokenizer) -> None:
    assert Reader(tokenizer, ANALYZER).read([]) == []


@pytest.mark.parametrize("name", KINDS)
def test_long_texts_are_read_in_steps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 300)
    monkeypatch.setattr(reader_module, "PART", 300)
    tokenizer = trained(name, tmp_path)
    text = "The bridges, naïve ones. \n\n हिन्दी के शब्द\u0301 \u0301 end.\nNext a_b " * 40
    steps: list[int] = []
    (found,) = Reader(tokenizer, ANALYZER).read([text], steps.append)
    (expected,) = tokenizer.encode([text])
    assert found.ids.tolist() == expected.ids
    assert list(zip(*(places.tolist() for places in found.places()), strict=True)) == expected.offsets
    assert len([step for step in steps if step]) > 5
    assert max(steps) <= 300


def test_a_tokenizer_that_is_not_what_it_seems_reads_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained("qwen2", tmp_path)
    assert isinstance(Reader(tokenizer, ANALYZER).read(["a river"])[0], ReadWords)
    monkeypatch.setattr(reader_module, "borders_of", lambda _backend: Borders(breaks_join=False, words_end=False, spaces="\n"))
    assert isinstance(Reader(tokenizer, ANALYZER).read(["a river"])[0], EncodedText), "it reads '.\\n' as one"
