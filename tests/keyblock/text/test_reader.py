"""Whatever way a text is read, the reading is one and the same."""

from pathlib import Path

import numpy as np
import pytest

from keyblock.text import compiled as compiled_module
from keyblock.text import reader as reader_module
from keyblock.text.analyzer import Analyzer, AnalyzerConfig, term_key
from keyblock.text.reader import PART, Reader, parts_of
from keyblock.text.reading import AT_ONCE, Rule, encoded, terms_between
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import Borders
from tests.keyblock.text.trained_tokenizers import KINDS, trained
from tests.support.compiled import need_compiled

ANALYZER = Analyzer(AnalyzerConfig())


@pytest.fixture(scope="module", params=["plain", "compiled"])
def compiled(request: pytest.FixtureRequest) -> bool:
    """Whether texts are read by the compiled reader."""
    if request.param == "compiled":
        need_compiled()
    return bool(request.param == "compiled")


def test_texts_are_read_in_the_order_given(tokenizer: Tokenizer, compiled: bool) -> None:
    """The tokenizer reads what a compiled reader leaves."""
    texts = ["a river", "x" * 70, "", "a bridge", "中" * 70, "of stone"]
    readings = Reader(tokenizer, ANALYZER, compiled=compiled).read(texts)
    for text, reading in zip(texts, readings, strict=True):
        assert reading.text == text
        np.testing.assert_array_equal(reading.ids, tokenizer.ids(text))
    assert Reader(tokenizer, ANALYZER, compiled=compiled).read([]) == []


def test_many_texts_are_read_in_steps(tokenizer: Tokenizer, compiled: bool) -> None:
    texts, steps = ["a river and a bridge " * 100] * 100, list[int]()
    reader = Reader(tokenizer, ANALYZER, compiled=compiled)
    reader.read(texts, steps.append)
    assert sum(steps) == sum(map(len, texts))
    assert max(steps) < 2 * PART

    def stop(_n_chars: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        reader.read(texts, stop)


@pytest.mark.parametrize("name", [None, *KINDS])
def test_long_texts_are_read_in_parts_as_a_whole(
    name: str | None, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "PART", 300)
    used = trained(name, tmp_path) if name else tokenizer
    text = "The bridges, naïve ones. \n\n हिन्दी के शब्द\u0301 \u0301 end.\nNext a_b " * 40
    steps: list[int] = []
    (found,) = Reader(used, ANALYZER, compiled=False).read([text], steps.append)
    (expected,) = used.encode([text])
    assert found.ids.tolist() == expected.ids
    assert list(zip(found.heads.tolist(), found.tails.tolist(), strict=True)) == expected.offsets
    assert sum(steps) == len(text)
    assert max(steps) <= 300


@pytest.mark.parametrize("text", ["", "the river " * 9, "中文" * 50, "a\u0301 \u0301b" * 30, "xyz" * 40, "\ud800 " * 60])
def test_parts_of_any_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are never too long, and end before a space where there is one."""
    monkeypatch.setattr(reader_module, "PART", 25)
    parts = list(parts_of(text))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 25
    assert "river" not in text or all(part.startswith(" ") for part in parts[1:])


def test_a_compiled_reader_that_does_not_agree_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_compiled()
    tokenizer = trained("qwen2", tmp_path)
    rule = Rule("tokens", 9, np.zeros(0, np.uint8))
    assert Reader(tokenizer, ANALYZER).cut(["a river"], rule) != [None]
    wrong = Borders(breaks_join=False, words_end=False, spaces="\n")
    monkeypatch.setattr(compiled_module, "borders_of", lambda _backend: wrong)
    assert Reader(tokenizer, ANALYZER).cut(["a river"], rule) == [None], "it reads '.\\n' as one"


TEXT = "The river  floods, and\nbridges fall."


def test_blocks_of_a_text(tokenizer: Tokenizer) -> None:
    reading = encoded(TEXT, tokenizer.encode([TEXT])[0])
    assert len(reading.ids) == 8
    heads, tails = reading.places()
    tokens = [TEXT[head:tail] for head, tail in zip(heads, tails, strict=True)]
    assert tokens == ["The", "river", "floods", ",", "and", "bridges", "fall", "."]
    starts, ends = reading.offsets(np.asarray([[0, 3], [3, 8], [1, 2]], dtype=np.int32))
    assert [TEXT[start:end] for start, end in zip(starts, ends, strict=True)] == [
        "The river  floods",
        ", and\nbridges fall.",
        "river",
    ]
    terms = terms_between(TEXT, starts, ends, ANALYZER)
    assert terms.bounds.tolist() == [0, 2, 4, 5]
    assert terms.keys.tolist() == [term_key(term) for term in ("river", "flood", "bridg", "fall", "river")]


def test_nothing_else_is_kept_of_an_encoding(tokenizer: Tokenizer) -> None:
    """Prepared documents are cached by their own size."""
    reading = encoded(TEXT, tokenizer.encode([TEXT])[0])
    assert [array.base for array in (reading.ids, *reading.places())] == [None] * 3


def test_terms_of_many_blocks_are_found_in_steps() -> None:
    text = "river " * (3 * AT_ONCE)
    starts = np.arange(0, len(text), 6, dtype=np.int32)
    steps: list[int] = []
    terms = terms_between(text, starts, starts + np.int32(5), ANALYZER, steps.append)
    assert (len(terms.keys), steps) == (3 * AT_ONCE, [0, 0, 0])

    def stop(_n_chars: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        terms_between(text, starts, starts + np.int32(5), ANALYZER, stop)
