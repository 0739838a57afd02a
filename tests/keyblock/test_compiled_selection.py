"""The compiled selection against the pipeline's own, document by document: the same blocks, ids, scores and shared terms."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock import native
from keyblock.bundle import Bundle
from keyblock.description import PipelineConfig
from keyblock.encoders import TokenTable
from keyblock.pipeline import Pipeline, Selection
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.text.analyzer import DocumentFrequencies, term_key
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.texts import texts_of
from tests.support.compiled import need_compiled

WORDS = [f"word{n}" for n in range(24)]
TABLE = DocumentFrequencies(1000, {word: 2 + n * n for n, word in enumerate(WORDS[:-3])})
TRAINED_ON = {"languages": ["en"], "scripts": ["latin"]}
DEFAULT = {"name": "hybrid", "vectors": 1.5, "low_confidence": 8.0, "soft": 2.0, "exact": 12.0, "rare": 0.01, "exact_blocks": 1}
HYBRID: dict[str, Any] = {"selector": DEFAULT, "encoder": {"name": "static"}, "trained_on": TRAINED_ON}
KINDS: dict[str, dict[str, Any]] = {
    "bm25": {},
    "default": HYBRID,
    "passages": {**HYBRID, "aggregator": {"name": "max", "passages": 3}},
    "every passage": {"aggregator": {"name": "mean"}, "trained_on": TRAINED_ON},
    "other evidence": {"selector": {"name": "bm25", "k1": 0.0, "b": 1.0}, "evidence": {"name": "bm25"}},
    "hybrid of another": {
        "selector": {"name": "hybrid", "by": {"name": "bm25", "k1": 2.0}, "scale": "none", "rare": 1.0},
        "evidence": {"name": "bm25", "b": 0.75},
        "encoder": {"name": "static"},
    },
    "vectors alone": {
        "selector": {"name": "hybrid", "terms": 0.0, "exact": 0.0, "soft": 0.3, "near": 0.1},
        "encoder": {"name": "static"},
    },
}


@pytest.fixture(scope="module")
def pipelines(tokenizer: Tokenizer) -> dict[str, Pipeline]:
    need_compiled()
    rng = np.random.default_rng(0)
    table = TokenTable(
        rng.integers(-127, 128, (tokenizer.vocabulary_size, 19)).astype(np.int8),
        rng.random(tokenizer.vocabulary_size).astype(np.float32),
    )
    made = {}
    for name, parts in KINDS.items():
        config = PipelineConfig.model_validate(parts)
        made[name] = Pipeline(config, tokenizer, TABLE, table if config.encoder else None)
    return made


@st.composite
def documents(draw: st.DrawFn) -> PreparedDocument:
    """Blocks of few tokens and terms, so that many tie; neighbours may overlap."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.sampled_from([0, 1, 1, 2, 3, 7, 40, 70]))
    starts = np.cumsum(rng.integers(1, 9, n)).astype(np.int32)
    ends = starts + rng.integers(1, 12, n).astype(np.int32)
    bounds = np.stack([starts, ends], axis=1).astype(np.int32)
    tokens = int(ends.max(initial=0)) + draw(st.integers(0, 3))
    ids = rng.integers(1000, 1000 + draw(st.sampled_from([3, 29_000])), tokens).astype(np.int32)
    lengths = rng.integers(0, draw(st.sampled_from([1, 3, 12])), n) if n else np.zeros(0, np.intp)
    keys = np.asarray([term_key(word) for word in rng.choice(WORDS, int(lengths.sum()))], np.int64)
    term_bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    title = rng.integers(1000, 9000, draw(st.integers(0, 12))).astype(np.int32)
    return PreparedDocument(ids, bounds, starts, ends, keys, term_bounds, title)


QUERIES = st.lists(st.sampled_from([*WORDS, "unseen"]), unique=True, max_size=16).map(" ".join)


