"""Words looked up by their hashes, against a dictionary."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock import lexicon
from keyblock.lexicon import PERIOD, Hasher, Lexicon
from keyblock.text import Analyzer, AnalyzerConfig
from keyblock.tokenization import Tokenizer

HASHER = Hasher()
ANALYZER = Analyzer(AnalyzerConfig())
MASK = (1 << 64) - 1


def stretches(words: list[str], before: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    codes = np.frombuffer((" " * before + "".join(words)).encode("utf-32-le"), dtype=np.uint32)
    ends = before + np.cumsum([len(word) for word in words], dtype=np.int32)
    return codes, (ends - [len(word) for word in words]).astype(np.int32), ends.astype(np.int32)


def hashes(words: list[str], before: int = 0) -> np.ndarray:
    return HASHER.hashes(*stretches(words, before))


def slow_hash(word: str) -> int:
    powers = HASHER._powers.tolist()
    return sum(int(HASHER._numbers[ord(c)]) * power for c, power in zip(word, powers, strict=False)) & MASK


WORDS = st.lists(st.text("abcé中", min_size=1, max_size=lexicon.LONGEST), min_size=1, max_size=30)


@given(WORDS, st.sampled_from([0, 1, PERIOD - 40, PERIOD - 1, 3 * PERIOD - 7]))
def test_a_hash_is_of_the_word_wherever_it_stands(words: list[str], before: int) -> None:
    assert hashes(words, before).tolist() == [slow_hash(word) for word in words]


def test_words_of_the_same_letters_differ() -> None:
    words = ["ab", "ba", "aab", "aba", "baa", "a" * 63, "a" * 64, "abba" * 8, "baab" * 8, "abbabaab" * 8, "baababba" * 8]
    assert len(set(hashes(words).tolist())) == len(words)


@pytest.fixture
def known(tokenizer: Tokenizer) -> Lexicon:
    return Lexicon(tokenizer, ANALYZER)


def assert_known(known: Lexicon, tokenizer: Tokenizer, words: list[str]) -> None:
    numbers, found = known.find(hashes(words), lambda places: [words[i] for i in places.tolist()])
    for word, number in zip(words, numbers.tolist(), strict=True):
        tokens = slice(found.firsts[number], found.firsts[number] + found.counts[number])
        (encoding,) = tokenizer.encode([word])
        assert found.ids[tokens].tolist() == encoding.ids
        assert list(zip(found.heads[tokens].tolist(), found.tails[tokens].tolist(), strict=True)) == encoding.offsets
        assert [int(found.keys[number])] == (ANALYZER.keys(word) or [0])


def test_what_is_known_of_a_word(known: Lexicon, tokenizer: Tokenizer) -> None:
    words = ["Riverbanks", "the", "river", "!", "Zürich", "bridges", "river", "xqzt"]
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


def test_many_words_grow_the_table(known: Lexicon, tokenizer: Tokenizer) -> None:
    for first in range(0, 40_000, 10_000):
        assert_known(known, tokenizer, [f"w{number}x" for number in range(first, first + 10_000)][:: 1 if first else 3])
    assert_known(known, tokenizer, [f"w{number}x" for number in range(0, 40_000, 101)])


def test_crowded_places_are_told_apart(known: Lexicon) -> None:
    """Hashes that all want the same place of the table."""
    table = known._empty()
    same = np.asarray([(7 * pow(int(lexicon.SPREAD), -1, 1 << 64) + 0) & MASK], dtype=np.uint64)
    near = (np.arange(1, 200, dtype=np.uint64) * np.uint64(pow(int(lexicon.SPREAD), -1, 1 << 64))).astype(np.uint64)
    crowd = np.unique(np.concatenate([same, near]))
    words = known._read([f"w{number}" for number in range(len(crowd))])
    extended = table.extended(crowd[:100], words).extended(crowd[100:], known._read(["x"] * (len(crowd) - 100)))
    assert extended.find(crowd)[:100].tolist() == list(range(100))
    assert len(set(extended.find(crowd).tolist())) == len(crowd)
    assert (extended.find(crowd + np.uint64(1 << 60)) == -1).all()


def test_it_forgets_before_it_grows_too_large(known: Lexicon, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "MOST", 50)
    for first in range(0, 400, 40):
        words = [f"w{number}" for number in range(first, first + 60)]
        assert_known(known, tokenizer, words)
    assert known._table.words.size <= 50 + 60


def test_threads_that_learn_at_once(known: Lexicon, tokenizer: Tokenizer) -> None:
    lists = [[f"{name}{number}" for number in range(300)] for name in "aaabbc"]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda words: assert_known(known, tokenizer, words), lists))
    for words in lists:
        assert_known(known, tokenizer, words)
