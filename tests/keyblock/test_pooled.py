"""Documents of one request compared by the words that they share with the query; no table knows the words."""

import numpy as np
import pytest

from keyblock.bundle import Bundle
from keyblock.pipeline import Pipeline
from keyblock.pooled import FEWEST, KEPT, Shared, fused_with_order, knows_language, pooled_evidence, rare_here, shared_terms
from keyblock.prepared import PreparedQuery, QueryDocument, WeighedQuery

QUERY = "which river flooded the old bridge"
GERMAN = "Der Fluss trat über die Ufer und beschädigte die alte Brücke, die erst im Jahr zuvor erneuert worden war. "
ENGLISH = "The river left its bed and damaged the old bridge, which had been renewed only a year before. "


@pytest.fixture(scope="module")
def english(embedded: Bundle) -> Pipeline:
    return embedded.pipeline


def shared_by(pipeline: Pipeline, query: PreparedQuery, text: str) -> Shared:
    return shared_terms(QueryDocument(WeighedQuery(query, pipeline.frequencies), pipeline.prepare_document(text)))


def test_a_term_counts_the_more_the_fewer_blocks_of_the_request_have_it(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query("river bridge")
    texts = ["river", "bridge", *["river"] * 5]
    best = pooled_evidence([shared_by(pipeline, query, text) for text in texts])[:, 0]
    # seven blocks: one has "bridge", ln(8 / 1.5); six have "river", ln(8 / 6.5); each block is as long as the others: tf 1 / 1.9
    assert best[:2] == pytest.approx([np.log(8 / 6.5) / 1.9, np.log(8 / 1.5) / 1.9], rel=1e-6)
    assert (best[2:] == best[0]).all()
    assert rare_here([shared_by(pipeline, query, text) for text in texts]).tolist() == best.tolist()


def test_a_document_is_worth_the_blocks_of_a_long_one_too(pipeline: Pipeline) -> None:
    """Only a few of its blocks are kept, and the one that says most is among them."""
    query = pipeline.prepare_query(QUERY)
    long = "A city by the sea. " * 4000 + "The river flooded the old bridge. " + "A city by the sea. " * 4000
    shared = shared_by(pipeline, query, long)
    assert shared.n_blocks == pipeline.prepare_document(long).n_blocks > 100
    assert shared.counts.shape == (len(query.terms), KEPT)
    assert shared.block_counts.tolist() == (shared.counts > 0).sum(axis=1).tolist()
    empty = shared_by(pipeline, query, "")
    evidence = pooled_evidence([shared, empty])
    assert evidence[0, 0] > 0
    assert evidence[1].tolist() == [0] * 5
    assert pooled_evidence([]).shape == (0, 5)
    assert rare_here([shared, None, empty]).tolist() == [evidence[0, 0], 0.0, 0.0]
    assert rare_here([None]).tolist() == [0.0]
    assert rare_here([]).shape == (0,)


def test_places_of_both_orders_count_alike() -> None:
    assert fused_with_order(np.asarray([1.0, 5.0, 9.0])) == pytest.approx([1 / 3 + 1 / 5, 1 / 4 + 1 / 4, 1 / 5 + 1 / 3])
    assert fused_with_order(np.asarray([0.0, 5.0])) == pytest.approx([1 / 3, 1 / 4 + 1 / 3]), "who shares nothing has one place"
    assert fused_with_order(np.zeros(3)) == pytest.approx([1 / 3, 1 / 4, 1 / 5]), "the order given"
    assert fused_with_order(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (ENGLISH * 3, True),
        (GERMAN * 3, False),
        (
            "Râul a ieșit din matcă și a avariat podul vechi, care fusese reînnoit abia cu un an înainte, spun localnicii. " * 3,
            False,
        ),
        ("Der Fluss trat über die Ufer.", True),  # too few words to say
        ("", True),
    ],
)
def test_whether_the_table_knows_a_language(english: Pipeline, text: str, known: bool) -> None:
    assert knows_language(english.frequencies, english.prepare_document(text)) is known


def test_few_terms_say_nothing(english: Pipeline) -> None:
    words = [f"qwz{n}" for n in range(FEWEST)]
    assert knows_language(english.frequencies, english.prepare_document(" ".join(words[1:])))
    assert not knows_language(english.frequencies, english.prepare_document(" ".join(words)))


def test_documents_and_queries_in_another_script_have_the_terms_of_any_language(english: Pipeline) -> None:
    selection = english.select(english.prepare_query("東京の首都"), english.prepare_document("日本の首都は東京です。" * 4))
    assert selection.shared is not None
    assert selection.shared.block_counts.any()
    assert selection.shared.foreign
    learned = english.select(english.prepare_query(QUERY), english.prepare_document(ENGLISH)).shared
    assert learned is not None
    assert (learned.foreign, learned.unknown) == (False, False)
    german = english.select(english.prepare_query("Welcher Fluss?"), english.prepare_document(GERMAN * 3))
    assert german.shared is not None
    assert (german.shared.foreign, german.shared.unknown) == (False, True)
