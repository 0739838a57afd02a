"""Stretches that compiled readers do not read: the tokenizer and the analyzer answer for them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import compiled_reader
from keyblock.text.fallback import FILLER, text_answers, tokens_of, tokens_of_words, word_answers
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.trained_tokenizers import KINDS, trained
from tests.support.compiled import need_compiled

ANALYZER = Analyzer(AnalyzerConfig(language="de"))


def test_answers_go_to_their_questions(tmp_path: Path) -> None:
    """A unit between others, the same at a text's start, and a run: each has its own answer."""
    core, tokenizer = need_compiled(), trained("xlm-roberta", tmp_path)
    reader = compiled_reader(tokenizer, ANALYZER)
    assert reader is not None
    text, asked = "\u200bFlüsse \u200bFlüsse", core.ASKED
    questions = [(asked["FIRST_TOKENS"], "\u200bFlüsse \u200bFlüsse"), (asked["TERMS"], "\u200bFlüsse")]
    (begun,) = reader._reader.read([text], core.Odds(), core.Odds())
    assert {(question, text[start:end]) for start, end, question in begun.missing.tolist()} == set(questions)
    (found,) = reader._reader.read([begun], *text_answers(tokenizer, ANALYZER, questions, units=True))
    ids, heads, *_, keys = found
    (encoding,) = tokenizer.encode([text])
    assert (ids.tolist(), heads.tolist()) == (encoding.ids, [start for start, _ in encoding.offsets])
    assert keys.tolist() == ANALYZER.keys("Fluss Fluss")


def test_words_come_with_their_terms(tokenizer: Tokenizer) -> None:
    english = Analyzer(AnalyzerConfig())
    reader = compiled_reader(tokenizer, english)
    need_compiled()
    assert reader is not None
    word = "e\u0301te's"
    ((ids, *_, keys),) = reader._reader.read([word], *word_answers(tokenizer, english, [(0, word)]))
    assert ids.tolist() == tokenizer.encode([word])[0].ids
    assert [key for key in keys.tolist() if key] == english.keys(word)


def test_a_text_is_read_on_from_where_it_asked(tokenizer: Tokenizer) -> None:
    """It asks again about words without an answer; what was read stays."""
    core, english = need_compiled(), Analyzer(AnalyzerConfig())
    compiled = compiled_reader(tokenizer, english)
    assert compiled is not None
    reader, words = compiled._reader, ["\u200bodd", "x\u0301y", "\u200b" * 70]
    text = f"{words[0]} Rivers. {words[1]} ran, {words[2]} {words[0]}"
    (begun,) = reader.read([text], core.Odds())
    assert [text[start:end] for start, end, _ in begun.missing.tolist()] == [*words, words[0]]
    (begun,) = reader.read([begun], *word_answers(tokenizer, english, [(0, words[0])]))
    assert [text[start:end] for start, end, _ in begun.missing.tolist()] == words[1:]
    ((ids, heads, tails, *_, keys),) = reader.read([begun], *word_answers(tokenizer, english, [(0, word) for word in words[1:]]))
    (encoding,) = tokenizer.encode([text])
    assert (ids.tolist(), list(zip(heads.tolist(), tails.tolist(), strict=True))) == (encoding.ids, encoding.offsets)
    assert [key for key in keys.tolist() if key] == english.keys(text)


SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u1680\u2028\u2029"
STRETCHES = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=["Zs"], exclude_characters=SPACES), min_size=1),
    st.text("aáE\u0301\u0345中한Σİ.,[]#\x00\u200b\ufffd\ud800", min_size=1),
    st.sampled_from(["[SEP]", "[SEP]\u0301", "[UNK]", "##s", "unaffable", "don't", "x" * 101, "\u0301", "\x00"]),
)


@given(st.lists(STRETCHES, min_size=1, max_size=12))
@example(["\u0301", "\x00", "a", "\u0301b", "\ufeff", "b\u0301"])
def test_words_are_read_alike_alone_and_between_spaces(tokenizer: Tokenizer, words: list[str]) -> None:
    assert tokens_of_words(tokenizer, words) == tokens_of(tokenizer, words, [""] * len(words))


@pytest.mark.parametrize("name", KINDS)
def test_units_are_read_alike_alone_and_among_others(name: str, tmp_path: Path) -> None:
    """Behind the filler, whose tokens are nobody's, each is what it is in a text of its own; the first stands without."""
    tokenizer, units = trained(name, tmp_path), ["a", " the", "\n\nriver", "  stone", "\tbridge", " end"]
    if name == "first":
        units = ["a", " the", " river", " end"]  # it splits texts at spaces alone
    (together,) = tokenizer.encode(["".join(units)])
    starts = np.cumsum([0, *map(len, units[:-1])]).tolist()
    alone = zip(starts, tokens_of(tokenizer, units, ["", *[FILLER] * (len(units) - 1)]), strict=True)
    moved = [(token, start + head, start + tail) for start, tokens in alone for token, head, tail in tokens]
    assert moved == [(token, head, tail) for token, (head, tail) in zip(together.ids, together.offsets, strict=True)]


def test_no_questions_have_no_answers(tokenizer: Tokenizer) -> None:
    core = need_compiled()
    assert tokens_of(tokenizer, [], []) == tokens_of_words(tokenizer, []) == []
    assert [type(odds) for odds in text_answers(tokenizer, ANALYZER, [], units=True)] == [core.Odds] * 2
