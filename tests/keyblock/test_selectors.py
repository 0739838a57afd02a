"""What a query and a document share, and selectors: against slow loops over formulas, rank_bm25, and numbers worked by hand."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from keyblock.prepared import BLOCKS_AT_ONCE, PreparedDocument, PreparedQuery, QueryDocument, WeighedQuery, idf_of
from keyblock.selectors import (
    SELECTORS,
    Bm25,
    Hybrid,
    Learned,
    Spread,
    TfIdf,
    Vectors,
    block_idf,
    drawn,
    rank_blocks,
)
from keyblock.text.analyzer import DocumentFrequencies, term_key
from tests.support.vectors import GivenSimilar

WORDS = ["river", "bridg", "citi", "stone", "flood", "year", "unseen"]
BLOCKS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=10)
QUERY = st.lists(st.sampled_from([*WORDS, "absent"]), unique=True, max_size=6)
UNKNOWN = DocumentFrequencies(999, {})  # a table that knows no word


def query_of(*terms: str) -> PreparedQuery:
    return PreparedQuery(np.arange(len(terms), dtype=np.int32), np.asarray([term_key(t) for t in terms], dtype=np.int64))


def document_of(blocks: list[list[str]]) -> PreparedDocument:
    """A document whose blocks hold these terms; one token a block."""
    n = len(blocks)
    keys = np.asarray([term_key(term) for block in blocks for term in block], dtype=np.int64)
    bounds = np.cumsum([0, *map(len, blocks)], dtype=np.int32)
    places = np.arange(n, dtype=np.int32)
    ranges = np.stack([places, places + 1], axis=1)
    return PreparedDocument(places, ranges, places, places + 1, keys, bounds, np.zeros(0, np.int32))


def pair_of(query: PreparedQuery, document: PreparedDocument, table: DocumentFrequencies = UNKNOWN) -> QueryDocument:
    return QueryDocument(WeighedQuery(query, table), document)


def slow_tfidf(query: list[str], block: list[str], table: DocumentFrequencies) -> float:
    """``sum over w in q and b of (ln tf(w, b) + 1) * ln((N + 1) / (df(w) + 1))``."""
    total = 0.0
    for word in query:
        if word in block:
            idf = math.log((table.n_documents + 1) / (table.frequencies.get(word, 0) + 1))
            total += (math.log(block.count(word)) + 1) * idf
    return total


def slow_bm25(
    query: list[str], block: list[str], blocks: list[list[str]], table: DocumentFrequencies, k1: float, b: float
) -> float:
    """``sum over w in q and b of idf(w) * tf / (k1 * (1 - b + b * len_b / avg_len) + tf)``."""
    average = sum(map(len, blocks)) / len(blocks)
    total = 0.0
    for word in query:
        if tf := block.count(word):
            idf = math.log((table.n_documents + 1) / (table.frequencies.get(word, 0) + 0.5))
            total += idf * tf / (k1 * (1 - b + b * len(block) / average) + tf)
    return total


@given(BLOCKS, QUERY)
def test_tfidf_equals_a_slow_loop(frequencies: DocumentFrequencies, blocks: list[list[str]], query: list[str]) -> None:
    scores = TfIdf().scores(query_of(*query), document_of(blocks), frequencies)
    np.testing.assert_allclose(scores, [slow_tfidf(query, block, frequencies) for block in blocks], rtol=1e-12, atol=1e-12)


@given(BLOCKS, QUERY, st.sampled_from([0.0, 0.9, 2.0]), st.sampled_from([0.0, 0.4, 1.0]))
def test_bm25_equals_a_slow_loop(
    frequencies: DocumentFrequencies, blocks: list[list[str]], query: list[str], k1: float, b: float
) -> None:
    scores = Bm25(k1=k1, b=b).scores(query_of(*query), document_of(blocks), frequencies)
    slow = [slow_bm25(query, block, blocks, frequencies, k1, b) for block in blocks]
    np.testing.assert_allclose(scores, slow, rtol=1e-12, atol=1e-12)


@given(BLOCKS.filter(any), QUERY)
def test_bm25_equals_rank_bm25(frequencies: DocumentFrequencies, blocks: list[list[str]], query: list[str]) -> None:
    """rank_bm25 over the blocks of one document, with document-level idf in place of its own and without its (k1 + 1)."""
    reference = BM25Okapi(blocks, k1=0.9, b=0.4)
    prepared = query_of(*query)
    reference.idf = dict(zip(query, idf_of(prepared.terms, frequencies).tolist(), strict=True))
    expected = np.asarray(reference.get_scores(query)) / (0.9 + 1)
    np.testing.assert_allclose(Bm25().scores(prepared, document_of(blocks), frequencies), expected, rtol=1e-12, atol=1e-12)


def test_tfidf_by_hand() -> None:
    """N = 9: df(river) = 1 gives ln 5, df(stone) = 4 gives ln 2; "river" twice counts 1 + ln 2."""
    table = DocumentFrequencies(9, {"river": 1, "stone": 4})
    document = document_of([["river", "river", "stone"], ["stone"], ["citi"]])
    scores = TfIdf().scores(query_of("river", "stone"), document, table)
    np.testing.assert_allclose(scores, [3.41816, 0.69315, 0.0], atol=1e-5)


def test_bm25_by_hand() -> None:
    """N = 9, df = 1: idf = ln(10 / 1.5) = 1.89712; lengths 3 and 1, mean 2; tf 2 in the long block, 1 in the short one.

    2 / (0.9 * (0.6 + 0.4 * 1.5) + 2) = 2 / 3.08 and 1 / (0.9 * (0.6 + 0.4 * 0.5) + 1) = 1 / 1.72.
    """
    document = document_of([["river", "river", "citi"], ["river"]])
    scores = Bm25().scores(query_of("river"), document, DocumentFrequencies(9, {"river": 1}))
    np.testing.assert_allclose(scores, [1.89712 * 2 / 3.08, 1.89712 / 1.72], atol=1e-5)


def test_bm25_by_a_documents_own_blocks() -> None:
    """No table knows "und": of three blocks, three have it and one has "fluss", so that weighs ln(4 / 1.5) against ln(4 / 3.5)."""
    document = document_of([["und", "und", "und"], ["und", "fluss", "x"], ["und", "y", "z"]])
    scores = Bm25(k1=0, idf="blocks").scores(query_of("und", "fluss"), document, DocumentFrequencies(0, {}))
    np.testing.assert_allclose(scores, [math.log(4 / 3.5), math.log(4 / 3.5) + math.log(4 / 1.5), math.log(4 / 3.5)])
    assert block_idf(np.ones((2, 1))).min() > 0


@pytest.mark.parametrize("name", sorted({*SELECTORS.names()} - {"learned"}))
def test_documents_without_blocks_or_terms(frequencies: DocumentFrequencies, name: str) -> None:
    selector, query = SELECTORS.create(name), replace(query_of("river"), vector=np.asarray([1, 0], np.float32))
    empty, silent = (replace(document_of([[]] * n), vectors=np.zeros((n, 2), np.int8)) for n in (0, 2))
    assert selector.scores(query, empty, frequencies).shape == (0,)
    wordless = selector.scores(query, silent, frequencies)
    assert wordless.shape == (2,)
    assert np.isfinite(wordless).all()


@given(st.integers(0, 2000), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_equal_scores_stay_in_document_order(n_blocks: int, n_values: int, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, n_values, n_blocks).astype(np.float64)
    assert rank_blocks(scores).tolist() == sorted(range(n_blocks), key=lambda block: -scores[block])


@pytest.mark.parametrize(("name", "order"), [("first", [0, 1, 2]), ("last", [2, 1, 0])])
def test_position_alone(frequencies: DocumentFrequencies, name: str, order: list[int]) -> None:
    scores = SELECTORS.create(name).scores(query_of("river"), document_of([["citi"], ["river"], ["river"]]), frequencies)
    assert rank_blocks(scores).tolist() == order


@given(st.integers(1, 60), st.integers(0, 2))
def test_spread_takes_the_first_the_last_and_others_at_random(frequencies: DocumentFrequencies, n_blocks: int, seed: int) -> None:
    document, query = document_of([["river"]] * n_blocks), query_of("river")
    order = rank_blocks(Spread(seed=seed).scores(query, document, frequencies)).tolist()
    assert order[:2] == [0, n_blocks - 1][:n_blocks]
    others = rank_blocks(drawn(pair_of(query, document), seed)).tolist()
    assert order[2:] == [block for block in others if block not in (0, n_blocks - 1)], "the others as they are drawn"


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), max_size=30), st.integers(0, 35))
def test_the_shortlist_equals_a_slow_loop(scores: list[float], keep: int) -> None:
    """Take the best remaining block, the earliest of equal ones, until enough are kept."""
    left, kept = list(range(len(scores))), []
    while left and (keep == 0 or len(kept) < keep):
        kept.append(max(left, key=lambda block: (scores[block], -block)))
        left.remove(kept[-1])
    assert Learned(keep=keep).shortlist(np.asarray(scores)).tolist() == sorted(kept)


def test_a_learned_selector_has_a_cheap_one() -> None:
    assert SELECTORS.create("learned").describe() == {
        "name": "learned",
        "keep": 0,
        "by": {"name": "bm25", "k1": 0.9, "b": 0.4, "idf": "documents"},
    }
    cascade = Learned(keep=3, by={"name": "bm25", "k1": 2})
    assert cascade.cheap == Bm25(k1=2.0)
    assert SELECTORS.create(cascade.describe()) == cascade
    with pytest.raises(ValueError, match=r"by: .*the cheap selector cannot be 'learned': that needs the model itself"):
        SELECTORS.create({"name": "learned", "by": {"name": "learned"}})
    with pytest.raises(ValueError, match="unknown selector 'best'"):
        SELECTORS.create({"name": "learned", "by": {"name": "best"}})


def with_given_vectors(document: PreparedDocument, *vectors: list[float]) -> PreparedDocument:
    return replace(document, vectors=np.rint(np.asarray(vectors) * 127).astype(np.int8))


def test_cosines_by_hand() -> None:
    """A query towards (0.6, 0.8): the same way 1, along one axis 0.6, across 0, against it -1; nothing known 0."""
    document = document_of([["river"], ["stone"], ["citi"], ["year"], []])
    document = with_given_vectors(document, [0.6, 0.8], [1, 0], [0.8, -0.6], [-0.6, -0.8], [0, 0])
    query = replace(query_of("river"), vector=np.asarray([0.6, 0.8], np.float32))
    scores = Vectors().scores(query, document, DocumentFrequencies(9, {}))
    np.testing.assert_allclose(scores, [1, 0.6, 0, -1, 0], atol=0.006)
    assert scores.dtype == np.float64


def test_equal_blocks_have_equal_scores_wherever_they_stand() -> None:
    """BLAS adds the last rows of a matrix in another order than the first: such a difference would be called evidence."""
    rng = np.random.default_rng(0)
    table, words = DocumentFrequencies(999, {word: 10 * (n + 1) for n, word in enumerate(WORDS)}), WORDS[:6]
    vector = rng.normal(size=128).astype(np.float32)
    query = replace(
        query_of(*WORDS), vector=vector / np.linalg.norm(vector), similar=GivenSimilar(rng.random((99, 9)).astype(np.float32))
    )
    block, own = words + words[:3] + words[:1], [float(x) for x in rng.uniform(-0.2, 0.2, 128)]
    for n in range(2, 140, 3):
        document = with_given_vectors(document_of([block] * n), *[own] * n)
        document = replace(document, token_ids=np.zeros(n, np.int32))
        for selector in (Bm25(), TfIdf(), Vectors(), Hybrid(soft=1, rare=1)):
            assert len(set(selector.scores(query, document, table).tolist())) == 1, (selector.name, n)


@pytest.mark.parametrize(
    ("cosines", "soft", "near", "evident"),
    [
        ([0.0, 0.24, 0.1], 0, None, False),
        ([0.0, 0.26, 0.1], 0, None, True),
        ([0.6, 0.6, 0.6], 0, None, False),
        ([0.0, 0.26, 0.1], 0, 0.5, False),
        ([0.0, 0.26, 0.1], 1, None, False),
        ([0.0, 0.26, 0.1], 1, 0.25, True),
    ],
)
def test_a_block_must_be_near_where_no_term_tells_apart(
    cosines: list[float], soft: float, near: float | None, *, evident: bool
) -> None:
    """The nearest tokens are 0, 0.3 and 0.2 from the query."""
    document = with_given_vectors(document_of([["river"], ["stone"], ["citi"]]), *([one, (1 - one**2) ** 0.5] for one in cosines))
    query = replace(query_of("year"), vector=np.asarray([1, 0], np.float32), similar=GivenSimilar([[0], [0.3], [0.2]]))
    given = {} if near is None else {"near": near}
    hybrid, alone, pair = Hybrid(soft=soft, **given), Vectors(**given), pair_of(query, document)
    assert hybrid.tells_apart(hybrid.of(pair), np.zeros(3), pair) == evident
    assert hybrid.tells_apart(hybrid.of(pair), np.asarray([0.0, 0.1, 0.0]), pair)
    assert alone.tells_apart(alone.of(pair), np.zeros(3), pair) == (max(cosines) >= (near or 0.25) and len(set(cosines)) > 1)


def test_hybrid_by_hand() -> None:
    """N = 999: idf(river) = ln(1000 / 0.5) = 7.6009, idf(year) = ln(1000 / 600.5) = 0.5100; blocks of one term: tf / (0.9 + tf).

    Block 0 has the rare term: 7.6009 / 1.9 / 8.1109 + exact; block 1 the common one: 0.51 / 1.9 / 8.1109; block 2 the cosine.
    """
    table = DocumentFrequencies(999, {"year": 600})
    document = with_given_vectors(document_of([["river"], ["year"], ["citi"]]), [0, 1], [0, 1], [1, 0])
    query = replace(query_of("river", "year"), vector=np.asarray([1, 0], np.float32))
    scores = Hybrid(terms=2, vectors=0.5, exact=0.7).scores(query, document, table)
    np.testing.assert_allclose(scores, [2 * 0.49322 + 0.7, 2 * 0.03310, 0.5], atol=1e-4)
    raw = Hybrid(terms=2, scale="none", vectors=0.5, exact=0).scores(query, document, table)
    np.testing.assert_allclose(raw, [2 * 4.00047, 2 * 0.26844, 0.5], atol=1e-4)


@pytest.mark.parametrize("name", ["tfidf", "bm25"])
def test_no_match_falls_back_to_document_order(frequencies: DocumentFrequencies, name: str) -> None:
    document = document_of([["river"]] * 30)
    for query in (query_of("absent"), query_of()):
        scores = SELECTORS.create(name).scores(query, document, frequencies)
        assert scores.tolist() == [0.0] * 30
        assert rank_blocks(scores).tolist() == list(range(30))


BY_MEANING, BY_NAMES = Hybrid(terms=0, vectors=1, low_confidence=4, exact=0), partial(Hybrid, terms=0, vectors=0, exact=4)
DELTA, CODE = [["delta"], ["citi"]], [["citi"], ["river"], ["river"], ["citi"]]
ALL_OVER, NAMES = [["delta"], [], ["delta", "river"], [], ["delta"]], ["delta", "river"]
BESIDE: dict[str, Any] = {
    "half of the words are found": (BY_MEANING, DELTA, NAMES, [0, 3]),  # half of `low_confidence` joins `vectors`
    "all words are found": (BY_MEANING, DELTA, ["delta"], [0, 1]),
    "no word is found": (BY_MEANING, DELTA, ["river"], [0, 5]),
    "there is no word": (BY_MEANING, DELTA, [], [0, 5]),
    "any name tells": (BY_NAMES(), ALL_OVER, NAMES, [2, 0, 4, 0, 2]),
    "a name all over the document tells nothing": (BY_NAMES(exact_blocks=1), ALL_OVER, NAMES, [0, 0, 2, 0, 0]),
    "a name may be in so many blocks": (BY_NAMES(exact_blocks=3), ALL_OVER, NAMES, [2, 0, 4, 0, 2]),
    "a code that the next block repeats tells": (BY_NAMES(exact_blocks=1), CODE, ["river"], [0, 4, 4, 0]),
}


@pytest.mark.parametrize(("hybrid", "blocks", "query", "expected"), BESIDE.values(), ids=BESIDE)
def test_what_words_and_names_count_beside_the_meaning(
    hybrid: Hybrid, blocks: list[list[str]], query: list[str], expected: list[float]
) -> None:
    """The last block is as near as can be, the others are not near at all."""
    document = with_given_vectors(document_of(blocks), *[[0, 1]] * (len(blocks) - 1), [1, 0])
    prepared = replace(query_of(*query), vector=np.asarray([1, 0], np.float32))
    np.testing.assert_allclose(hybrid.scores(prepared, document, UNKNOWN), expected, atol=1e-2)


@given(BLOCKS.filter(any), QUERY, st.data())
def test_no_similarity_outweighs_a_rare_term(
    frequencies: DocumentFrequencies, blocks: list[list[str]], query: list[str], data: st.DataObject
) -> None:
    """A block with all rare terms of the query that the document has stands before any without one, whatever their vectors."""
    angles = data.draw(st.lists(st.floats(0, np.pi / 2), min_size=len(blocks), max_size=len(blocks)))
    document = with_given_vectors(document_of(blocks), *([np.cos(angle), np.sin(angle)] for angle in angles))
    prepared = replace(query_of(*query), vector=np.asarray([1, 0], np.float32))
    scores = Hybrid(terms=0, rare=0.03, vectors=0.9, exact=1).scores(prepared, document, frequencies)
    rare = {word for word in query if frequencies.frequencies.get(word, 0) <= 30 and any(word in block for block in blocks)}
    having = [score for score, block in zip(scores, blocks, strict=True) if rare and rare <= set(block)]
    without = [score for score, block in zip(scores, blocks, strict=True) if not rare & set(block)]
    assert not having or not without or min(having) > max(without)


@pytest.mark.parametrize("by", ["vectors", "hybrid", "first", "learned"])
def test_a_hybrids_terms_are_lexical(by: str) -> None:
    with pytest.raises(ValueError, match=f"hybrid: by: Value error, '{by}' does not go by terms"):
        SELECTORS.create({"name": "hybrid", "by": {"name": by}})


def test_selectors_that_compare_vectors_say_so() -> None:
    described: dict[str, dict[str, Any]] = {name: {"name": name} for name in SELECTORS.names()}
    described["cascade"] = {"name": "learned", "by": {"name": "hybrid"}}
    assert [name for name, one in described.items() if SELECTORS.create(one).compares_vectors] == ["hybrid", "vectors", "cascade"]
    assert not any(SELECTORS.create(name).lexical for name in ("hybrid", "vectors"))


def test_blocks_that_are_equally_near_are_not_distinguished() -> None:
    """Each holds the query's only word, which is a stop word: no block is the better for it."""
    document = with_given_vectors(document_of([["river"], ["citi"]]), [0.1, 0.9], [0.9, 0.1])
    query = replace(query_of(), vector=np.asarray([1, 0], np.float32), similar=GivenSimilar([[1.0], [1.0]]))
    hybrid, pair = Hybrid(soft=1), pair_of(query, document)
    assert not hybrid.tells_apart(hybrid.of(pair), np.zeros(2), pair)
    nearer = pair_of(replace(query, similar=GivenSimilar([[1.0], [0.0]])), document)
    assert hybrid.tells_apart(hybrid.of(nearer), np.zeros(2), nearer)


