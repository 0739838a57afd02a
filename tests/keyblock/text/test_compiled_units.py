"""Units read by compiled code, against the tokenizer on the whole text: the same tokens, places and terms, whatever the text."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text import compiled
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import CompiledReader, compiled_reader
from keyblock.text.reader import SAMPLE
from keyblock.text.tokenizer import Tokenizer
from tests.compiled import need_compiled
from tests.keyblock.text.test_unit_reader import TEXTS
from tests.keyblock.text.test_words import LONG, assert_alike, cuts, slowly
from tests.keyblock.text.trained_tokenizers import KINDS, LINES, trained

WRITTEN = (
    "don't DON'T 'S 'ſ x'll \u2026 ﬁ ½ Ⅷ ２ ς Σ Å é क़ की กี้ ဗမာ שָׁלוֹם مَ ё 가 각 각 ㍿ ❤\ufe0f 'tis 12345 ¼% a_b _ -- ...".split()
)
GAPS = st.sampled_from([" "] * 8 + ["  ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u3000", "", "", "", ",", "."])
WORDS = st.one_of(st.sampled_from([*WRITTEN, *" ".join(LINES).split()]), st.text(st.characters(codec=None), max_size=6))
MADE = st.lists(st.tuples(GAPS, WORDS)).map(lambda pairs: "".join(gap + word for gap, word in pairs))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained(request.param, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module", params=[{"name": "english"}, {"name": "universal"}, {"language": "de"}])
def analyzer(request: pytest.FixtureRequest) -> Analyzer:
    return Analyzer(AnalyzerConfig(**request.param))


def reader_of(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader:
    need_compiled()
    reader = compiled_reader(tokenizer, analyzer)
    assert reader is not None
    return reader


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader:
    return reader_of(tokenizer, analyzer)


def check(reader: CompiledReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: list[str], blocks: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "LONG_SHARE", 1)  # no text is left to the tokenizer
        for fast, slow in zip(reader.read(texts), slowly(texts, tokenizer, analyzer), strict=True):
            assert fast is not None
            assert_alike(fast, slow, cuts(len(slow.ids), *blocks))


@given(st.lists(st.one_of(TEXTS, MADE), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 6))
@example(["", " ", "a", "a ", " a", "\n", "a\n\n", "  a  "], 1, 1)
@example(["a \u0301b c", "\u0301 a", "a\u0301 b", "a\u00a0\u0301 b"], 1, 1)
@example(["end.\n\nNext one\nline", "(\n)\n a.\r\n\r\nb", "x  \n  y"], 1, 1)
@example(["it's it'ſ IT'S IT'LL it'd've", "'s 's\n's", "x'l y'r"], 1, 1)
@example(["<think> a</think>b c<think>", "a   b  c", "<s> x</s>"], 1, 1)
@example(["ไทย กี้ภาษา คำ", "की हिन्दी\u0301 क\u093c\u0941", "…ﬁ½", "ab\u0338=\u0338"], 1, 1)
@example([" ".join(["a", *LONG, "river"]), LONG[0], " ".join(LONG)], 6, 2)
@example([SAMPLE, SAMPLE.upper(), "東京都" * 30, "한국어" * 700], 6, 2)
def test_any_unicode(
    reader: CompiledReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: list[str], length: int, stride: int
) -> None:
    check(reader, tokenizer, analyzer, texts, (length, stride))


def test_threads(tokenizer: Tokenizer) -> None:
    """Of a new reader, which meets each unit for the first time."""
    analyzer = Analyzer(AnalyzerConfig(name="universal"))
    texts = [" ".join(f"river{i * j % 977} e\u0301{j % 50} 東京{j}" for j in range(200)) for i in range(8)]
    fresh, alone = reader_of(tokenizer, analyzer), reader_of(tokenizer, analyzer)
    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(lambda text: fresh.read([text])[0], texts))
    for found, expected in zip(several, alone.read(texts), strict=True):
        assert found is not None
        assert expected is not None
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.runs.keys, expected.runs.keys)


@pytest.mark.parametrize("language", ["ar", "de", "el", "en", "es", "hi", "ja", "ro", "ru", "th", "tr", "vi", "zh"])
def test_real_documents(reader: CompiledReader, tokenizer: Tokenizer, analyzer: Analyzer, shared_data: Path, language: str) -> None:
    with gzip.open(shared_data / "languages" / language / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus:
        texts = [json.loads(line)["text"][:3000] for line, _ in zip(corpus, range(2), strict=False)]
    check(reader, tokenizer, analyzer, texts, (61, 50))
