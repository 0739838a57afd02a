"""Units read by compiled code, against the tokenizer on the whole text: the same tokens, places and terms, whatever the text."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors

from keyblock.description import PipelineConfig
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import FILLER, CompiledReader, compiled_reader
from keyblock.text.compiled_tables import plain_characters, run_reader, unit_reader
from keyblock.text.reader import SAMPLE
from keyblock.text.tokenizer import Tokenizer
from keyblock.text.units import Borders
from tests.keyblock.text.test_compiled import Pair
from tests.keyblock.text.texts import LONG, UNIT_TEXTS, assert_read_alike
from tests.keyblock.text.trained_tokenizers import KINDS, LINES, backend, trained
from tests.support.compiled import need_compiled

WRITTEN = (
    "don't DON'T 'S 'ſ x'll \u2026 ﬁ ½ Ⅷ ２ ς Σ Å é क़ की กี้ ဗမာ שָׁלוֹם مَ ё 가 각 각 ㍿ ❤\ufe0f 'tis 12345 ¼% a_b _ -- ...".split()
)
GAPS = st.sampled_from([" "] * 8 + ["  ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u3000", "", "", "", ",", "."])
WORDS = st.one_of(st.sampled_from([*WRITTEN, *" ".join(LINES).split()]), st.text(st.characters(codec=None), max_size=6))
MADE = st.lists(st.tuples(GAPS, WORDS)).map(lambda pairs: "".join(gap + word for gap, word in pairs))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained(request.param, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module", params=[{"name": "english"}, {"name": "universal"}, {"language": "de"}])
def analyzer(request: pytest.FixtureRequest) -> Analyzer:
    return Analyzer(AnalyzerConfig(**request.param))


def reader_of(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader:
    need_compiled()
    reader = compiled_reader(tokenizer, analyzer)
    assert reader is not None
    return reader


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer, analyzer: Analyzer) -> CompiledReader:
    return reader_of(tokenizer, analyzer)


@given(st.lists(st.one_of(UNIT_TEXTS, MADE), min_size=1, max_size=4), st.integers(1, 6))
@example(["", " ", "a", "a ", " a", "\n", "a\n\n", "  a  "], 1)
@example(["a \u0301b c", "\u0301 a", "a\u0301 b", "a\u00a0\u0301 b"], 1)
@example(["end.\n\nNext one\nline", "(\n)\n a.\r\n\r\nb", "x  \n  y"], 1)
@example(["it's it'ſ IT'S IT'LL it'd've", "'s 's\n's", "x'l y'r"], 1)
@example(["<think> a</think>b c<think>", "a   b  c", "<s> x</s>"], 1)
@example(["ไทย กี้ภาษา คำ", "की हिन्दी\u0301 क\u093c\u0941", "…ﬁ½", "ab\u0338=\u0338"], 1)
@example([" ".join(["a", *LONG, "river"]), LONG[0], " ".join(LONG)], 6)
@example([SAMPLE, SAMPLE.upper(), "東京都" * 30, "한국어" * 700], 6)
def test_any_unicode(reader: CompiledReader, tokenizer: Tokenizer, analyzer: Analyzer, texts: list[str], block_tokens: int) -> None:
    assert_read_alike(reader, tokenizer, analyzer, texts, block_tokens)


@pytest.mark.parametrize("segmenter", ["whole_sentences", "structure"])
@given(texts=st.lists(MADE, max_size=3))
@example(texts=["", " ", f"{SAMPLE} 東京都。中文句子！ Dr. No ran; it fell. " * 6])
def test_documents(pairs: dict[str, Pair], segmenter: str, texts: list[str]) -> None:
    pairs[segmenter].check(texts)


@pytest.fixture(scope="module", params=["english", "universal"])
def pairs(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> dict[str, Pair]:
    """By segmenter, in blocks of seven tokens."""
    names = ("whole_sentences", "structure")
    configs = [PipelineConfig(analyzer={"name": request.param}, segmenter={"name": name, "block_tokens": 7}) for name in names]
    return {name: Pair(config, tokenizer) for name, config in zip(names, configs, strict=True)}


@pytest.mark.parametrize("name", ["xlm-roberta", "merges"])
def test_characters_that_become_spaces(tmp_path: Path, name: str) -> None:
    """Without its marks a diaeresis is a space, which is read with those behind it."""
    changed, analyzer = backend(name), Analyzer(AnalyzerConfig())
    steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Replace(Regex(" {2,}"), "\u2581")]
    changed.normalizer, changed.pre_tokenizer = normalizers.Sequence(steps), pre_tokenizers.Metaspace()
    changed.save(str(tmp_path / "changed.json"))
    tokenizer = Tokenizer(tmp_path / "changed.json")
    texts = ["the\u00a8 river", "\u2017 the river", "a the\u00b4 the\u00b4 river"]
    assert_read_alike(reader_of(tokenizer, analyzer), tokenizer, analyzer, texts, 2)


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


def test_real_documents(reader: CompiledReader, tokenizer: Tokenizer, analyzer: Analyzer, shared_data: Path) -> None:
    """In thirteen languages."""
    texts = []
    for path in sorted((shared_data / "languages").glob("*/corpus.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as corpus:
            texts += [json.loads(line)["text"][:1500] for line, _ in zip(corpus, range(2), strict=False)]
    assert len(texts) == 26
    assert_read_alike(reader, tokenizer, analyzer, texts, 61)


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
    (found,) = reader_of(tokenizer, Analyzer(AnalyzerConfig())).read(["ab xy"])
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
    tokens, runs = unit_reader(changed, borders), run_reader(Analyzer(AnalyzerConfig(name="universal")), plain_characters())
    (missing,) = core.TextReader(tokens, runs).read([text], [])
    assert [text[start:end] for start, end, asked in missing.tolist() if asked != core.ASKED["TERMS"]] == expected
