"""Queries that meet documents: what is chosen, by what, and how it is packed."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.packing import pack
from keyblock.pipeline import Pipeline, Selection, Shortlist
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selectors import SelectedBy, rank_blocks
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.pipelines import TEXT, make, slices_of
from tests.support.vectors import concept_table


@given(TEXT, TEXT, TEXT, st.integers(64, 256))
def test_any_query_meets_any_document(pipeline: Pipeline, query: str, title: str, text: str, budget: int) -> None:
    prepared, document = pipeline.prepare_query(query), pipeline.prepare_document(text, title)
    selection = pipeline.select(prepared, document, budget)
    ids = selection.packed.ids.tolist()
    assert len(ids) <= budget
    assert ids[: selection.packed.split] == [101, *prepared.token_ids.tolist(), 102]
    assert ids[-1] == 102
    assert ids.count(101) == 1
    assert ids.count(102) == 2, "nothing in a text ends a segment"
    assert np.isfinite(selection.scores).all()
    assert np.isfinite(selection.evidence).all()
    assert selection.packed.taken.tolist() == rank_blocks(selection.scores)[: len(selection.packed.taken)].tolist()


def test_the_title_takes_no_part_in_selection(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query("river")
    plain, titled = (pipeline.select(query, pipeline.prepare_document("A city. " * 50, title)) for title in ("", "River"))
    np.testing.assert_array_equal(plain.scores, titled.scores)
    np.testing.assert_array_equal(plain.evidence, titled.evidence)
    assert titled.packed.ids.tolist()[3:5] == [2314, 1037]


def test_the_blocks_that_match_are_fed_in_document_order(pipeline: Pipeline) -> None:
    filler = "It was a quiet afternoon in the little town, as nearly all afternoons there had been for years. " * 8
    text = filler + "The river flooded the old bridge. " + filler + "The river has one bridge. " + filler
    document, query = pipeline.prepare_document(text), pipeline.prepare_query("Which bridge did the river flood?")
    selection = pipeline.select(query, document)
    first, second = selection.packed.taken[:2].tolist()
    assert "flooded the old bridge" in text[document.starts[first] : document.ends[first]]
    assert "has one bridge" in text[document.starts[second] : document.ends[second]]
    fed = selection.packed.ids.tolist()
    flooded, one = (pipeline.tokenizer.ids(words).tolist() for words in ("flooded the old bridge", "has one bridge"))
    places = [next(i for i in range(len(fed)) if fed[i : i + len(words)] == words) for words in (flooded, one)]
    assert places == sorted(places)
    assert selection.evidence[2] == pytest.approx(1.0), "every term of the query occurs in the document"


SENTENCES = ("The river flooded the bridge. ", "A quiet city of stone. ", "Years went by. ", "The old bridge of the city stands. ")
WORDED = st.lists(st.sampled_from(SENTENCES), max_size=40).map("".join)


def scores_of(shortlist: Shortlist) -> NDArray[np.float32]:
    """Stands for a model's logits: a number of each sequence's tokens that has nothing to do with BM25."""
    return np.asarray([zlib.crc32(packed.ids.tobytes()) % 1000 / 500 - 1 for packed in shortlist.sequences], dtype=np.float32)


def select(pipeline: Pipeline, query: PreparedQuery, document: PreparedDocument) -> Selection:
    """In two rounds, as a learned selector needs."""
    shortlist = pipeline.shortlist(query, document)
    return pipeline.select(query, document, shortlisted=(shortlist, scores_of(shortlist)))


SMALL = {"name": "cogltx", "block_tokens": 12}


@given(WORDED, st.integers(0, 12))
def test_a_learned_selectors_order(fine: Pipeline, text: str, keep: int) -> None:
    """The blocks asked about by the model's logit, then the others by BM25; the evidence is BM25's whatever the model says."""
    learned = make(fine.tokenizer, fine.frequencies, segmenter=SMALL, selector={"name": "learned", "keep": keep})
    plain = make(fine.tokenizer, fine.frequencies, segmenter=SMALL)
    query, document = learned.prepare_query("Did the river flood the city?"), learned.prepare_document(text, "Title")
    cheap, shortlist = plain.select(query, document), learned.shortlist(query, document)
    asked = sorted(rank_blocks(cheap.scores)[: keep or None].tolist())
    logits = dict(zip(asked, scores_of(shortlist).tolist(), strict=True))
    others = [block for block in rank_blocks(cheap.scores).tolist() if block not in logits]
    order = [*sorted(asked, key=lambda block: (-logits[block], -cheap.scores[block], block)), *others]
    selection = select(learned, query, document)
    assert shortlist.blocks.tolist() == asked
    assert selection.taken.tolist() == order[: len(selection.taken)]
    assert selection.scores.tolist() == [logits.get(block, -np.inf) for block in range(document.n_blocks)]
    np.testing.assert_array_equal(shortlist.known.cheap, cheap.scores)
    np.testing.assert_array_equal(selection.evidence, cheap.evidence)
    expected = pack(query, document, np.asarray(order, dtype=np.intp), learned.tokenizer.template, 128)
    np.testing.assert_array_equal(selection.packed.ids, expected.ids)


def test_the_model_reads_a_single_block_as_if_it_were_the_document(pipeline: Pipeline) -> None:
    """BinB's pairs: the query, the title, and one block."""
    binb = make(pipeline.tokenizer, pipeline.frequencies, segmenter=SMALL, selector={"name": "learned"})
    text = "".join(SENTENCES * 2)[:-60]
    query, document = binb.prepare_query("river"), binb.prepare_document(text, "Floods")
    sequences = binb.shortlist(query, document).sequences
    assert len(sequences) == document.n_blocks == 3
    for piece, packed in zip(slices_of(text, document), sequences, strict=True):
        alone = pipeline.select(query, pipeline.prepare_document(piece, "Floods")).packed
        assert packed.ids.tolist() == alone.ids.tolist()
        assert packed.split == alone.split