def query_of(pipeline: Pipeline, words: str) -> PreparedQuery:
    """Its terms are the words as they are, its tokens any."""
    query = pipeline.prepare_query(words)
    return replace(query, terms=np.asarray([term_key(word) for word in words.split()], np.int64))


def given_to(pipeline: Pipeline, document: PreparedDocument) -> PreparedDocument:
    """With vectors, in whole numbers, where the pipeline compares them."""
    if pipeline.encoder is None:
        return document
    rng = np.random.default_rng(document.n_blocks)
    vectors = rng.integers(-2, 3, (document.n_blocks, pipeline.encoder.dimensions)).astype(np.int8)
    return replace(document, vectors=vectors)


def contents(selection: Selection) -> list[Any]:
    """All that it says, with numbers as they are, bit by bit."""
    shared = selection.shared
    sequences = [(p.ids.tolist(), p.split, p.taken.tolist(), p.cut, p.weight, p.logit) for p in selection.sequences]
    arrays = [selection.taken, selection.scores, selection.evidence, selection.reach, *(shared[:2] if shared else [])]
    flags = [selection.by, selection.selection_tokens, shared and shared[2:]]
    return [sequences, [(one.dtype, one.shape, one.tolist()) for one in arrays], flags]


def assert_equal(pipeline: Pipeline, query: PreparedQuery, prepared: Sequence[PreparedDocument], budget: int | None = None) -> None:
    compiled = pipeline.select_each(query, prepared, budget)
    plain = [pipeline.select(query, document, budget) for document in prepared]
    assert [contents(one) for one in compiled] == [contents(one) for one in plain]


@pytest.mark.parametrize("kind", KINDS)
@given(words=QUERIES, drawn=st.lists(documents(), max_size=3), budget=st.integers(64, 160))
def test_any_query_and_any_documents(
    pipelines: dict[str, Pipeline], kind: str, words: str, drawn: list[PreparedDocument], budget: int
) -> None:
    pipeline = pipelines[kind]
    assert pipeline._compiled is not None
    assert_equal(pipeline, query_of(pipeline, words), [given_to(pipeline, document) for document in drawn], budget)


def test_by_hand(pipelines: dict[str, Pipeline]) -> None:
    """Of three blocks the second has the only word that is asked for: it is taken first, and stands between the others."""
    places = np.asarray([[0, 2], [2, 4], [4, 6]], np.int32)
    keys, ends = np.asarray([term_key("word7")], np.int64), np.asarray([0, 0, 1, 1], np.int32)
    document = PreparedDocument(np.arange(2000, 2006, dtype=np.int32), places, *places.T, keys, ends, np.zeros(0, np.int32))
    query = query_of(pipelines["bm25"], "word7")
    (selection,) = pipelines["bm25"].select_each(query, [document])
    # one term in a block of 1, where blocks have a third on average: tf 1 / (0.9 * (0.6 + 0.4 * 3) + 1), df 51 of 1000
    weight = np.log(1001 / 51.5) / (0.9 * (0.6 + 0.4 * 3) + 1)
    assert selection.scores == pytest.approx([0, weight, 0], rel=1e-12)
    assert selection.taken.tolist() == [1, 0, 2]
    assert selection.packed.ids.tolist() == [101, *query.token_ids.tolist(), 102, *range(2000, 2006), 102]
    assert selection.evidence == pytest.approx([weight, weight / 3, 1, 0, np.log(1001 / 51.5)])
    assert selection.by is None, "all is read"


@pytest.mark.parametrize(
    "parts",
    [
        {"selector": {"name": "tfidf"}},
        {"selector": {"name": "bm25", "idf": "blocks"}},
        {"selector": {"name": "learned"}},
        {"aggregator": {"name": "max"}, "packing": {"grow": True}},
        {"aggregator": {"name": "term_weighted"}},
    ],
)
def test_what_it_does_not_know_is_left_to_the_pipeline(tokenizer: Tokenizer, parts: dict[str, Any]) -> None:
    need_compiled()
    assert Pipeline(PipelineConfig.model_validate(parts), tokenizer, TABLE)._compiled is None


