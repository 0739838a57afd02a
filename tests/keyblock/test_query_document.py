"""What a query and a document share, against slow loops."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.prepared import BLOCKS_AT_ONCE, PreparedDocument, QueryDocument, WeighedQuery, idf_of, nearest_tokens, term_counts
from keyblock.text.analyzer import DocumentFrequencies
from tests.keyblock.test_selectors import BLOCKS, QUERY, document_of, query_of, with_given_vectors
from tests.support.vectors import GivenSimilar


@given(BLOCKS, QUERY)
def test_counts_equal_a_slow_loop(blocks: list[list[str]], query: list[str]) -> None:
    pair = QueryDocument(WeighedQuery(query_of(*query), DocumentFrequencies(9, {})), document_of(blocks))
    assert pair.counts.shape == pair.held.shape == (len(query), len(blocks))
    assert pair.counts.tolist() == [[block.count(word) for block in blocks] for word in query]
    assert pair.held.tolist() == [[word in block for block in blocks] for word in query]
    assert pair.found.tolist() == [any(word in block for block in blocks) for word in query]


def test_a_long_query_counts_every_term() -> None:
    """Thousands of distinct terms (a pasted page) take one pass over the document."""
    words = [f"word{i}" for i in range(5000)]
    counts = term_counts(query_of(*words), document_of([words[10:20] * 2, words[4990:]]))
    assert np.flatnonzero(counts[:, 0]).tolist() == list(range(10, 20))
    assert np.flatnonzero(counts[:, 1]).tolist() == list(range(4990, 5000))
    assert counts[10, 0] == 2


def test_idf_is_counted_over_documents(frequencies: DocumentFrequencies) -> None:
    """Rare terms weigh more, unseen ones most; a table that claims more occurrences than documents never weighs below 0."""
    weights = WeighedQuery(query_of("year", "river", "unseen"), frequencies).idf
    np.testing.assert_allclose(weights, [math.log(1001 / 600.5), math.log(1001 / 20.5), math.log(1001 / 0.5)])
    assert idf_of(query_of("river").terms, DocumentFrequencies(3, {"river": 90})).tolist() == [0.0]


def test_what_they_share_is_found_once() -> None:
    query = replace(query_of("river"), vector=np.asarray([1, 0], np.float32), similar=GivenSimilar([[1.0]]))
    pair = QueryDocument(WeighedQuery(query, DocumentFrequencies(9, {})), with_given_vectors(document_of([["river"]]), [1, 0]))
    for what in ("counts", "held", "near", "cosines", "idf"):
        assert getattr(pair, what) is getattr(pair, what)
    assert (pair.near.tolist(), pair.cosines.tolist()) == ([1], [1])


def slow_nearest(similar: NDArray[np.float32], document: PreparedDocument) -> list[float]:
    """Token by token."""
    ids, bounds = document.token_ids.tolist(), document.bounds.tolist()
    return [sum(max(float(row[token]) for token in ids[start:end]) for row in similar.T) for start, end in bounds]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
@example([n * n % 10 for n in range(4 * BLOCKS_AT_ONCE)], 6, 2, 3)  # more blocks than are compared at once
def test_nearest_tokens_equal_a_slow_loop(ids: list[int], longest: int, stride: int, rows: int) -> None:
    """Blocks that follow each other, and windows that overlap."""
    starts = np.arange(0, len(ids), min(stride, longest), dtype=np.int32)
    bounds = np.stack([starts, np.minimum(starts + longest, len(ids))], axis=1).astype(np.int32)
    document = replace(document_of([[]] * len(bounds)), token_ids=np.asarray(ids, np.int32), bounds=bounds)
    similar = np.random.default_rng(len(ids)).random((10, rows)).astype(np.float32)
    found = nearest_tokens(replace(query_of("river"), similar=GivenSimilar(similar)), document)
    np.testing.assert_allclose(found, slow_nearest(similar, document), atol=1e-5)