def test_what_was_not_made_is_not_compared() -> None:
    for selector in (Vectors(), Hybrid()):
        with pytest.raises(ValueError, match="vectors are compared that were not made"):
            selector.of(pair_of(query_of("river"), document_of([["river"]])))
    query = replace(query_of("river"), vector=np.asarray([1, 0], np.float32))
    with pytest.raises(ValueError, match="tokens are compared whose similarities were not made"):
        Hybrid(soft=1).of(pair_of(query, with_given_vectors(document_of([["river"]]), [1, 0])))
    assert not Hybrid().compares_tokens
    assert Learned(by={"name": "hybrid", "soft": 0.5}).compares_tokens


@given(BLOCKS, QUERY)
def test_counts_equal_a_slow_loop(blocks: list[list[str]], query: list[str]) -> None:
    pair = pair_of(query_of(*query), document_of(blocks))
    assert pair.counts.shape == pair.held.shape == (len(query), len(blocks))
    assert pair.counts.tolist() == [[block.count(word) for block in blocks] for word in query]
    assert pair.held.tolist() == [[word in block for block in blocks] for word in query]
    assert pair.found.tolist() == [any(word in block for block in blocks) for word in query]


def test_a_long_query_counts_every_term() -> None:
    """Thousands of distinct terms (a pasted page) take one pass over the document."""
    words = [f"word{i}" for i in range(5000)]
    counts = pair_of(query_of(*words), document_of([words[10:20] * 2, words[4990:]])).counts
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
    pair = pair_of(query, with_given_vectors(document_of([["river"]]), [1, 0]))
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
    pair = pair_of(replace(query_of("river"), similar=GivenSimilar(similar)), document)
    np.testing.assert_allclose(pair.near, slow_nearest(similar, document), atol=1e-5)
