"""Units and runs read by compiled code, against the tokenizer and the analyzer on the whole text, whatever the text."""

from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors

from keyblock.description import PipelineConfig
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import FILLER, CompiledReader
from keyblock.text.compiled_tables import PAIRED, SYLLABLES, paired_characters, plain_characters, run_reader, unit_reader
from keyblock.text.reader import SAMPLE
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import Borders
from keyblock.text.universal import caseless, folded
from tests.keyblock.text.texts import ASIAN, LONG, PIECES, SIGMA, UNIT_TEXTS, Pair, assert_read_alike, reader_of, texts_of
from tests.keyblock.text.trained_tokenizers import KINDS, LINES, backend, trained
from tests.support.compiled import need_compiled

WRITTEN = (
    "don't DON'T 'S 'ſ x'll \u2026 ﬁ ½ Ⅷ ２ ς Σ Å é क़ की กี้ ဗမာ שָׁלוֹם مَ ё 가 각 각 ㍿ ❤\ufe0f 'tis 12345 ¼% a_b _ -- ...".split()
)
GAPS = st.sampled_from([" "] * 8 + ["  ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u3000", "", "", "", ",", "."])
WORDS = st.one_of(st.sampled_from([*WRITTEN, *" ".join(LINES).split()]), st.text(st.characters(codec=None), max_size=6))
MADE = st.lists(st.tuples(GAPS, WORDS)).map(lambda pairs: "".join(gap + word for gap, word in pairs))


MARKED = (
    "aeйеёὰא ب\u0651\u064e\u0640\u05b0\u0301\u0308\u0313\u0345\u037a"
    "ไทำกุ่้ี\u0ccd 東京ｶﾞがか\u3099क़ि\u094d\u200d\u200c\u00ad한\u11a8ᄀ\u1161,_'İſßΣςﷺ㎏ⅻ"
)
CATEGORIES = ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Nl", "No", "Cf", "Zs")
NUMERALS, AGAIN = "\u3021\u3022", "\u3031"  # Hangzhou's, and a mark that repeats Kana: they stand in pairs, too
RUN = st.one_of(st.sampled_from(MARKED + ASIAN), st.characters(categories=CATEGORIES), st.sampled_from([*PIECES, *LONG, SIGMA]))
UNIVERSAL = Analyzer(AnalyzerConfig(name="universal"))


class Case(NamedTuple):
    """A tokenizer and an analyzer, what is compiled of them, and a pipeline with both in blocks of seven tokens."""

    tokenizer: Tokenizer
    analyzer: Analyzer
    reader: CompiledReader
    pair: Pair

    def check(self, texts: list[str], block_tokens: int) -> None:
        assert_read_alike(self.reader, self.tokenizer, self.analyzer, texts, block_tokens)


ANALYZERS = cycle([{"name": "english"}, {"name": "universal"}, {"language": "de"}])
SEGMENTERS = cycle(["whole_sentences", "structure"])


def case_of(tokenizer: Tokenizer, analyzer: dict[str, object], segmenter: str = "structure") -> Case:
    config = PipelineConfig(analyzer=analyzer, segmenter={"name": segmenter, "block_tokens": 7})
    pair = Pair(config, tokenizer)
    return Case(tokenizer, pair.fast.analyzer, reader_of(tokenizer, pair.fast.analyzer), pair)


