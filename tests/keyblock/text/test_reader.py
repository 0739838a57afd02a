"""Whatever way a text is read, the reading is one and the same."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers

from keyblock.text import compiled as compiled_module
from keyblock.text import reader as reader_module
from keyblock.text.analyzer import Analyzer, AnalyzerConfig, term_key
from keyblock.text.compiled import CompiledReading
from keyblock.text.reader import PART, Reader
from keyblock.text.reading import AT_ONCE, Reading, encoded, terms_between
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
    assert [type(reading) for reading in readings] == [*[CompiledReading if compiled else Reading] * 4, Reading, type(readings[0])]
    for text, reading in zip(texts, readings, strict=True):
        assert reading.text == text
        np.testing.assert_array_equal(reading.ids, tokenizer.ids(text))


def test_other_tokenizers_read_themselves(backbone: Path, tmp_path: Path) -> None:
    """In one step, however long a text is: nobody knows where they may begin anew."""
    backend = Backend.from_file(str(backbone / "tokenizer.json"))
    backend.normalizer = normalizers.NFKC()
    backend.save(str(tmp_path / "tokenizer.json"))
    steps: list[int] = []
    texts = ["a river", "a river " * (PART // 4)]
    readings = Reader(Tokenizer(tmp_path / "tokenizer.json"), ANALYZER).read(texts, steps.append)
    assert [type(reading) for reading in readings] == [Reading] * 2
    assert [step for step in steps if step] == list(map(len, texts))


def test_nothing_to_read(tokenizer: Tokenizer, compiled: bool) -> None:
    assert Reader(tokenizer, ANALYZER, compiled=compiled).read([]) == []


def test_many_texts_are_read_in_steps(tokenizer: Tokenizer) -> None:
    texts = ["a river and a bridge " * 100] * 100
    steps: list[int] = []
    Reader(tokenizer, ANALYZER, compiled=False).read(texts, steps.append)
    assert sum(steps) == sum(map(len, texts))
    assert max(steps) < 2 * PART


@pytest.mark.parametrize("name", KINDS)
def test_long_texts_are_read_in_steps(name: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "PART", 300)
    tokenizer = trained(name, tmp_path)
    text = "The bridges, naïve ones. \n\n हिन्दी के शब्द\u0301 \u0301 end.\nNext a_b " * 40
    steps: list[int] = []
    (found,) = Reader(tokenizer, ANALYZER, compiled=compiled).read([text], steps.append)
    assert isinstance(found, CompiledReading) == compiled
    (expected,) = tokenizer.encode([text])
    assert found.ids.tolist() == expected.ids
    assert list(zip(*(places.tolist() for places in found.places()), strict=True)) == expected.offsets
    starts = np.arange(0, len(text) - 40, 35, dtype=np.int32)
    terms = found.terms(starts, starts + np.int32(40))
    assert terms.keys.tolist() == [key for start in starts.tolist() for key in ANALYZER.keys(text[start : start + 40])]
    assert len([step for step in steps if step]) > 5
    assert max(steps) <= 300


def test_a_tokenizer_that_is_not_what_it_seems_reads_whole_texts_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained("qwen2", tmp_path)
    monkeypatch.setattr(reader_module, "PART", 1000)
    text = "a river " * 1000

    def steps() -> int:
        found: list[int] = []
        (reading,) = Reader(tokenizer, ANALYZER, compiled=False).read([text], found.append)
        assert reading.ids.tolist() == tokenizer.encode([text])[0].ids
        return len([step for step in found if step])

    assert steps() == 9
    monkeypatch.setattr(reader_module, "borders_of", lambda _backend: Anywhere(breaks_join=False, words_end=False))
    assert steps() == 1


def test_a_compiled_reader_that_does_not_agree_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_compiled()
    tokenizer = trained("qwen2", tmp_path)
    assert type(Reader(tokenizer, ANALYZER).read(["a river"])[0]) is CompiledReading
    wrong = Borders(breaks_join=False, words_end=False, spaces="\n")
    monkeypatch.setattr(compiled_module, "borders_of", lambda _backend: wrong)
    assert type(Reader(tokenizer, ANALYZER).read(["a river"])[0]) is Reading, "it reads '.\\n' as one"


class Anywhere(Borders):
    """Of a tokenizer that could be cut between any two characters."""

    def last_cut(self, text: str, low: int, high: int) -> tuple[int, bool] | None:
        """The last place of all."""
        return (high, True) if low <= high else None


TEXT = "The river  floods, and\nbridges fall."


def test_blocks_of_a_text(tokenizer: Tokenizer) -> None:
    reading = encoded(TEXT, tokenizer.encode([TEXT])[0], ANALYZER)
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
    terms = reading.terms(starts, ends)
    assert terms.bounds.tolist() == [0, 2, 4, 5]
    assert terms.keys.tolist() == [term_key(term) for term in ("river", "flood", "bridg", "fall", "river")]


def test_nothing_else_is_kept_of_an_encoding(tokenizer: Tokenizer) -> None:
    """Prepared documents are cached by their own size."""
    reading = encoded(TEXT, tokenizer.encode([TEXT])[0], ANALYZER)
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