def test_learned_selectors_work_in_two_rounds(pipeline: Pipeline) -> None:
    binb = make(pipeline.tokenizer, pipeline.frequencies, selector={"name": "learned"})
    query, document = pipeline.prepare_query("river"), pipeline.prepare_document("A river.")
    assert not pipeline.asks_model
    assert binb.asks_model
    with pytest.raises(ValueError, match="selector 'bm25' needs no model, so it has no shortlist"):
        pipeline.shortlist(query, document)
    with pytest.raises(ValueError, match="selector 'learned' needs the model's logits of its shortlist"):
        binb.select(query, document)
    with pytest.raises(ValueError, match="a budget of 4 tokens has no room"):
        binb.shortlist(query, document, budget=4)


@given(WORDED, st.sampled_from(["max", "mean", "sum", "states"]), st.integers(0, 6))
def test_passages_are_sequences_of_their_own_in_document_order(fine: Pipeline, text: str, name: str, passages: int) -> None:
    passage = make(fine.tokenizer, fine.frequencies, segmenter=SMALL, aggregator={"name": name, "passages": passages})
    query, document = passage.prepare_query("Which river?"), passage.prepare_document(text, "Title")
    selection = passage.select(query, document, budget=64)
    assert selection.taken.tolist() == rank_blocks(selection.scores)[: passages or None].tolist()
    assert len(selection.sequences) == min(passages or document.n_blocks, document.n_blocks)
    for block, packed in zip(sorted(selection.taken.tolist()), selection.sequences, strict=True):
        alone = pack(query, document, np.asarray([block]), passage.tokenizer.template, 64)
        assert packed.ids.tolist() == alone.ids.tolist()


@pytest.mark.parametrize("grow", [False, True])
def test_sequences_are_weighed_by_the_words_of_the_query_in_their_blocks(fine: Pipeline, grow: bool) -> None:
    """As the sequences stand, whatever order they were chosen in; one without a word of it weighs next to nothing."""
    texts = ["No word of it.", "A river.", "The bridge.", "A river and a river with its bridge."]
    packing = {"budget": 40, "budget_range": (40, 64), "query_tokens": 16, "grow": grow}
    aggregator = {"name": "term_weighted"}
    weighed = make(fine.tokenizer, fine.frequencies, segmenter={"name": "single_sentences"}, aggregator=aggregator, packing=packing)
    document = weighed.prepare_document(" ".join(texts))
    selection = weighed.select(weighed.prepare_query("Which bridge, which river?"), document)
    held = [0, 1, 1, 3]
    reach = selection.reach[np.argsort(selection.taken)].tolist()
    assert [one.weight for one in selection.sequences] == [max(sum(held[first:end]), 1e-6) for first, end in reach]
    assert grow == (len(reach) == 1)


