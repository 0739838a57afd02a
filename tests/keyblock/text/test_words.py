"""Reading word by word, against the tokenizer and the analyzer on the whole text."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text import page_reader
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.characters import character_kinds
from keyblock.text.hashing import LONGEST
from keyblock.text.page_reader import PageReader
from keyblock.text.reading import EncodedText, Reading
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.words import WordReader

SPELT = "aábcdXYZ019 .,!?-_'\"“”\n\t\u00a0éœßЖ\u03a3\u03c3\u03c2İ\u0131ǅ€½中한日\u0301\u200d\u00ad\x00\x0b\u3000\ud800\U0001f600"
SIGMA = "\u0391\u03a3"  # its lower case depends on what follows
PIECES = """the Riverbanks a_b _ 5€ don't U.S.A. naïve e\u0301te 中文 한글 — unaffable a\u200bon हिन्दी ไทย ½ ｶﾞ l'eau""".split()
LONG = [
    "x" * 70,
    "river" * 21,
    "中" * 70,
    "the\u0301" * 20,
    "a_" * 40,
    "_" * 70,
    "\x00" * 70,
    f"{'x' * 64}_b",
    f"\u200b{'the' * 22}",
]
TEXTS = st.one_of(
    st.text(SPELT),
    st.text(st.characters(codec=None)),
    st.lists(st.sampled_from([*PIECES, SIGMA, f"{SIGMA}'\u0391", "\n", *LONG])).map(" ".join),
)


@pytest.fixture(scope="module", params=["english", "universal"])
def analyzer(request: pytest.FixtureRequest) -> Analyzer:
    return Analyzer(AnalyzerConfig(name=request.param))


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer, analyzer: Analyzer) -> WordReader:
    kinds = character_kinds(tokenizer.backend)
    assert kinds is not None
    return WordReader(tokenizer, analyzer, kinds)


def slowly(texts: Sequence[str], tokenizer: Tokenizer, analyzer: Analyzer) -> list[Reading]:
    return [EncodedText(text, encoding, analyzer) for text, encoding in zip(texts, tokenizer.encode(texts), strict=True)]


def assert_alike(fast: Reading, slow: Reading, blocks: Sequence[tuple[int, int]]) -> None:
    np.testing.assert_array_equal(fast.ids, slow.ids)
    bounds = np.asarray(blocks, dtype=np.int32).reshape(-1, 2)
    places, expected = fast.offsets(bounds), slow.offsets(bounds)
    for found in (*zip(places, expected, strict=True), *zip(fast.terms(*expected), slow.terms(*expected), strict=True)):
        np.testing.assert_array_equal(*found)
        assert found[0].dtype == found[1].dtype


def cuts(n_tokens: int, length: int, stride: int) -> list[tuple[int, int]]:
    return [(start, min(start + length, n_tokens)) for start in range(0, n_tokens, stride)]


def assert_read_as_the_tokenizer_does(
    reader: PageReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: list[str], blocks: tuple[int, int]
) -> None:
    """Whatever is cut into blocks of a length, one each stride."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_reader, "LONG_SHARE", 1)  # no text is left to the tokenizer
        for fast, slow in zip(reader.read(texts), slowly(texts, tokenizer, analyzer), strict=True):
            assert fast is not None
            assert_alike(fast, slow, cuts(len(slow.ids), *blocks))


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 6))
@example(["", " ", "a"], 1, 1)
@example(["!\u0301 \u0301! a\u0301\u0301b \u0301"], 1, 1)
@example(["a_b_c __ _a 5€5 €"], 1, 1)
@example([f"{SIGMA}'\u0391 {SIGMA} \u03a3'", "\u03a3"], 2, 1)
@example(["a\u200bon", "\u0385\u0130he", "\x00 \u200bthe\u200bthe"], 1, 1)
@example([" ".join(["a", *LONG, "river"]), LONG[0], "", " ".join(LONG)], 6, 2)
def test_any_unicode(
    reader: WordReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: list[str], length: int, stride: int
) -> None:
    assert_read_as_the_tokenizer_does(reader, tokenizer, analyzer, texts, (length, stride))


def test_blocks_around_long_runs(reader: WordReader, tokenizer: Tokenizer, analyzer: Analyzer) -> None:
    text = "A river. " * 100 + " the river ".join(LONG[:3])
    (fast,), (slow,) = reader.read([text]), slowly([text], tokenizer, analyzer)
    assert fast is not None
    for length, stride in ((3, 1), (40, 7), (1000, 1000)):
        assert_alike(fast, slow, cuts(len(slow.ids), length, stride))


def test_a_text_that_is_mostly_long_words_is_left_to_the_tokenizer(reader: WordReader) -> None:
    texts = ["plain", "x" * LONGEST, "x" * (LONGEST + 1), "中" * 70, "naïve e\u0301te 中文", "", "x" * 65 + " a" * 100]
    assert [reading is not None for reading in reader.read(texts)] == [True, True, False, False, True, True, True]
    assert reader.read(["x" * 70]) == [None]
    assert reader.read([]) == []


def test_a_text_with_a_huge_word_is_left_to_the_tokenizer(reader: WordReader) -> None:
    huge, rest = "中" * page_reader.HUGE, " a" * page_reader.HUGE
    assert [reading is not None for reading in reader.read([huge + rest, huge + "中" + rest, "a"])] == [True, False, True]


def test_a_reading_does_not_keep_its_neighbours(reader: WordReader) -> None:
    """Prepared documents are cached by their own size."""
    short, _ = reader.read(["a river", "and a bridge " * 1000])
    assert short is not None
    assert short.ids.base is None
    assert short.terms(np.asarray([0]), np.asarray([7])).keys.base is None


@pytest.mark.parametrize("name", ["squad-far", "squad-articles", "qmsum"])
def test_real_documents(reader: WordReader, tokenizer: Tokenizer, analyzer: Analyzer, shared_data: Path, name: str) -> None:
    with gzip.open(shared_data / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus:
        texts = [json.loads(line)["text"][:20_000] for line, _ in zip(corpus, range(400), strict=False)][::20]
    read = reader.read(texts)
    assert all(reading is not None for reading in read)
    for fast, slow in zip(read, slowly(texts, tokenizer, analyzer), strict=True):
        assert fast is not None
        assert_alike(fast, slow, cuts(len(slow.ids), 61, 50))