@pytest.fixture(scope="module", params=list(zip(KINDS, ANALYZERS, SEGMENTERS, strict=False)), ids=lambda parts: parts[0])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Each tokenizer with one of three analyzers and one of two segmenters, in turns."""
    name, analyzer, segmenter = request.param
    return case_of(trained(name, tmp_path_factory.mktemp("tokenizer")), analyzer, segmenter)


@pytest.fixture(
    scope="module", params=[{"name": "english"}, {"name": "english", "stem": False}, {"name": "universal"}, {"language": "ar"}]
)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """One tokenizer with each analyzer."""
    return case_of(trained("qwen2", tmp_path_factory.mktemp("tokenizer")), request.param)


@given(st.lists(st.one_of(UNIT_TEXTS, MADE), min_size=1, max_size=4), st.integers(1, 6))
@example(["", " ", "a", "a ", " a", "\n", "a\n\n", "  a  "], 1)
@example(["a \u0301b c", "\u0301 a", "a\u0301 b", "a\u00a0\u0301 b"], 1)
@example(["end.\n\nNext one\nline", "(\n)\n a.\r\n\r\nb", "x  \n  y"], 1)
@example(["it's it'ſ IT'S IT'LL it'd've", "'s 's\n's", "x'l y'r"], 1)
@example(["<think> a</think>b c<think>", "a   b  c", "<s> x</s>"], 1)
@example(["ไทย กี้ภาษา คำ", "की हिन्दी\u0301 क\u093c\u0941", "…ﬁ½", "ab\u0338=\u0338"], 1)
@example([" ".join(["a", *LONG, "river"]), LONG[0], " ".join(LONG)], 6)
@example([SAMPLE, SAMPLE.upper(), "東京都" * 30, "한국어" * 700], 6)
def test_tokens_and_terms_of_any_unicode(case: Case, texts: list[str], block_tokens: int) -> None:
    case.check(texts, block_tokens)


@given(st.lists(RUN).map("".join))
@example("한ё\u094d ё\u094d Ἰ\u064e ผู้ทำ ุ่ \u0e48\u0e38 क\u093c\u094d क\u094d\u093c")
@example("شَدَّة مُحَمَّد ـــ שָׁלוֹם \u0651\u064e")
@example("東" * 1100 + "京 " + "か\u3099" * 40)
@example("東京都は 5日、 한국어 a中b the river's, a_b 、")
@example(f"東京 {'中' * 1024} {'文' * 1025}")
@example("ΑΣ ΑΣ'Α 中" + "文" * 80)
@example("f\u0345\u094dक Î\u0345\u064b α\u037a\u094dक ᾳ\u094dक α\u094d\u0345क α\u0f39\u0345x")  # a mark until the case goes
@example(f"東{NUMERALS}京 か{AGAIN} {AGAIN}{AGAIN} a{NUMERALS}b")
def test_terms_of_runs_of_any_unicode(runs: Case, text: str) -> None:
    runs.check([f"a {text} a"], 1 << 20)  # in one block


def test_paired_characters_stand_for_themselves() -> None:
    paired = paired_characters()
    for code in [code for codes in (*PAIRED, SYLLABLES) for code in codes if paired[code]]:
        assert folded(caseless(chr(code))) == chr(code)
    assert paired[[ord(c) for c in "中文がー々한"]].all()
    assert not paired[[ord(c) for c in "aไ。、・ｶ\u3099"]].any()


@given(texts=st.lists(MADE, max_size=3))
@example(texts=["", " ", f"{SAMPLE} 東京都。中文句子！ Dr. No ran; it fell. " * 6])
def test_documents(case: Case, texts: list[str]) -> None:
    case.pair.check(texts)


@pytest.mark.parametrize("name", ["xlm-roberta", "merges"])
def test_characters_that_become_spaces(tmp_path: Path, name: str) -> None:
    """Without its marks a diaeresis is a space, which is read with those behind it."""
    changed = backend(name)
    steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Replace(Regex(" {2,}"), "\u2581")]
    changed.normalizer, changed.pre_tokenizer = normalizers.Sequence(steps), pre_tokenizers.Metaspace()
    changed.save(str(tmp_path / "changed.json"))
    tokenizer = Tokenizer(tmp_path / "changed.json")
    texts = ["the\u00a8 river", "\u2017 the river", "a the\u00b4 the\u00b4 river"]
    assert_read_alike(reader_of(tokenizer, UNIVERSAL), tokenizer, UNIVERSAL, texts, 2)


def test_the_tokenizer_does_not_read_plain_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thai, Arabic and Chinese among it; a soft hyphen is asked about, once."""
    tokenizer, analyzer = trained("qwen2", tmp_path), Analyzer(AnalyzerConfig(name="universal"))
    reader, encode, keys = reader_of(tokenizer, analyzer), tokenizer.encode, analyzer.keys
    read: list[str] = []
    monkeypatch.setattr(tokenizer, "encode", lambda texts: [read.extend(texts), encode(texts)][1])
    monkeypatch.setattr(analyzer, "keys", lambda text: [read.append(text), keys(text)][1])
    reader.read(["Die Flüsse, 東京都は ภาษาไทย ผู้ทำ العَرَبية हिन्दी\n\n# A heading’s end…"])
    assert read == []
    reader.read(["A bro\u00adken word and a bro\u00adken one"] * 2)
    assert read == [f"{FILLER} bro\u00adken", "bro\u00adken"]


