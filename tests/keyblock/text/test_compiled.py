"""The compiled reader, against the plain one: the same tokens, places, terms and blocks, whatever the text."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.description import PipelineConfig
from keyblock.segmenters import SEGMENTERS
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import LONGEST, CompiledReader
from keyblock.text.reader import PART, SAMPLE
from keyblock.text.reading import Rule
from keyblock.text.sentences import sentence_ends
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.texts import LONG, PIECES, PROSES, SIGMA, TEXTS, WRAPPED, Pair, assert_read_alike, reader_of, texts_of

MIXED = st.lists(st.one_of(TEXTS, PROSES), max_size=4)
STEMS = (
    "b y yy abl adopt agre allow bled cares con cry day fall file fiz hap hiss hop in ion knead plaster relat se sky tan vi yell z"
)
ENDINGS = """s es ies sses ss ed eed ing y ly e l ll ational tional enci anci izer abli alli entli eli ousli ization ation ator
alism iveness fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment
ent sion tion ou ism ate iti ous ive ize at bl iz tt bb nn ying""".split()
ENGLISH = Analyzer(AnalyzerConfig())


@pytest.fixture(
    scope="module", params=[{"name": "english"}, {"name": "english", "stem": False}, {"name": "universal"}, {"language": "de"}]
)
def analyzer(request: pytest.FixtureRequest) -> Analyzer:
    return Analyzer(AnalyzerConfig(**request.param))


@pytest.fixture(scope="module")
def any_reader(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader:
    return reader_of(tokenizer, analyzer)


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer) -> CompiledReader:
    return reader_of(tokenizer, ENGLISH)


@pytest.fixture(scope="module")
def pairs(tokenizer: Tokenizer) -> dict[int, Pair]:
    """By the tokens of a block."""
    configs = {n: PipelineConfig(segmenter={"name": "whole_sentences", "block_tokens": n}) for n in (1, 5, 63)}
    return {n: Pair(config, tokenizer) for n, config in configs.items()}


@given(MIXED, st.sampled_from([1, 5, 63]))
@example(["", " ", "a"], 1)
@example([SAMPLE, SAMPLE.upper()], 5)
@example(["The\r\nriver\x00 \ud800a Σας ΣΑΣ'Α K\u212a \U0001f600"], 1)
@example([" ".join(LONG), f"a {'x' * 101}. {'_' * 200} b"], 5)
@example(["the" * 40_000], 63)
def test_documents_of_any_unicode(pairs: dict[int, Pair], texts: list[str], block_tokens: int) -> None:
    pairs[block_tokens].check(texts)


@given(MIXED, st.integers(1, 6))
@example(["", " ", "a"], 1)
@example(["!\u0301 \u0301! a\u0301\u0301b \u0301"], 1)
@example(["a_b_c __ _a 5€5 €"], 1)
@example([f"{SIGMA}'\u0391 {SIGMA} \u03a3'", "\u03a3"], 2)
@example(["a\u200bon", "\u0385\u0130he", "\x00 \u200bthe\u200bthe"], 1)
@example([" ".join(["a", *LONG, "river"]), LONG[0], "", " ".join(LONG)], 6)
@example(["A river. " * 100 + " the river ".join(LONG[:3])], 40)
def test_readings_of_any_unicode(
    any_reader: CompiledReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: list[str], block_tokens: int
) -> None:
    assert_read_alike(any_reader, tokenizer, analyzer, texts, block_tokens)


@pytest.mark.parametrize("stretch", ["Rivers", "a_b", "_a", "b_", "don't", "(x)", "U.S.", "x" * 9, "mixed-CASE", "é.e", "a\u00a0b"])
def test_stretches_wherever_they_stand(pairs: dict[int, Pair], stretch: str) -> None:
    """64 characters are looked at together: a stretch may end with them, go over their end, or be longer."""
    around = [
        " " * before + stretch * times + after for before in range(58, 67) for times in (1, 2, 6, 7) for after in ("", " ", ". The")
    ]
    pairs[5].check([*around, *(stretch * 30 + "a" * size for size in range(60, 68))])


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
def test_other_tokenizers_of_words(backbone: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    description = json.loads((backbone / "tokenizer.json").read_text(encoding="utf-8"))
    for part in ("model", "normalizer"):
        description[part].update(change.get(part, {}))
    blank = {"id": 30522, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    more = enumerate(change.get("added_tokens", []), start=30522)
    description["added_tokens"] += [blank | token | {"id": number} for number, token in more]
    (tmp_path / "tokenizer.json").write_text(json.dumps(description), encoding="utf-8")
    changed = Tokenizer(tmp_path / "tokenizer.json")
    texts = ["a river Unaffable [X] [SEP] ! Naïve \u0301 e\u0301te \x00 中b xqzt a river", SAMPLE, " ".join([*PIECES, *LONG])]
    assert_read_alike(reader_of(changed, ENGLISH), changed, ENGLISH, texts, 3)


@given(st.one_of(PROSES, TEXTS))
@example("\nOne\n")
@example(f"{WRAPPED}\nThen {WRAPPED}\nit goes on. And\nends")
def test_sentences_of_any_unicode(reader: CompiledReader, text: str) -> None:
    np.testing.assert_array_equal(reader.sentences.ends(text), sentence_ends(text))


@pytest.mark.parametrize("name", SEGMENTERS.names())
def test_each_segmenter(tokenizer: Tokenizer, name: str) -> None:
    text = "The river, slow and wide, ran on. " * 12 + "It fell; " * 40 + "\n\n# A heading\n- One item.\n- Another one\n\nThe end."
    (document,) = Pair(PipelineConfig(segmenter={"name": name}), tokenizer).check([text])
    assert document.n_blocks > 1


def test_a_text_that_is_mostly_long_and_odd_is_left_to_the_tokenizer(reader: CompiledReader, tokenizer: Tokenizer) -> None:
    texts = ["plain", "x" * 70, "中" * LONGEST, "中" * (LONGEST + 1), "", f"{'中' * 65} {'a ' * 80}"]
    assert [reading is not None for reading in reader.read(texts)] == [True, True, True, False, True, True]
    rule = SEGMENTERS.create("whole_sentences").rule(tokenizer)
    assert rule is not None
    assert [cut is not None for cut in reader.cut(texts, rule)] == [True, True, True, False, True, True]


def test_stems_of_a_vocabulary(reader: CompiledReader, tokenizer: Tokenizer) -> None:
    """Each word of the embedded model's, and many made of stems and two endings."""
    words = [token.removeprefix("##") for token in tokenizer.backend.get_vocab() if token.isascii() and token.islower()]
    assert len(words) > 20_000
    words += [stem + first + last for stem in STEMS.split() for first in ["", *ENDINGS] for last in ENDINGS][::3]
    assert_read_alike(reader, tokenizer, ENGLISH, [" ".join(words)], 63)


