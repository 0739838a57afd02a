"""Runs found by compiled code: the same terms as the analyzer's, whatever the text."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text import compiled
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import CompiledReader, compiled_reader
from keyblock.text.tokenizer import Tokenizer
from tests.compiled import need_compiled
from tests.keyblock.text.test_words import LONG, PIECES
from tests.keyblock.text.trained_tokenizers import trained

MARKED = (
    "aeйеёὰא ب\u0651\u064e\u0640\u05b0\u0301\u0308\u0313\u0345\u037a"
    "ไทำกุ่้ี\u0ccd 東京ｶﾞがか\u3099क़ि\u094d\u200d\u200c\u00ad한\u11a8ᄀ\u1161,_'İſßΣςﷺ㎏ⅻ"
)
CATEGORIES = ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Nl", "No", "Cf", "Zs")
PIECE = st.one_of(st.sampled_from(MARKED), st.characters(categories=CATEGORIES), st.sampled_from([*PIECES, *LONG]))
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
        (found,) = reader.read([text])
    assert found is not None
    keys: list[int] = found.terms(np.asarray([0], np.int32), np.asarray([len(text)], np.int32)).keys.tolist()
    return keys


@given(TEXTS)
@example("한ё\u094d ё\u094d Ἰ\u064e ผู้ทำ ุ่ \u0e48\u0e38 क\u093c\u094d क\u094d\u093c")
@example("شَدَّة مُحَمَّد ـــ שָׁלוֹם \u0651\u064e")
@example("東" * 1100 + "京 " + "か\u3099" * 40)
def test_any_unicode(reader: CompiledReader, analyzer: Analyzer, text: str) -> None:
    assert terms(reader, text) == analyzer.keys(text)
