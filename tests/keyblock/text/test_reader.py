"""Whatever way a text is read, the reading is one and the same."""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.reader import Reader
from keyblock.text.reading import EncodedText
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.words import ReadWords

ANALYZER = Analyzer(AnalyzerConfig())


def test_texts_are_read_in_the_order_given(tokenizer: Tokenizer) -> None:
    texts = ["a river", "x" * 70, "", "a bridge", "中" * 70]
    readings = Reader(tokenizer, ANALYZER).read(texts)
    assert [type(reading) for reading in readings] == [ReadWords, EncodedText, ReadWords, ReadWords, EncodedText]
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