def test_passages_that_grow_hold_whole_neighbours_and_say_which(fine: Pipeline) -> None:
    text = " ".join(f"Sentence {i} says nothing." for i in range(40)) + " The river flooded. " + "More follows here. " * 40
    packing = {"budget": 64, "budget_range": (64, 64), "query_tokens": 16, "grow": True}
    parts = {"segmenter": {"name": "sentences", "block_tokens": 16}, "packing": packing}
    grown = make(fine.tokenizer, fine.frequencies, aggregator={"name": "max", "passages": 2}, **parts)
    query, document = grown.prepare_query("Which river?"), grown.prepare_document(text)
    selection = grown.select(query, document)
    assert len(selection.sequences) == len(selection.taken) == 2
    first, end = selection.reach[0].tolist()
    assert first < selection.taken[0] < end - 1, "neighbours on both sides"
    passage = text[document.starts[first] : document.ends[end - 1]]
    assert "The river flooded." in passage
    assert passage[0].isupper()
    assert passage[-1] == "."
    in_document = np.argsort(selection.taken)
    whole = selection.sequences[int(np.flatnonzero(in_document == 0)[0])]
    query_ids, text_ids = query.token_ids.tolist(), grown.tokenizer.ids(passage).tolist()
    assert whole.ids.tolist() == [101, *query_ids, 102, *text_ids, 102], "as the tokenizer reads the passage alone"
    turned = selection.decided(np.asarray([1.0, 2.0], dtype=np.float32))
    assert turned.taken.tolist() == [int(selection.taken.max()), int(selection.taken.min())]
    assert turned.reach.tolist() == selection.reach[in_document[::-1]].tolist()


def test_a_joint_selection_has_one_sequence_always(pipeline: Pipeline) -> None:
    query = pipeline.prepare_query("river")
    for text in ("", "A river. " * 100):
        selection = pipeline.select(query, pipeline.prepare_document(text))
        assert selection.sequences == [selection.packed]
        assert selection.taken is selection.packed.taken
    passages = make(pipeline.tokenizer, pipeline.frequencies, aggregator={"name": "max"})
    assert passages.select(query, passages.prepare_document("")).sequences == []


@given(TEXT, TEXT)
def test_learned_selection_and_passages_on_any_text(small_block_pipelines: list[Pipeline], query: str, text: str) -> None:
    for each in small_block_pipelines[::2]:
        parts = {"segmenter": each.config.segmenter, "selector": {"name": "learned", "keep": 3}, "aggregator": {"name": "max"}}
        pipeline = make(each.tokenizer, each.frequencies, **parts)
        prepared, document = pipeline.prepare_query(query), pipeline.prepare_document(text, text)
        selection = select(pipeline, prepared, document)
        assert sorted(selection.taken.tolist()) == list(range(document.n_blocks))
        assert len(selection.sequences) == document.n_blocks
        assert np.isfinite(selection.evidence).all()
        assert np.isfinite(selection.scores).sum() == min(3, document.n_blocks)
        assert all(packed.ids[-1] == 102 and packed.ids.tolist().count(102) == 2 for packed in selection.sequences)


@pytest.mark.parametrize("selector", ["first", "last", "spread"])
def test_evidence_is_lexical_whatever_selects(fine: Pipeline, selector: str) -> None:
    """By hand: of two blocks, of three terms and of two, the first holds the only term that the query shares, once."""
    text = "winter garden. river. stone garden."
    pipeline = make(fine.tokenizer, fine.frequencies, segmenter={"name": "cogltx", "block_tokens": 5}, selector={"name": selector})
    query, document = pipeline.prepare_query("river"), pipeline.prepare_document(text)
    assert np.diff(document.term_bounds).tolist() == [3, 2]
    idf = np.log((1000 + 1) / (20 + 0.5))  # "river" is in 20 of the table's 1000 documents
    bm25 = idf * 1 / (0.9 * (1 - 0.4 + 0.4 * 3 / 2.5) + 1)
    assert pipeline.select(query, document).evidence.tolist() == pytest.approx([bm25, bm25 / 3, 1.0, 0.0, idf])
    nothing = pipeline.select(pipeline.prepare_query("teacher"), document)
    assert nothing.evidence[:-1].tolist() == [0, 0, 0, 0], "a longer document has no more evidence"


QUIET = "The winter garden was quiet. "


@pytest.mark.parametrize(
    ("text", "chosen_by"),
    [
        (QUIET * 60 + "The river flooded.", SelectedBy.EVIDENCE),
        (QUIET * 60, SelectedBy.POSITION),
        (QUIET + "The river flooded.", None),
        (QUIET * 3, None),
        ("", None),
    ],
    ids=["the last block", "no block", "read whole", "read whole, and no block", "empty"],
)
def test_what_chose_the_blocks(pipeline: Pipeline, text: str, chosen_by: SelectedBy | None) -> None:
    assert pipeline.select(pipeline.prepare_query("river"), pipeline.prepare_document(text)).by == chosen_by