def test_without_the_compiled_part_results_are_the_same(
    tokenizer: Tokenizer, pipelines: dict[str, Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = pipelines["bm25"]
    query, prepared = compiled.prepare_query("word1 word2"), [compiled.prepare_document("word1. " * n) for n in range(3)]
    expected = [contents(one) for one in compiled.select_each(query, prepared)]
    monkeypatch.setattr(native, "core", None)
    plain = Pipeline(PipelineConfig(), tokenizer, TABLE)
    assert plain._compiled is None
    assert [contents(one) for one in plain.select_each(query, prepared)] == expected


def test_the_error_says_what_cannot_be_selected(pipelines: dict[str, Pipeline]) -> None:
    hybrid, bm25 = pipelines["default"], pipelines["bm25"]
    document, bare = bm25.prepare_document("word1"), bm25.prepare_query("word1")
    with pytest.raises(ValueError, match="a budget of 4 tokens has no room"):
        bm25.select_each(bare, [document], 4)
    with pytest.raises(ValueError, match="vectors are compared that were not made"):
        hybrid.select_each(bare, [document])
    query = hybrid.prepare_query("word1")
    with pytest.raises(ValueError, match="tokens are compared whose similarities were not made"):
        hybrid.select_each(replace(query, similar=None), [document])
    for damaged in (document, replace(document, bounds=document.bounds + 9), replace(document, term_bounds=document.bounds[0])):
        with pytest.raises(ValueError, match="arrays do not belong together, or to this pipeline"):
            hybrid.select_each(query, [given_to(hybrid, damaged) if damaged is not document else document])
    halved = replace(document, bounds=np.ones(4, np.int32)[:3])  # a block and a half
    with pytest.raises(ValueError, match="arrays do not belong together, or to this pipeline"):
        bm25.select_each(bare, [halved])


def test_arrays_of_another_kind(pipelines: dict[str, Pipeline]) -> None:
    """Wider numbers, those that lie apart, and those that are not aligned are read as well."""
    pipeline = pipelines["bm25"]
    document = pipeline.prepare_document("word1 word2. word3 word1. " * 30)
    wide = replace(document, token_ids=document.token_ids.astype(np.int64), bounds=np.asfortranarray(document.bounds))
    shifted = np.frombuffer(b"." + document.terms.tobytes(), document.terms.dtype, offset=1)
    assert not shifted.flags.aligned
    query = pipeline.prepare_query("word3")
    expected, *others = (pipeline.select_each(query, [one]) for one in (document, wide, replace(document, terms=shifted)))
    assert all(contents(other[0]) == contents(expected[0]) for other in others)


def test_several_threads(pipelines: dict[str, Pipeline]) -> None:
    pipeline = pipelines["default"]
    query = pipeline.prepare_query("word1 word5")
    prepared = pipeline.prepare_documents([f"word{n}. word5 word{n % 3}. " * (5 * n) for n in range(12)])
    expected = [contents(one) for one in pipeline.select_each(query, prepared)]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: pipeline.select_each(query, prepared), range(24)):
            assert [contents(one) for one in found] == expected


def test_every_collection(shared_data: Path, embedded: Bundle) -> None:
    """The first documents of each, in whatever language, for queries of its own."""
    need_compiled()
    ours = embedded.pipeline
    config = ours.config.model_copy(update={"aggregator": {"name": "max"}})
    passages = Pipeline(config, ours.tokenizer, ours.frequencies, ours.encoder)
    corpora = sorted(shared_data.rglob("corpus.jsonl.gz"))
    assert len(corpora) > 3
    for corpus in corpora:
        prepared = ours.prepare_documents([text[:20_000] for text in texts_of(corpus, 3)])
        (query,) = texts_of(corpus.with_name("queries.jsonl.gz"), 1)
        for pipeline in (ours, passages):
            assert_equal(pipeline, pipeline.prepare_query(query), prepared)
