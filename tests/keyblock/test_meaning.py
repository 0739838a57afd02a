"""What understanding a document changes: which blocks are chosen of it, and whether the model reads it."""

import weakref
from collections.abc import Callable

import numpy as np
import pytest

from keyblock.description import PipelineConfig
from keyblock.fusion import Fusion
from keyblock.meaning import Understanding
from keyblock.pipeline import Pipeline
from keyblock.pre_ranking import PreRanking
from keyblock.prepared import similarities
from keyblock.ranking.order import candidate, without_skipped
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.support.vectors import concept_table

FILLER = "It rains on the hills again, and the old road to the mill is closed until the spring comes. "
PARAPHRASE = "In case of sickness, inform the manager before nine. "
QUERY = "Whom do I tell when I am ill?"


@pytest.fixture(scope="module")
def understanding(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Callable[..., Pipeline]:
    """Makes pipelines whose encoder knows one word, and whose sentence encoder knows what is meant."""

    def make(**parts: object) -> Pipeline:
        described = {"selector": {"name": "hybrid"}, "encoder": {"name": "static"}, "meaning": {"weight": 2.0}} | parts
        config = PipelineConfig.model_validate(described)
        return Pipeline(config, tokenizer, frequencies, concept_table(tokenizer, [["hills"]]), lambda: concept_table(tokenizer))

    return make


def read(pipeline: Pipeline) -> Understanding:
    assert pipeline.understanding is not None
    return pipeline.understanding


def test_a_paraphrase_is_chosen_once_its_document_is_understood(understanding: Callable[..., Pipeline]) -> None:
    pipeline = understanding()
    text = FILLER * 12 + PARAPHRASE * 3 + FILLER * 12
    query, document = pipeline.prepare_query(QUERY), pipeline.prepare_document(text)
    understood = read(pipeline).read(document)
    chosen = {}
    for one in (document, understood):
        (best, *_) = pipeline.select(query, one).taken
        chosen[read(pipeline).has_read(one)] = text[one.starts[best] : one.ends[best]]
    assert PARAPHRASE.strip() in chosen[True]
    assert PARAPHRASE.strip() not in chosen[False]


def test_the_product_is_the_cosine_and_the_weighted_cosine_of_the_meaning(understanding: Callable[..., Pipeline]) -> None:
    pipeline = understanding()
    document = pipeline.prepare_document(FILLER * 6 + PARAPHRASE * 6)
    query = pipeline.prepare_query(f"{QUERY} On the hills?")
    understood = read(pipeline).read(document)
    assert document.vectors is not None
    assert understood.vectors is not None
    assert query.vector is not None
    own = document.vectors @ query.vector / 127
    beside = pipeline.beside(query, understood)
    assert beside.vector is not None
    weighed = understood.vectors[:, len(query.vector) :] @ beside.vector[len(query.vector) :] / 127
    assert weighed.max() > own.max() > 0
    np.testing.assert_allclose(similarities(beside, understood), own + weighed, atol=1e-6)
    assert read(pipeline).nearest(query, [understood]) == [pytest.approx(weighed.max() / 2, abs=1e-6)]


def test_understood_and_other_documents_are_chosen_from_as_each_alone(understanding: Callable[..., Pipeline]) -> None:
    """Compiled or not, in any mixture, with a word that only some documents spell as the query does."""
    pipeline = understanding()
    query = pipeline.prepare_query("Whom do I tell on the hills when I am ill?")
    plain = [pipeline.prepare_document(FILLER * n + PARAPHRASE * 2 + FILLER * 3) for n in range(1, 7)]
    documents = [read(pipeline).read(one) if n % 2 else one for n, one in enumerate([*plain, pipeline.prepare_document("")])]
    together = pipeline.select_each(query, documents)
    for one, document in zip(together, documents, strict=True):
        alone = pipeline.select(query, document)
        assert one.taken.tolist() == alone.taken.tolist()
        np.testing.assert_allclose(one.scores, alone.scores, rtol=1e-12)
        assert (one.meaning is not None) == read(pipeline).has_read(document)


def test_documents_of_other_widths_are_refused(understanding: Callable[..., Pipeline]) -> None:
    pipeline = understanding()
    document = pipeline.prepare_document(FILLER)
    understood = read(pipeline).read(document)
    for fine in (document, understood, read(pipeline).read(understood)):
        pipeline.check(fine)
    assert understood.vectors is not None
    with pytest.raises(ValueError, match=r"has vectors of shape \(1, 2\), and the pipeline makes them of \(1, 7\)"):
        pipeline.check(document.with_vectors(understood.vectors[:, :2]))


def test_the_nearest_in_meaning_are_never_skipped(understanding: Callable[..., Pipeline]) -> None:
    """Thirty documents repeat the query's words; the one that answers has none of them."""
    pipeline = understanding(pre_ranking=PreRanking(share=0.1, least=1, per_result=1), fusion=Fusion(coverage=1.0, best_block=1.0))
    query = pipeline.prepare_query("Whom do I tell when I am ill on the road?")
    texts = [f"{FILLER} On the road number {n}, whom do I tell?" for n in range(30)] + [PARAPHRASE]
    documents = [pipeline.prepare_document(text) for text in texts]
    skipped = {}
    for name, last in (("plain", documents[-1]), ("understood", read(pipeline).read(documents[-1]))):
        candidates = [candidate(d, s) for d, s in zip(documents, pipeline.select_each(query, [*documents[:-1], last]), strict=True)]
        kept = without_skipped(candidates, pipeline.config, results=2)
        skipped[name] = kept[-1].skipped
    assert skipped == {"plain": True, "understood": False}


def test_nothing_is_left_of_what_understood(understanding: Callable[..., Pipeline]) -> None:
    """Without a garbage collection: a service freezes what it has loaded, so that none would find it."""
    left = weakref.ref(read(understanding()))
    assert left() is None


def test_a_bundle_without_the_encoder_at_hand_ranks_as_before(understanding: Callable[..., Pipeline]) -> None:
    pipeline = understanding()
    bare = Pipeline(pipeline.config, pipeline.tokenizer, pipeline.frequencies, pipeline.encoder)
    assert bare.understanding is None
    document = bare.prepare_document(FILLER * 4 + PARAPHRASE)
    ours, theirs = (one.select(one.prepare_query(QUERY), document) for one in (bare, pipeline))
    assert ours.scores.tolist() == theirs.scores.tolist()
