"""The cuts and the blocks of `structure`, compiled, against those of Python: the same places and costs, whatever the text."""

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keyblock import segmenters
from keyblock.description import PipelineConfig
from keyblock.segmenters import SEGMENTERS
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import CompiledReader
from keyblock.text.reader import PART
from keyblock.text.reading import CutText, Rule
from keyblock.text.structure import Cut, clauses, cuts
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text import layouts
from tests.keyblock.text.texts import Pair, reader_of, texts_of
from tests.keyblock.text.trained_tokenizers import trained

THOROUGHLY = settings(settings.default, max_examples=10 * settings.default.max_examples)
LINES = sorted({*layouts.MARKDOWN, *layouts.CODE, *layouts.RECORDS, *layouts.TURNS, *layouts.PROSE})
NAMES = ["wordpiece", "xlm-roberta", "qwen2"]
Pairs = dict[int, Pair]


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer) -> CompiledReader:
    return reader_of(tokenizer, Analyzer(AnalyzerConfig()))


@pytest.fixture(scope="module", params=NAMES)
def pairs(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """By the tokens of a block: one pass for words and English terms, and two for units and runs."""
    words = request.param == NAMES[0]
    used = tokenizer if words else trained(request.param, tmp_path_factory.mktemp("tokenizer"))
    analyzer = AnalyzerConfig(name="english" if words else "universal")
    sizes = (1, 4, 63)
    return {n: Pair(PipelineConfig(analyzer=analyzer, segmenter={"name": "structure", "block_tokens": n}), used) for n in sizes}


def assert_cut_alike(reader: CompiledReader, text: str) -> None:
    for found, expected in zip(reader.structure.cuts(text), cuts(text), strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=repr(text), strict=True)
    assert reader.structure.clauses(text).tolist() == clauses(text), repr(text)


@THOROUGHLY
@given(layouts.TEXTS)
@example("\nOne\n")
@example("\r\nOne\r\n\nTwo\n\r\nThree\r\n")
def test_cuts_of_any_text(reader: CompiledReader, text: str) -> None:
    assert_cut_alike(reader, text)


@pytest.mark.parametrize(
    "before", ["x", "    y", "a,b,c", "x = 1", "foo(", "# A", "```", "| a. B |", layouts.LONG, f"{layouts.LONG},"]
)
def test_cuts_between_two_lines(reader: CompiledReader, before: str) -> None:
    """Each line of the generated texts behind each of these, with and without a blank line, and indented."""
    for line in LINES:
        for gap in ("\n", "\n\n", "\r\n", "\r\n\n", "\n \n", "\n  ", "\n```\n"):
            assert_cut_alike(reader, f"{before}{gap}{line}\n{before}")


def test_statements_in_lines_that_may_be_broken_at_a_width(reader: CompiledReader) -> None:
    """What a line says counts where its length leaves open whether it goes on: at its start, and at its end."""
    statement, prose = (
        "the_value_of_these = function_of(something, another)",
        "and a line of prose that goes on in the next line and",
    )
    for line in layouts.CODE + layouts.MARKDOWN:
        for long in (f"{line}{' and' * 12}", f"{'and ' * 12}{line}"):
            for other in (statement, prose):
                assert_cut_alike(reader, f"{long}\n{other}\n{long}\n{long}")
    for word in "return returns é let letter if iffy else elsewhere try tryé from import imports @a @ a.b( a.b".split():
        for end in ("", ":", "{", ":{x"):
            assert_cut_alike(reader, f"{statement}\n{word}{' and' * 12}{end}\n{statement}")
    for end in "([{,\\)]}.:":
        assert_cut_alike(reader, f"{statement}{end}\n{statement}")


@pytest.mark.parametrize("length", [38, 39, 40, 41, 99, 100, 101, 102, 198, 199, 200])
def test_lines_that_may_be_broken_at_a_width(reader: CompiledReader, length: int) -> None:
    for end in "a,.9)中ª\u0301\U00020000":
        for following in ("and", "And", "9", "ªb", "  indented", "- item"):
            line = "word " * 50
            assert_cut_alike(reader, f"    {line[: length - 1]}{end}\n{following} more\nthe end")


@pytest.mark.parametrize("length", [*range(37, 43), *range(57, 63)])
def test_names_and_assigned_values_of_each_length(reader: CompiledReader, length: int) -> None:
    for letter in "aé_. 中":
        name = f"A{letter * (length - 1)}".strip()
        for behind in (":", ": x", "：x", " = x", "  = x", " =x", " += x", ",= x", "* = x", "x(", " x(y"):
            assert_cut_alike(reader, f"y = 1\n{name}{behind}\nz = 2")


def test_every_character_where_it_may_count(reader: CompiledReader) -> None:
    """In front of a line, in it, and behind it; before a space and none; alone it is a list's mark, a name, a stop, a comma."""
    codes = [*range(0x3200), *range(0xA600, 0xAB00), *range(0xFE00, 0x10200), 0x1D7CE, 0x20000, 0x2FA1D, 0x30000, 0xE0001]
    for first in range(0, len(codes), 100):
        some = [chr(code) for code in codes[first : first + 100]]
        for form in ("{} a\n{}a\nab{}cd, e{}, f\n", "กิ{} ก,{}\n", "x{}: y\n{}a(\nreturn{}x\n", f"{layouts.LONG}{{}}\n{{}}b\n"):
            text = "".join(form.replace("{}", character) for character in some)
            assert_cut_alike(reader, text)


@given(texts=st.lists(layouts.TEXTS, min_size=1, max_size=3), block_tokens=st.sampled_from([1, 4, 63]))
@example(texts=["", " ", "a"], block_tokens=1)
@example(texts=["| a. B, c, d! E |\n" * 3, "a, b, c, d; e. F"], block_tokens=4)
@example(texts=["# Rivers.  \nText here it is.\n# Bridges.  \nMore, and more"], block_tokens=4)
@example(texts=[f"a {'river' * 21}, b {'中' * 70}，c"], block_tokens=63)
@example(texts=["a\n.\nb\n\n.", "# A\n# B\n# C\n\n\n"], block_tokens=1)
def test_blocks_of_any_text(pairs: Pairs, texts: list[str], block_tokens: int) -> None:
    pairs[block_tokens].check(texts)


def test_blocks_of_no_tokens_or_too_many_are_refused(reader: CompiledReader) -> None:
    """And do not fill the memory. The longest that places can count cuts nothing."""

    def cut(block_tokens: int) -> CutText | None:
        return reader.cut(["The river rose. It fell."], Rule("structure", block_tokens, np.zeros(0, np.uint8)))[0]

    for block_tokens in (0, 2**31, 2**32, 2**63):
        with pytest.raises(ValueError, match="no such number of tokens"):
            cut(block_tokens)
    longest = cut(2**31 - 1)
    assert longest is not None
    assert len(longest.bounds) == 1


def test_python_cuts_nothing(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmenters, "cuts", None)
    long = "The river rose.\n- An item\n" * (PART // 20)
    documents = pairs[63].fast.prepare_documents(["The river.\n\n- One, two", long])
    assert min(document.n_blocks for document in documents) > 0
    monkeypatch.undo()
    pairs[63].check([long])


@pytest.mark.parametrize("unit", layouts.UNITS)
def test_cutting_takes_time_in_proportion_to_the_length(reader: CompiledReader, unit: str) -> None:
    """Sixteen times as long, sixteen times the time: in proportion to the square it would be 256 times."""

    def seconds(text: str) -> float:
        taken = []
        for _ in range(3):
            started = time.thread_time()
            places, _ = reader.structure.cuts(text)
            ends = reader.structure.clauses(text)
            taken.append(time.thread_time() - started)
            assert len(places) + len(ends) <= 2 * len(text)
        return min(taken)

    short, long = (unit * (characters // len(unit)) for characters in (20_000, 320_000))
    assert seconds(long) < 100 * max(seconds(short), 20e-6)
    assert_cut_alike(reader, unit * (3_000 // len(unit)))


@pytest.mark.parametrize("name", ["squad-articles", "squad-far", "qmsum", "languages", "evidence"])
def test_real_documents(pairs: Pairs, reader: CompiledReader, shared_data: Path, name: str) -> None:
    for path in sorted((shared_data / name).glob("**/corpus*.jsonl.gz"))[:14:2]:
        (text,) = texts_of(path, 1)
        assert_cut_alike(reader, text[:20_000])
        pairs[63].check([text[:20_000]])


def test_the_documentation(pairs: Pairs, reader: CompiledReader) -> None:
    """Markdown, code and tables as people write them."""
    root = Path(__file__).resolve().parents[3]
    texts = [path.read_text(encoding="utf-8") for path in sorted(root.glob("docs/*.md"))[:12:3]]
    texts += [
        (root / name).read_text(encoding="utf-8")
        for name in ("keyblock/segmenters.py", "Makefile", "native/src/reader.cpp", "pyproject.toml")
    ]
    for text in texts:
        assert_cut_alike(reader, text)
        assert_cut_alike(reader, text.replace("\n", "\r\n"))
    pairs[63].check(texts)
    assert all(first < second for first, second in pairwise(reader.structure.cuts(texts[0])[0].tolist()))


def test_blocks_by_hand(reader: CompiledReader, tokenizer: Tokenizer) -> None:
    """The item is a part of its own, and the sentence is cut behind its comma."""
    rule = SEGMENTERS.create({"name": "structure", "block_tokens": 7}).rule(tokenizer)
    assert rule is not None
    text = "# Rivers\nThe rivers rose, and all of the bridges fell.\n- One item"
    (cut,) = reader.cut([text], rule)
    assert cut is not None
    assert [text[start:end] for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)] == [
        "# Rivers\nThe rivers rose,",
        "and all of the bridges fell.",
        "- One item",
    ]


def test_cuts_by_hand(reader: CompiledReader) -> None:
    text = "# Heading\nOne. Two\n\n- item\n| rose. Fell |"
    places, kinds = reader.structure.cuts(text)
    found = {text[:place].rsplit("\n", 1)[-1]: Cut(kind).name for place, kind in zip(places.tolist(), kinds.tolist(), strict=True)}
    assert found == {"# Heading": "NONE", "One.": "SENTENCE", "One. Two": "FREE", "- item": "FREE", "| rose.": "CLAUSE"}
    assert reader.structure.clauses('a, b, "c",d').tolist() == [2, 5]
