"""The compiled part, against what it stands for: hashes and stems."""

import json
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import Stemmer
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock import native
from keyblock.text.analyzer import term_key
from tests.support.compiled import need_compiled

STEMS = (
    "b y yy abl adopt agre allow bled cares con cry day fall file fiz hap hiss hop in ion knead plaster relat se sky tan vi yell z"
)
ENDINGS = """s es ies sses ss ed eed ing y ly e l ll ational tional enci anci izer abli alli entli eli ousli ization ation ator
alism iveness fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment
ent sion tion ou ism ate iti ous ive ize at bl iz tt bb nn ying""".split()


@pytest.mark.parametrize("found", [None, SimpleNamespace(INTERFACE=native.INTERFACE + 1), SimpleNamespace()])
def test_a_missing_or_other_compiled_part_is_not_used(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyblock_native", found)
    assert native._installed() is None
    monkeypatch.setattr(native, "core", None)
    assert "documents are prepared in Python" in native.why_not_compiled()


def test_the_installed_compiled_part_is_used() -> None:
    need_compiled()
    assert native.why_not_compiled() == ""


def test_the_code_that_runs_is_for_this_processor() -> None:
    """Whoever compiled it: zig's compiler once found no processor with AVX2, and the wheel read half as fast again."""
    core, described = need_compiled(), Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not described.exists():
        pytest.skip("the processor's abilities are not listed here")
    able = set(next(line for line in described.read_text().splitlines() if line.startswith("flags")).split())
    needed = {"avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2"}, "avx2": {"avx2"}, "plain": set()}
    assert next(name for name, flags in needed.items() if flags <= able) == core.PROCESSOR


@given(st.text(st.characters(codec=None), max_size=200))
@example("")
@example("é" * 64)  # 128 bytes, a whole block
@example("a" * 16)  # the words that most terms fill
@example("a" * 17)
@example("a" * 129)
def test_keys_of_terms(term: str) -> None:
    core = need_compiled()
    assert core.term_key(term) == term_key(term)
    assert core.term_keys([term, "river"]).tolist() == [term_key(term), term_key("river")]


def assert_stems(words: list[str]) -> None:
    core, stemmer = need_compiled(), Stemmer.Stemmer("porter", 0)
    assert [(word, core.porter(word)) for word in words] == [(word, stemmer.stemWord(word)) for word in words]


def test_stems_by_hand() -> None:
    """Examples of Porter's paper."""
    core = need_compiled()
    words = {"caresses": "caress", "ponies": "poni", "agreed": "agre", "hopping": "hop", "filing": "file", "happy": "happi"}
    words |= {"relational": "relat", "triplicate": "triplic", "revival": "reviv", "probate": "probat", "controll": "control"}
    assert {word: core.porter(word) for word in words} == words


def test_stems_of_a_vocabulary() -> None:
    """Each word of the embedded model's, and many made of stems and two endings."""
    tokenizer = json.loads(Path("models/default/tokenizer.json").read_text(encoding="utf-8"))
    words = [token.removeprefix("##") for token in tokenizer["model"]["vocab"] if token.isascii() and token.islower()]
    assert len(words) > 20_000
    assert_stems(words + [stem + first + last for stem in STEMS.split() for first in ["", *ENDINGS] for last in ENDINGS])


@given(st.lists(st.text("aeiouybdlnstwxzg'1", max_size=12)))
def test_stems_of_letters(words: list[str]) -> None:
    assert_stems(words)
