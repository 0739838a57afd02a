"""Runs found by compiled code: the same terms as the analyzer's, whatever the text."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text import compiled
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import CompiledReader, compiled_reader
from keyblock.text.compiled_tables import PAIRED, SYLLABLES, paired_characters
from keyblock.text.normalization import caseless, folded
from keyblock.text.reading import Rule
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.texts import ASIAN, LONG, PIECES, SIGMA
from tests.keyblock.text.trained_tokenizers import trained
from tests.support.compiled import need_compiled

MARKED = (
    "aeйеёὰא ب\u0651\u064e\u0640\u05b0\u0301\u0308\u0313\u0345\u037a"
    "ไทำกุ่้ี\u0ccd 東京ｶﾞがか\u3099क़ि\u094d\u200d\u200c\u00ad한\u11a8ᄀ\u1161,_'İſßΣςﷺ㎏ⅻ"
)
CATEGORIES = ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Nl", "No", "Cf", "Zs")
NUMERALS, AGAIN = "\u3021\u3022", "\u3031"  # Hangzhou's, and a mark that repeats Kana: they stand in pairs, too
PIECE = st.one_of(st.sampled_from(MARKED + ASIAN), st.characters(categories=CATEGORIES), st.sampled_from([*PIECES, *LONG, SIGMA]))
TEXTS = st.lists(PIECE).map("".join)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained("qwen2", tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(
    scope="module", params=[{"name": "english"}, {"name": "english", "stem": False}, {"name": "universal"}, {"language": "ar"}]
)
def analyzer(request: pytest.FixtureRequest) -> Analyzer:
    return Analyzer(AnalyzerConfig(**request.param))


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader:
    need_compiled()
    found = compiled_reader(tokenizer, analyzer)
    assert found is not None
    return found


def terms(reader: CompiledReader, text: str) -> list[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "LONG_SHARE", 1)  # no text is left to the tokenizer
        (found,) = reader.cut([f"a {text} a"], Rule("tokens", 1 << 30, np.zeros(0, np.uint8)))  # from the first token to the last
    assert found is not None
    keys: list[int] = found.terms.keys.tolist()
    return keys


@given(TEXTS)
@example("한ё\u094d ё\u094d Ἰ\u064e ผู้ทำ ุ่ \u0e48\u0e38 क\u093c\u094d क\u094d\u093c")
@example("شَدَّة مُحَمَّد ـــ שָׁלוֹם \u0651\u064e")
@example("東" * 1100 + "京 " + "か\u3099" * 40)
@example("東京都は 5日、 한국어 a中b the river's, a_b 、")
@example(f"東京 {'中' * 1024} {'文' * 1025}")
@example("ΑΣ ΑΣ'Α 中" + "文" * 80)
@example("f\u0345\u094dक Î\u0345\u064b α\u037a\u094dक ᾳ\u094dक α\u094d\u0345क α\u0f39\u0345x")  # a mark until the case goes
@example(f"東{NUMERALS}京 か{AGAIN} {AGAIN}{AGAIN} a{NUMERALS}b")
def test_any_unicode(reader: CompiledReader, analyzer: Analyzer, text: str) -> None:
    assert terms(reader, text) == analyzer.keys(f"a {text} a")


def test_paired_characters_stand_for_themselves() -> None:
    paired = paired_characters()
    for code in [code for codes in (*PAIRED, SYLLABLES) for code in codes if paired[code]]:
        assert folded(caseless(chr(code))) == chr(code)
    assert paired[[ord(c) for c in "中文がー々한"]].all()
    assert not paired[[ord(c) for c in "aไ。、・ｶ\u3099"]].any()