def test_a_block_that_is_read_in_part_was_chosen(pipeline: Pipeline) -> None:
    """Both blocks are taken, and there is no room for the end of the second."""
    document = pipeline.prepare_document("The river flooded. " * 21)
    query = pipeline.prepare_query("stone")
    assert document.n_blocks == 2
    assert [len(pipeline.select(query, document, budget).packed.taken) for budget in (80, 256)] == [2, 2]
    assert [pipeline.select(query, document, budget).by for budget in (80, 256)] == [SelectedBy.POSITION, None]


def test_the_model_chose_where_it_saw_all_blocks_or_those_that_stood_out(fine: Pipeline) -> None:
    """With blocks of 5 tokens; of a document without the query's words a cascade sees the first two alone."""
    cascade = make(fine.tokenizer, fine.frequencies, segmenter=fine.config.segmenter, selector={"name": "learned", "keep": 2})
    binb = make(fine.tokenizer, fine.frequencies, segmenter=fine.config.segmenter, selector={"name": "learned"})
    chosen_by = []
    for text in (QUIET * 60 + "The river flooded.", QUIET * 60):
        for pipeline in (cascade, binb):
            query, document = pipeline.prepare_query("river"), pipeline.prepare_document(text)
            chosen_by.append(select(pipeline, query, document).by)
    assert chosen_by == [SelectedBy.MODEL, SelectedBy.MODEL, SelectedBy.POSITION, SelectedBy.MODEL]
    query, document = cascade.prepare_query("river"), cascade.prepare_document(QUIET * 60 + "The river flooded.")
    shortlist = cascade.shortlist(query, document)
    unasked = np.full(len(shortlist.blocks), -np.inf)
    assert cascade.select(query, document, shortlisted=(shortlist, unasked)).by == SelectedBy.EVIDENCE


FILLER = "The committee met again and spoke about the budget of the coming season at some length, as it had done before. "
PARAPHRASE = "In case of sickness, inform the manager before nine. "
ILL, SICKNESS = "Whom do I tell when I am ill?", FILLER * 12 + PARAPHRASE * 3 + FILLER * 12


def best_block(pipeline: Pipeline, query: str, text: str) -> str:
    document = pipeline.prepare_document(text)
    return slices_of(text, document)[pipeline.select(pipeline.prepare_query(query), document).taken[0]]


def test_a_paraphrase_is_found_where_no_word_is_shared(pipeline: Pipeline, hybrid: Pipeline) -> None:
    assert PARAPHRASE.strip() in best_block(hybrid, ILL, SICKNESS)
    assert PARAPHRASE.strip() not in best_block(pipeline, ILL, SICKNESS)  # which shares no term with it


def test_vectors_change_nothing_but_the_selection(pipeline: Pipeline, hybrid: Pipeline) -> None:
    text, query = FILLER * 3 + "The river flooded the old bridge. " + FILLER * 3, "river flood"
    ours, plain = (one.select(one.prepare_query(query), one.prepare_document(text, "Floods")) for one in (hybrid, pipeline))
    np.testing.assert_array_equal(ours.evidence, plain.evidence)
    assert ours.packed.ids.tolist() == plain.packed.ids.tolist()
    assert pipeline.prepare_query(query).vector is None
    assert pipeline.prepare_document(text).vectors is None


def test_the_nearest_token_alone_finds_a_paraphrase(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> None:
    """Of a long block that says much else, one kindred word for each of the query's is enough."""
    config = PipelineConfig(selector={"name": "hybrid", "vectors": 0, "soft": 1}, encoder={"name": "static"})
    soft = Pipeline(config, tokenizer, frequencies, concept_table(tokenizer))
    assert PARAPHRASE.strip() in best_block(soft, ILL, SICKNESS)
    prepared = soft.prepare_query(ILL)
    assert prepared.similar is not None
    assert prepared.similar.of(prepared.token_ids).shape == (len(prepared.token_ids), 2)
    document = soft.prepare_document(SICKNESS)
    assert soft.select(prepared, document).scores.max() == pytest.approx(1, abs=1e-5)
    assert soft.select(soft.prepare_query(""), document).scores.tolist() == [0] * document.n_blocks
    assert soft.select(prepared, soft.prepare_document("")).scores.shape == (0,)