def test_real_documents(case: Case, shared_data: Path) -> None:
    """In thirteen languages."""
    texts = [texts_of(path, 1)[0][:1500] for path in sorted((shared_data / "languages").glob("*/corpus.jsonl.gz"))]
    assert len(texts) == 13
    case.check(texts, 61)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # -3 for both at once, -2.5 for one by one; x and y are unknown, side by side
        (models.Unigram([("<unk>", 0.0), ("▁", -4.0), ("▁a", -1.0), ("b", -1.5), ("▁ab", -3.0)], 0), ["▁a", "b", "▁", "<unk>"]),
        # the first pair of the list is joined first, then the second
        (
            models.BPE({c: i for i, c in enumerate(["▁", "a", "b", "▁a", "▁ab", "x", "y"])}, [("▁", "a"), ("▁a", "b")]),
            ["▁ab", "▁", "x", "y"],
        ),
    ],
)
def test_models_by_hand(tmp_path: Path, model: models.Model, expected: list[str]) -> None:
    made = backend("xlm-roberta")
    made.model, made.normalizer = model, None
    made.post_processor = processors.TemplateProcessing(single="$A", pair="$A b $B", special_tokens=[("b", 2)])
    made.save(str(tmp_path / "made.json"))
    tokenizer = Tokenizer(tmp_path / "made.json")
    (found,) = reader_of(tokenizer, UNIVERSAL).read(["ab xy"])
    assert found is not None
    assert [tokenizer.backend.id_to_token(token) for token in found.ids.tolist()] == expected


SENTENCEPIECE, BYTES, BREAKS_JOIN = Borders(False, False), Borders(False, True), Borders(True, True)


@pytest.mark.parametrize(
    ("borders", "text", "expected"),
    [
        (SENTENCEPIECE, "naïve  words, here", ["naïve", "  words,", " here"]),
        (BYTES, "naïve  words, here", ["naïve", "  words", ",", " here"]),
        (BYTES, "don't.\n\nA b", ["don", "'t", ".", "\n\nA", " b"]),
        (BREAKS_JOIN, "don't.\n\nA b", ["don", "'t", ".\n\nA", " b"]),  # a full stop takes line breaks with it
        (BREAKS_JOIN, "one\ntwo", ["one", "\ntwo"]),
        (SENTENCEPIECE, " a b ", [" a", " b "]),
        (SENTENCEPIECE, "हिन्दी के शब्द", ["हिन्दी", " के", " शब्द"]),  # they end in marks
        (SENTENCEPIECE, "a \u0301b c", ["a \u0301b", " c"]),  # the mark melts with the space
        (SENTENCEPIECE, "a \u200b b", ["a \u200b b"]),
        (SENTENCEPIECE, "a\u00a0b c", ["a\u00a0b", " c"]),
        (SENTENCEPIECE, "\u0301 a b", ["\u0301 a", " b"]),
        (Borders(False, False, spaces=" "), "a\nb c", ["a\nb", " c"]),
    ],
)
def test_units_by_eye(borders: Borders, text: str, expected: list[str]) -> None:
    """A reader without a model asks for all of them."""
    core, changed = need_compiled(), backend("bge-m3")
    changed.model = models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0, byte_fallback=True)
    tokens, runs = unit_reader(changed, borders), run_reader(UNIVERSAL, plain_characters())
    (missing,) = core.TextReader(tokens, runs).read([text], [])
    assert [text[start:end] for start, end, asked in missing.tolist() if asked != core.ASKED["TERMS"]] == expected
