"""Words learnt as they are met, against the tokenizer and the analyzer word by word."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text import lexicon
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.hashing import Hasher
from keyblock.text.lexicon import Lexicon, in_batches, keys_of, tokens_of
from keyblock.text.rows import Rows
from keyblock.text.tokenizer import Tokenizer

HASHER = Hasher()
ANALYZER = Analyzer(AnalyzerConfig())


def hashes(words: list[str]) -> np.ndarray:
    codes = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    ends = np.cumsum([len(word) for word in words], dtype=np.int32)
    return HASHER.hashes(codes, (ends - [len(word) for word in words]).astype(np.int32), ends)


@pytest.fixture
def known(tokenizer: Tokenizer) -> Lexicon:
    return Lexicon(partial(tokens_of, tokenizer), partial(keys_of, ANALYZER))


def assert_tokens(found: Rows, tokenizer: Tokenizer, words: Sequence[str]) -> None:
    encodings = tokenizer.encode(words)
    assert found.counts.tolist() == [len(encoding) for encoding in encodings]
    ids, heads, tails = (column.tolist() for column in found.columns)
    assert ids == [token for encoding in encodings for token in encoding.ids]
    assert list(zip(heads, tails, strict=True)) == [span for encoding in encodings for span in encoding.offsets]


def assert_known(known: Lexicon, tokenizer: Tokenizer, words: list[str]) -> None:
    numbers, found = known.find(hashes(words), lambda places: [words[i] for i in places.tolist()])
    assert_tokens(found.tokens.taken(numbers), tokenizer, words)
    keys = found.keys.taken(numbers)
    expected = [ANALYZER.keys(word) or [0] for word in words]
    assert keys.counts.tolist() == [len(some) for some in expected]
    assert keys.columns[0].tolist() == [key for some in expected for key in some]


def test_what_is_known_of_a_word(known: Lexicon, tokenizer: Tokenizer) -> None:
    words = ["Riverbanks", "the", "river", "!", "Zürich", "bridges", "river", "xqzt", "\x00", "a\u200bon", "river中bridge"]
    assert_known(known, tokenizer, words)
    assert_known(known, tokenizer, [*reversed(words), "another"])


def test_a_word_is_spelt_once(known: Lexicon) -> None:
    asked: list[str] = []

    def spell(places: np.ndarray) -> list[str]:
        words = [["river", "stone", "river", "bridge"][i] for i in places.tolist()]
        asked.extend(words)
        return words

    for _ in range(2):
        known.find(hashes(["river", "stone", "river", "bridge"]), spell)
    assert sorted(asked) == ["bridge", "river", "stone"]


def test_what_has_no_hash_is_not_learnt(known: Lexicon) -> None:
    numbers, words = known.find(np.zeros(3, np.uint64), lambda places: ["spelt"] * len(places))
    assert numbers.tolist() == [0, 0, 0]
    assert words.size == 1


def test_many_words_at_once(known: Lexicon, tokenizer: Tokenizer) -> None:
    words = [f"w{number}x" for number in range(2 * lexicon.AT_ONCE + 5)]
    assert_known(known, tokenizer, words)
    assert known._known.words.size == 1 + len(words)


def test_it_forgets_before_it_grows_too_large(known: Lexicon, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "MOST", 50)
    for first in range(0, 400, 40):
        words = [f"w{number}" for number in range(first, first + 60)]
        assert_known(known, tokenizer, words)
    assert known._known.words.size <= 50 + 60


def test_threads_that_learn_at_once(known: Lexicon, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "AT_ONCE", 7)
    lists = [[f"{name}{number}" for number in range(300)] for name in "aaabbc"]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda words: assert_known(known, tokenizer, words), lists))
    for words in lists:
        assert_known(known, tokenizer, words)
    assert known._known.words.size == 1 + 3 * 300


def test_long_words_are_read_in_parts(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "LONG_AT_ONCE", 150)
    words = ["x" * 65, "river" * 20, "river" * 21, "\x00" * 70, "中" * 70]
    read: list[int] = []

    def counted(some: Sequence[str]) -> Rows:
        read.append(len(some))
        return tokens_of(tokenizer, some)

    assert_tokens(in_batches(counted, words), tokenizer, words)
    assert read == [1, 2, 2]


SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u1680\u2028\u2029"
STRETCHES = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=["Zs"], exclude_characters=SPACES), min_size=1),
    st.text("aáE\u0301\u0345中한Σİ.,[]#\x00\u200b\ufffd\ud800", min_size=1),
    st.sampled_from(["[SEP]", "[SEP]\u0301", "[UNK]", "##s", "unaffable", "don't", "x" * 101, "\u0301", "\x00"]),
)


@given(st.lists(STRETCHES, min_size=1, max_size=12))
@example(["\u0301", "\x00", "a", "\u0301b", "\ufeff", "b\u0301"])
def test_words_are_read_alike_alone_and_between_spaces(tokenizer: Tokenizer, words: list[str]) -> None:
    assert_tokens(tokens_of(tokenizer, words), tokenizer, words)


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"max_input_chars_per_word": 5}},
        {"model": {"continuing_subword_prefix": ""}},
        {"normalizer": {"lowercase": False}},
        {"normalizer": {"clean_text": False, "handle_chinese_chars": False, "strip_accents": True}},
        {"added_tokens": [{"content": "river"}, {"content": "a river", "normalized": True}, {"content": "[X]", "rstrip": True}]},
    ],
)
def test_other_tokenizers_read_words_alike(backbone: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    description = json.loads((backbone / "tokenizer.json").read_text(encoding="utf-8"))
    for part in ("model", "normalizer"):
        description[part].update(change.get(part, {}))
    blank = {"id": 30522, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    more = enumerate(change.get("added_tokens", []), start=30522)
    description["added_tokens"] += [blank | token | {"id": number} for number, token in more]
    (tmp_path / "tokenizer.json").write_text(json.dumps(description), encoding="utf-8")
    words = ["a", "river", "Unaffable", "[X]", "[SEP]", "!", "Naïve", "\u0301", "e\u0301te", "\x00", "中b", "xqzt", "a", "river"]
    changed = Tokenizer(tmp_path / "tokenizer.json")
    assert_tokens(tokens_of(changed, words), changed, words)
