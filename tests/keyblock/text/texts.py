"""Texts that are hard to read, and the slow, obvious way to read and prepare them, which the compiled reader is held to."""

import gzip
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument
from keyblock.segmenters import between, split
from keyblock.text import compiled
from keyblock.text.analyzer import Analyzer, DocumentFrequencies
from keyblock.text.compiled import CompiledReader, compiled_reader
from keyblock.text.reader import Reader
from keyblock.text.reading import Rule, encoded, terms_between
from keyblock.text.tokenizer import Tokenizer
from tests.support.compiled import need_compiled

SPELT = "aábcdXYZ019 .,!?-_'\"“”\n\t\u00a0éœßЖ\u03a3\u03c3\u03c2İ\u0131ǅ€½中한日\u0301\u200d\u00ad\x00\x0b\u3000\ud800\U0001f600"
SIGMA = "\u0391\u03a3"  # its lower case depends on what follows
PIECES = """the Riverbanks a_b _ 5€ don't U.S.A. naïve e\u0301te 中文 한글 — unaffable a\u200bon हिन्दी ไทย ½ ｶﾞ l'eau""".split()
LONG = [
    "x" * 70,
    "river" * 21,
    "中" * 70,
    "the\u0301" * 20,
    "a_" * 40,
    "_" * 70,
    "\x00" * 70,
    f"{'x' * 64}_b",
    f"\u200b{'the' * 22}",
]
ASIAN = "東京都は日本の首都、人口1400万人。中文，句子！한국어 문장ー・ｶﾞが\u3099々〇ไทยน้ำ🚀·～（"
TEXTS = st.one_of(
    st.text(SPELT),
    st.text(f"{ASIAN} ab\u0301\u200d"),
    st.text(st.characters(codec=None)),
    st.lists(st.sampled_from([*PIECES, SIGMA, f"{SIGMA}'\u0391", "\n", *LONG])).map(" ".join),
)
SPOKEN = """Dr. Mr. no. No. Fig. vs. e.g. U.S. J. Inc. The the river River 3 12.5. 4.1. "Why?" (so!) end... etc. Ko.
a- b_ “Well.” ‘No’ 1. 2) (a) Ann: Bob O'Neil: — • - * # 東京。 है। ؟ … ?! .) . ! K. ß. İ. ı ½. ² ٣.""".split()
SPACES = [" ", " ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "\u2028", "\x0c", "\x85", "\u00a0", "", " \n "]
WRAPPED = "a line of some fifty characters that is broken here"
PROSE = st.lists(st.tuples(st.sampled_from([*SPOKEN, WRAPPED, "Then " + WRAPPED]), st.sampled_from(SPACES)))
PROSES = PROSE.map(lambda words: "".join(word + space for word, space in words))
MORE = "x\u2581y \u2581 ¨x \u00a8 \u0600x \u0e33 😀 <think> </think> \ufb2a \ufdfa 12345 # \u0903x \u115f ﬁ \U0001f3fbx".split()
BETWEEN = [" "] * 3 + ["  ", "\n", "\n\n", " \n", "\t", "\r\n", "", ".\n"]
BETWEEN += ["\u00a0", "\u3000", "\u200b", "\x0b", "\x85", "\u2028"]
JOINED = st.lists(st.tuples(st.sampled_from(BETWEEN), st.sampled_from([*PIECES, *MORE, *LONG]))).map(
    lambda pairs: "".join(between + piece for between, piece in pairs)
)
UNIT_TEXTS = st.one_of(st.text(f"{SPELT}<>ℵ\u2581"), st.text(st.characters(codec=None)), JOINED)


def texts_of(corpus: Path, most: int) -> list[str]:
    """The first texts of a collection's file."""
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in islice(lines, most)]


def reader_of(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader:
    need_compiled()
    reader = compiled_reader(tokenizer, analyzer)
    assert reader is not None
    return reader


class Pair:
    """The same pipeline with the compiled reader and without."""

    def __init__(self, config: PipelineConfig, tokenizer: Tokenizer) -> None:
        need_compiled()
        self.fast, self.plain = (Pipeline(config, tokenizer, DocumentFrequencies(1, {})) for _ in range(2))
        self.plain.reader = Reader(tokenizer, self.plain.analyzer, compiled=False)

    def check(self, texts: Sequence[str]) -> list[PreparedDocument]:
        found = self.fast.prepare_documents(texts)
        for fast, plain in zip(found, self.plain.prepare_documents(texts), strict=True):
            for name in ("token_ids", "bounds", "starts", "ends", "terms", "term_bounds"):
                np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name), strict=True)
        return found


def assert_read_alike(
    reader: CompiledReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: Sequence[str], block_tokens: int
) -> None:
    """The same tokens and places, and the same terms of blocks of so many tokens, wherever they end."""
    rule = Rule("tokens", block_tokens, np.zeros(0, np.uint8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "LONG_SHARE", 1)  # no text is left to the tokenizer
        read, cut, encodings = reader.read(texts), reader.cut(texts, rule), tokenizer.encode(texts)
    for text, found, blocks, encoding in zip(texts, read, cut, encodings, strict=True):
        assert found is not None
        assert blocks is not None
        slow = encoded(text, encoding)
        bounds = between(split(np.zeros(len(slow.ids), np.int64), block_tokens))
        starts, ends = slow.offsets(bounds)
        terms = terms_between(text, starts, ends, analyzer)
        for one, other in zip(found[1:], slow[1:], strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
        for one, other in zip((*blocks[:-1], *blocks.terms), (slow.ids, bounds, starts, ends, *terms), strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
