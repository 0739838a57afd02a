"""The compiled part: whether it is used, its processor, and its hashes."""

import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock import native
from keyblock.text.analyzer import term_key
from tests.support.compiled import need_compiled


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
    assert core.term_keys([term, "river"]).tolist() == [term_key(term), term_key("river")]