@given(st.lists(st.text("aeiouybdlnstwxzg'1", max_size=12)))
def test_stems_of_letters(reader: CompiledReader, tokenizer: Tokenizer, words: list[str]) -> None:
    assert_read_alike(reader, tokenizer, ENGLISH, [" ".join(words)], 63)


def test_more_words_than_are_remembered(reader: CompiledReader, tokenizer: Tokenizer) -> None:
    """The memory is cleared, even between a text's first reading and the second, which knows its odd words."""
    for first in range(0, 160_000, 40_000):
        text = " ".join(f"{number:x}g e\u0301{number}" for number in range(first, first + 400))
        reader.read([" ".join(f"q{number:x}" for number in range(first, first + 40_000))])
        (found,), (expected,) = reader.read([text]), tokenizer.encode([text])
        assert found is not None
        np.testing.assert_array_equal(found.ids, expected.ids)


def test_threads(tokenizer: Tokenizer) -> None:
    """Of a new reader, which meets each word for the first time."""
    texts = [" ".join(f"river{i * j % 977} e\u0301{j % 50}" for j in range(400)) for i in range(8)]
    fresh, alone = (reader_of(tokenizer, ENGLISH) for _ in range(2))
    rule = Rule("sentences", 63, np.zeros(0, np.uint8))
    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(lambda text: fresh.cut([text], rule)[0], texts))
    for found, expected in zip(several, alone.cut(texts, rule), strict=True):
        assert found is not None
        assert expected is not None
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.terms.keys, expected.terms.keys)


@pytest.mark.parametrize("name", ["squad-articles", "squad-far", "qmsum", "languages", "evidence"])
def test_real_documents(pairs: dict[int, Pair], shared_data: Path, name: str) -> None:
    for path in sorted((shared_data / name).glob("**/corpus*.jsonl.gz"))[:14]:
        pairs[63].check([text[:20_000] for text in texts_of(path, 2)])


def test_blocks_by_hand(reader: CompiledReader, tokenizer: Tokenizer) -> None:
    """Two sentences of four tokens, in blocks of at most five: "the" is no term."""
    rule = SEGMENTERS.create({"name": "whole_sentences", "block_tokens": 5}).rule(tokenizer)
    assert rule is not None
    (cut,) = reader.cut(["The rivers rose. Bridges fell down."], rule)
    assert cut is not None
    assert cut.bounds.tolist() == [[0, 4], [4, 8]]
    assert (cut.starts.tolist(), cut.ends.tolist()) == ([0, 17], [16, 35])
    keys = [ENGLISH.keys(text) for text in ("river rose", "bridge fell")]
    assert cut.terms.bounds.tolist() == [0, 2, 4]
    assert cut.terms.keys.tolist() == keys[0] + keys[1]


def test_a_long_text(pairs: dict[int, Pair], reader: CompiledReader) -> None:
    """It is read whole, and in Python in parts; with an odd stretch that is as long it is left to the tokenizer."""
    text = "The river rose again. " * (PART // 20)
    assert len(text) > PART
    pairs[63].check([text, "A river."])
    odd = "A river rose. " * PART + "\u0301e" * PART
    assert reader.read([odd, odd[: 10 * PART]])[0] is None
