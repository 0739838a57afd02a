"""The document-frequency table: counting, looking up, writing and reading, damage."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.analyzer import Analyzer, AnalyzerConfig, DocumentFrequencies, term_key

ANALYZER, PLAIN = Analyzer(AnalyzerConfig()), Analyzer(AnalyzerConfig(stem=False, stop_words=False))
TEXTS = ["The river floods. The river!", "Rivers and bridges", "A bridge of stone", "stone, flooding, river"]


def test_documents_are_counted_not_occurrences() -> None:
    table = DocumentFrequencies.count(TEXTS, ANALYZER, at_least=1)
    assert table.n_documents == 4
    assert table.frequencies == {"river": 3, "flood": 2, "bridg": 2, "stone": 2}


def test_terms_of_one_frequency_keep_their_order() -> None:
    words = "delta gamma beta alpha zeta eta theta".split()
    table = DocumentFrequencies.count([" ".join(words), " ".join(reversed(words))], PLAIN)
    assert list(table.frequencies) == words


def test_rare_terms_are_pruned_and_have_frequency_zero() -> None:
    table = DocumentFrequencies.count([*TEXTS, "zebra"], ANALYZER)
    assert "zebra" not in table.frequencies
    assert len(table) == 4
    assert table.of(np.asarray(ANALYZER.keys("zebra stones river"))).tolist() == [0, 2, 3]
    assert table.of(np.zeros(0, dtype=np.int64)).tolist() == []


def test_terms_that_occur_are_known() -> None:
    table = DocumentFrequencies(9, {"river": 3, "bridg": 0, "stone": 1})
    assert table.known.tolist() == [term_key("river"), term_key("stone")]


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=8))
def test_a_table_reads_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "frequencies.tsv"
    table = DocumentFrequencies.count(texts, PLAIN, at_least=1)
    table.write(path)
    again = DocumentFrequencies.read(path)
    assert again.n_documents == table.n_documents
    assert list(again.frequencies.items()) == list(table.frequencies.items())


def test_the_file_is_plain_text_most_frequent_first(tmp_path: Path) -> None:
    path = tmp_path / "frequencies.tsv"
    DocumentFrequencies.count(TEXTS, ANALYZER).write(path)
    assert path.read_bytes() == b"documents\t4\nriver\t3\nflood\t2\nbridg\t2\nstone\t2\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"line 1 must be 'documents<TAB>N', not ''"),
        (b"documents\tmany\n", r"line 1 must be 'documents<TAB>N', not 'documents\\tmany'"),
        (b"documents\t\xc2\xb2\n", r"line 1 must be"),
        (b"documents 4\nriver\t3\n", r"line 1 must be"),
        (b"documents\t4\nriver\t3\nbridge 2\n", r"line 3 must be 'term<TAB>df', not 'bridge 2'"),
        (b"documents\t4\nriver\t-3\n", r"line 2 must be"),
        (b"documents\t4\nriver\t3.5\n", r"line 2 must be"),
        (b"documents\t4\n\t3\n", r"line 2 must be"),
        (b"documents\t4\n\nriver\t3\n", r"line 2 must be"),
        (b"documents\t4\nriv\xff\t3\n", r"not UTF-8 text \(invalid start byte at byte 15\)"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "frequencies.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        DocumentFrequencies.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
