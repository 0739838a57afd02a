"""Reading unit by unit, against the tokenizer on the whole text."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.hashing import LONGEST
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.unit_reader import FILLER, UnitReader, tokens_among, tokens_at
from keyblock.text.units import borders_of
from tests.keyblock.text.test_words import LONG, PIECES, SPELT, assert_alike, assert_read_as_the_tokenizer_does, cuts, slowly
from tests.keyblock.text.trained_tokenizers import KINDS, backend, trained

MORE = "x\u2581y \u2581 ¨x \u00a8 \u0600x \u0e33 😀 <think> </think> \ufb2a \ufdfa 12345 # \u0903x \u115f ﬁ \U0001f3fbx".split()
BETWEEN = [
    " ",
    " ",
    " ",
    "  ",
    "\n",
    "\n\n",
    " \n",
    "\t",
    "\r\n",
    "",
    ".\n",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\x0b",
    "\x85",
    "\u2028",
]
JOINED = st.lists(st.tuples(st.sampled_from(BETWEEN), st.sampled_from([*PIECES, *MORE, *LONG]))).map(
    lambda pairs: "".join(between + piece for between, piece in pairs)
)
TEXTS = st.one_of(st.text(f"{SPELT}<>ℵ\u2581"), st.text(st.characters(codec=None)), JOINED)
ENGLISH = Analyzer(AnalyzerConfig())


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained(request.param, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module", params=["english", "universal"])
def analyzer(request: pytest.FixtureRequest) -> Analyzer:
    return Analyzer(AnalyzerConfig(name=request.param))


def reader_of(tokenizer: Tokenizer, analyzer: Analyzer) -> UnitReader:
    borders = borders_of(tokenizer.backend)
    assert borders is not None
    return UnitReader(tokenizer, analyzer, borders)


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer, analyzer: Analyzer) -> UnitReader:
    return reader_of(tokenizer, analyzer)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 6))
@example(["", " ", "a", "a ", " a", "\n", "a\n\n", "  a  "], 1, 1)
@example(["a \u0301b c", "\u0301 a", "a\u0301 b", "a\u00a0\u0301 b"], 1, 1)
@example(["end.\n\nNext one\nline", "(\n)\n a.\r\n\r\nb", "x  \n  y"], 1, 1)
@example(["<think> a</think>b c<think>", "a   b  c"], 1, 1)
@example([" ".join(["a", *LONG, "river"]), LONG[0], " ".join(LONG)], 6, 2)
def test_any_unicode(
    reader: UnitReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: list[str], length: int, stride: int
) -> None:
    assert_read_as_the_tokenizer_does(reader, tokenizer, analyzer, texts, (length, stride))


def test_a_sentence_by_eye(tmp_path: Path) -> None:
    """Words of SentencePiece carry the mark of the last space in front of them, and stand where the text has them."""
    tokenizer = trained("bge-m3", tmp_path)
    text = "the bridges  weren't built"
    (found,) = reader_of(tokenizer, ENGLISH).read([text])
    assert found is not None
    tokens = [tokenizer.backend.id_to_token(token) for token in found.ids.tolist()]
    assert "".join(tokens) == "▁the▁bridges▁weren't▁built"
    words = [i for i, token in enumerate(tokens) if token.startswith("▁")]
    heads, tails = found.heads[words].tolist(), np.append(found.heads[words][1:], len(text)).tolist()
    assert [text[head:tail] for head, tail in zip(heads, tails, strict=True)] == ["the", " bridges ", " weren't", " built"]
    terms = found.terms(np.asarray([0], np.int32), np.asarray([len(text)], np.int32))
    assert terms.keys.tolist() == ENGLISH.keys(text)


def test_units_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained("qwen2", tmp_path)
    reader, encode = reader_of(tokenizer, ENGLISH), tokenizer.encode
    read: list[str] = []
    monkeypatch.setattr(tokenizer, "encode", lambda texts: [read.extend(texts), encode(texts)][1])
    reader.read(["A river and a river"])
    assert sorted(map(len, read)) == [1, len(f"{FILLER} river and a")], "its first word, and the others once each"
    reader.read(["A river and a river"])
    assert read[2:] == ["A"], "which may be marked as a text's start"


def test_tokens_among_others(tokenizer: Tokenizer) -> None:
    """Each is what it is in a text of its own behind other words; the fillers are nobody's."""
    units = [" the", "\n\nriver", "  stone", "\tbridge", " end"]
    found = tokens_among(tokenizer, units)
    apart = [tokens_at(tokenizer, FILLER, [unit]) for unit in units]
    assert found.counts.tolist() == [int(rows.counts[0]) for rows in apart]
    for column, expected in zip(found.columns, zip(*(rows.columns for rows in apart), strict=True), strict=True):
        np.testing.assert_array_equal(column, np.concatenate(expected))


def test_tokens_at_the_end_of_a_text(tokenizer: Tokenizer) -> None:
    (alone,), (behind,) = tokenizer.encode(["river \n"]), tokenizer.encode([f"{FILLER} river \n"])
    assert tokens_at(tokenizer, "", ["river \n"]).columns[0].tolist() == alone.ids
    read = tokens_at(tokenizer, FILLER, [" river \n"]).columns[0].tolist()
    assert read == behind.ids[len(behind.ids) - len(read) :]
    assert 0 < len(read) < len(behind.ids)


@pytest.mark.parametrize("name", ["xlm-roberta", "merges"])
def test_characters_that_become_spaces(tmp_path: Path, name: str) -> None:
    """Without its marks a diaeresis is a space, which is read with those behind it."""
    changed = backend(name)
    steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Replace(Regex(" {2,}"), "\u2581")]
    changed.normalizer, changed.pre_tokenizer = normalizers.Sequence(steps), pre_tokenizers.Metaspace()
    changed.save(str(tmp_path / "changed.json"))
    tokenizer = Tokenizer(tmp_path / "changed.json")
    texts = ["the\u00a8 river", "\u2017 the river", "a the\u00b4 the\u00b4 river"]
    for fast, slow in zip(reader_of(tokenizer, ENGLISH).read(texts), slowly(texts, tokenizer, ENGLISH), strict=True):
        assert fast is not None
        assert_alike(fast, slow, cuts(len(slow.ids), 2, 1))


def test_a_text_that_is_mostly_long_words_is_left_to_the_tokenizer(reader: UnitReader) -> None:
    texts = ["plain", "x" * LONGEST, "x" * (LONGEST + 1), "中" * 70, "", "x" * 65 + " a" * 100]
    assert [reading is not None for reading in reader.read(texts)] == [True, True, False, False, True, True]


@pytest.mark.parametrize("language", ["ar", "de", "el", "en", "hi", "ja", "ru", "th", "tr", "vi", "zh"])
def test_real_documents(reader: UnitReader, tokenizer: Tokenizer, analyzer: Analyzer, shared_data: Path, language: str) -> None:
    with gzip.open(shared_data / "languages" / language / "corpus.jsonl.gz", "rt", encoding="utf-8") as corpus:
        texts = [json.loads(line)["text"][:3000] for line, _ in zip(corpus, range(2), strict=False)]
    for fast, slow in zip(reader.read(texts), slowly(texts, tokenizer, analyzer), strict=True):
        if fast is not None:  # else mostly long words, as in Japanese
            assert_alike(fast, slow, cuts(len(slow.ids), 61, 50))
