"""Stretches of texts, against loops over their characters."""

from itertools import groupby, pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text.characters import CODES, Kind
from keyblock.text.page import Page

KINDS, TERM = np.full(CODES, Kind.ODD, dtype=np.uint8), np.zeros(CODES, dtype=np.bool_)
for spelt, kind in ((" \n", Kind.SPACE), (",_", Kind.BREAK), ("ab€", Kind.LETTER)):
    KINDS[[ord(character) for character in spelt]] = kind
TERM[[ord(character) for character in "ab_Σ中"]] = True
Spans = list[tuple[int, int]]


def groups(text: str, start: int, sort: dict[str, object]) -> list[tuple[object, tuple[int, int]]]:
    """Characters of one sort next to each other; of each place where a sort is None."""
    found = []
    for key, places in groupby(range(start, start + len(text)), lambda i: sort[text[i - start]] or i):
        head, *rest = places
        found.append((key, (head, head + 1 + len(rest))))
    return found


def slowly(text: str) -> tuple[Spans, Spans]:
    """Where words and runs stand."""
    words: Spans = []
    runs: Spans = []
    kinds = {character: Kind(KINDS[ord(character)]) for character in text}
    spaces = {character: "space" if kind is Kind.SPACE else "other" for character, kind in kinds.items()}
    for sort, (head, tail) in groups(text, 0, dict(spaces)):
        part = text[head:tail]
        if sort == "space":
            continue
        if any(kinds[character] is Kind.ODD for character in part):
            words.append((head, tail))
            runs.append((head, tail))
            continue
        words += [span for _, span in groups(part, head, {c: "letter" if kinds[c] is Kind.LETTER else None for c in part})]
        terms = groups(part, head, {c: "term" if TERM[ord(c)] else "other" for c in part})
        runs += [span for sort, span in terms if sort == "term"]
    return words, runs


@given(st.lists(st.text("ab€,_ \nΣ中\u0301"), min_size=1, max_size=5))
@example(["a_b 5€ ,, a\u0301_, Σ", "", " ", "_"])
@example(["\u0301", "\u0301 \u0301"])
def test_words_and_runs(texts: list[str]) -> None:
    page = Page.of(texts, KINDS, TERM)
    spans = list(zip(page.heads.tolist(), page.tails.tolist(), strict=True))
    words, runs = slowly(page.text)
    assert spans[: page.n_words] == words
    assert [spans[i] for i in page.runs] == runs
    assert spans[page.n_words :] == [run for run in runs if run not in words]


@given(st.lists(st.text("a \ud800"), min_size=1, max_size=5))
def test_texts_and_their_words(texts: list[str]) -> None:
    page = Page.of(texts, KINDS, TERM)
    bounds = page.bounds.tolist()
    assert [page.text[head : tail - 1] for head, tail in pairwise(bounds)] == texts
    assert page.documents(page.heads[: page.n_words]).tolist() == np.repeat(range(len(texts)), np.diff(page.first_words)).tolist()
    spans = zip(page.heads, page.tails, strict=True)
    assert page.spell(np.arange(len(page.heads))) == [page.text[head:tail] for head, tail in spans]
