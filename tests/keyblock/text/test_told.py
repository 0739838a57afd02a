"""What compiled readers are told of stretches that they do not read."""

from pathlib import Path

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import compiled_reader
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.told import told, words_told
from tests.compiled import need_compiled
from tests.keyblock.text.trained_tokenizers import trained

ANALYZER = Analyzer(AnalyzerConfig(language="de"))


def test_answers_go_to_their_questions(tmp_path: Path) -> None:
    """A unit between others, the same at a text's start, and a run: each is told apart."""
    core, tokenizer = need_compiled(), trained("xlm-roberta", tmp_path)
    reader = compiled_reader(tokenizer, ANALYZER)
    assert reader is not None
    text, asked = "\u200bFlüsse \u200bFlüsse", core.ASKED
    questions = [(asked["FIRST_TOKENS"], "\u200bFlüsse \u200bFlüsse"), (asked["TERMS"], "\u200bFlüsse")]
    (missing,) = reader._reader.read([text], core.Odds(), core.Odds())
    assert {(question, text[start:end]) for start, end, question in missing.tolist()} == set(questions)
    (found,) = reader._reader.read([text], *told(tokenizer, ANALYZER, questions, units=True))
    ids, heads, *_, keys = found
    (encoding,) = tokenizer.encode([text])
    assert (ids.tolist(), heads.tolist()) == (encoding.ids, [start for start, _ in encoding.offsets])
    assert keys.tolist() == ANALYZER.keys("Fluss Fluss")


def test_words_are_told_with_their_terms(tokenizer: Tokenizer) -> None:
    english = Analyzer(AnalyzerConfig())
    reader = compiled_reader(tokenizer, english)
    need_compiled()
    assert reader is not None
    word = "e\u0301te's"
    ((ids, *_, keys),) = reader._reader.read([word], *words_told(tokenizer, english, [(0, word)]))
    assert ids.tolist() == tokenizer.encode([word])[0].ids
    assert [key for key in keys.tolist() if key] == english.keys(word)
